"""Stop strings on a stream of text: show what is safe, hold back what could become a stop."""

from __future__ import annotations

from collections.abc import Sequence


class StopText:
    """Cuts streamed text at the first stop string.

    "First" is the stop that is complete first, character by character; of several that complete
    at the same character the longest, which begins earliest. So the result does not depend on how
    the text was chopped into pieces.

    Attributes:
        hit: the stop string that was met, None so far. After a hit `push` is an error.
    """

    def __init__(self, stops: Sequence[str], include_stop: bool = False) -> None:
        if any(not stop for stop in stops):
            raise ValueError("a stop string must not be empty")
        self._stops = sorted(dict.fromkeys(stops), key=len, reverse=True)
        self._longest = len(self._stops[0]) if self._stops else 0
        self._starts = frozenset(stop[0] for stop in self._stops)
        self._include = include_stop
        self._held = ""
        self.hit: str | None = None

    def push(self, piece: str) -> str:
        """Take the next piece; return the text that is now safe to show.

        Raises:
            RuntimeError: a stop string was already met.
        """
        if self.hit is not None:
            raise RuntimeError(f"push after the stop string {self.hit!r} was met")
        if not self._stops:
            return piece
        known = len(self._held)  # no stop ends within the text held so far
        text = self._held + piece
        found = self._first_end(text, known)
        if found is not None:
            end, stop = found
            self.hit, self._held = stop, ""
            return text[: end if self._include else end - len(stop)]
        safe = self._safe_length(text)
        self._held = text[safe:]
        return text[:safe]

    def flush(self) -> str:
        """End the text: return what was held back (nothing after a hit)."""
        held, self._held = self._held, ""
        return held

    def _first_end(self, text: str, known: int) -> tuple[int, str] | None:
        """Find the stop that is complete first, with the position after its last character."""
        best: tuple[int, str] | None = None
        for stop in self._stops:  # longest first: it wins among equal ends
            start = text.find(stop, max(0, known - len(stop) + 1))
            if start >= 0 and (best is None or start + len(stop) < best[0]):
                best = (start + len(stop), stop)
        return best

    def _safe_length(self, text: str) -> int:
        """How much of the text cannot be the beginning of a stop that completes later."""
        for start in range(max(0, len(text) - self._longest + 1), len(text)):
            if text[start] in self._starts:
                tail = text[start:]
                if any(stop.startswith(tail) for stop in self._stops):
                    return start
        return len(text)
