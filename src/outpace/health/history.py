"""A record read in its order: drift alarms, and how acceptance went over the requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from outpace.control.drift import Alarm, DriftSettings, DriftWatch, Guesses
from outpace.health.groups import Part
from outpace.health.intervals import Share, share
from outpace.record.row import Row

_STRETCHES = 24
_FEWEST_TRIED = 30


def guesses_of(row: Row) -> list[Guesses]:
    """What each of a request's drafters tried, for a `DriftWatch`."""
    found = []
    for draft in row.drafts:
        part = Part(row, draft)
        pairs = [part.tried(position) for position in range(len(draft.accepted_at))]
        if any(tried for _, tried in pairs):
            right, tried = zip(*pairs, strict=True)
            found.append(Guesses(row.request_type, draft.drafter, tried, right))
    return found


def watch(watcher: DriftWatch, row: Row) -> list[Alarm]:
    """Let a watcher see a row; returns its alarms."""
    guesses = guesses_of(row)
    if not guesses:
        return watcher.add_mix_only(row.request_type)
    # One request, whatever the number of its drafters: the mix counts it once.
    first, *others = guesses
    return watcher.add(first) + [alarm for one in others for alarm in watcher.add_guesses(one)]


@dataclass(frozen=True, slots=True)
class Drift:
    """What was found in a record.

    Attributes:
        alarms: in their order.
        status: of each test at the end.
    """

    alarms: tuple[Alarm, ...]
    status: tuple[dict[str, Any], ...]

    def as_plain(self) -> dict[str, Any]:
        """A plain structure for JSON."""
        alarms = [alarm.as_plain() for alarm in self.alarms]
        return {"alarms": alarms, "tests": list(self.status)}


def find_drift(rows: Sequence[Row], settings: DriftSettings | None = None) -> Drift:
    """Run the tests over a record from its first row on."""
    watcher = DriftWatch(settings)
    alarms = [alarm for row in rows for alarm in watch(watcher, row)]
    return Drift(tuple(alarms), tuple(watcher.status()))


def acceptance_over_time(rows: Sequence[Row]) -> dict[str, list[tuple[int, Share]]]:
    """By type, the share of right guesses in stretches of equally many requests.

    Each point is (the number of the stretch's last request, the share); stretches in which
    little was tried are left out.
    """
    size = max(1, -(-len(rows) // _STRETCHES))
    found: dict[str, list[tuple[int, Share]]] = {}
    for start in range(0, len(rows), size):
        stretch = rows[start : start + size]
        pairs: dict[str, list[tuple[int, int]]] = {}
        for row in stretch:
            for draft in row.drafts:
                pair = (draft.accepted, draft.accepted + draft.rejections)
                pairs.setdefault(row.request_type, []).append(pair)
        for request_type, some in pairs.items():
            seen = share(some)
            if seen.tried >= _FEWEST_TRIED:
                found.setdefault(request_type, []).append((start + len(stretch), seen))
    return found
