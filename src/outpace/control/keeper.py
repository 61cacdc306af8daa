"""Keeping what is learned on disk while it is being learned."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic

from outpace.control import learned
from outpace.control.typed_acceptance import HALF_LIFE

# Saving takes a few milliseconds; a crash loses at most so many seconds' experience.
_EVERY_SECONDS = 60.0
_MOST_FILES = 64
_LOG = logging.getLogger("outpace")


class Keeper:
    """Restores what was learned of a pair of models, and saves it now and then and at the end.

    The file is replaced whole, so that a process that is killed leaves the last one. Of several
    processes with the same models the one that has seen most keeps its own.

    Args:
        folder: of all such files.
        pair: fingerprint of the target and its drafters.
        seconds: between two savings, at least.
        half_life: see `TypedAcceptance`.
        clock: seconds that only go forward.

    Attributes:
        acceptance: to learn with.
        origin: where it comes from, in words.
    """

    def __init__(
        self,
        folder: Path,
        pair: str,
        seconds: float = _EVERY_SECONDS,
        half_life: float = HALF_LIFE,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._folder = folder
        self.file = _file(folder, pair)
        self.acceptance, self._sharpening, self.origin = learned.restore(self.file, pair, half_life)
        self._pair = pair
        self._seconds = seconds
        self._clock = clock
        self._saved_at = clock()
        self._saved_drafts = self.acceptance.drafts
        self._failed = False

    def turn_to(self, pair: str, sources: Iterable[str]) -> None:
        """Other drafters are there: keep what is learned from now on with theirs.

        What was saved before stays with the former ones.

        Args:
            pair: fingerprint of the target and the drafters that it has now.
            sources: of whom nothing is known any more; what was learned of them before, beside
                these very drafters, is taken up again.
        """
        self._pair, self.file = pair, _file(self._folder, pair)
        known, _, _ = learned.restore(self.file, pair, self.acceptance.half_life)
        for source in sources:
            self.acceptance.take_over(source, known)
        self._saved_drafts = self.acceptance.drafts

    def ended(self) -> None:
        """A request ended; saves if the last time is long ago."""
        if self._clock() - self._saved_at >= self._seconds:
            self.save()

    def save(self) -> None:
        """Keep what is new; what cannot be written is reported once, and is no error."""
        self._saved_at = self._clock()
        drafts = self.acceptance.drafts
        if drafts == self._saved_drafts or learned.drafts_in(self.file, self._pair) > drafts:
            return
        try:
            learned.save(self.file, self.acceptance, self._sharpening, self._pair)
            self._saved_drafts = drafts
            _remove_oldest(self.file.parent)
        except (OSError, ValueError) as error:  # ValueError: there is something like NaN in it
            if not self._failed:
                reason = getattr(error, "strerror", None) or str(error)
                _LOG.warning("%s: what is learned cannot be kept: %s", self.file, reason)
            self._failed = True


def _file(folder: Path, pair: str) -> Path:
    return folder / f"{pair[:24]}.json"


def _remove_oldest(folder: Path) -> None:
    """Keep the files that were written last."""
    files = sorted(folder.glob("*.json"), key=lambda file: file.stat().st_mtime)
    for file in files[:-_MOST_FILES]:
        file.unlink(missing_ok=True)
