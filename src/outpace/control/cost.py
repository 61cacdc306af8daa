"""How long a step takes: measured at start-up, corrected while running."""

from __future__ import annotations

import bisect
from collections.abc import Mapping

_CORRECTION = 0.1


class CostTable:
    """Seconds of one forward pass by its number of rows, interpolated between measured points.

    Args:
        seconds: measured step times by rows; at least one point.
    """

    def __init__(self, seconds: Mapping[int, float]) -> None:
        if not seconds:
            raise ValueError("a cost table needs at least one measured point")
        self._rows = sorted(seconds)
        self._seconds = [seconds[rows] for rows in self._rows]
        self._make_plausible()

    def __call__(self, rows: int) -> float:
        """Seconds for a step of ``rows`` rows; beyond the last point it grows in proportion."""
        at = bisect.bisect_left(self._rows, rows)
        if at == len(self._rows):
            return self._seconds[-1] * rows / self._rows[-1]
        if self._rows[at] == rows or at == 0:
            return self._seconds[at]
        low, high = self._rows[at - 1], self._rows[at]
        share = (rows - low) / (high - low)
        return self._seconds[at - 1] * (1 - share) + self._seconds[at] * share

    def correct(self, rows: int, seconds: float) -> None:
        """Move the table towards an observed time; one observation moves it little.

        The whole table moves, since a machine that is slower now is slower for any number of
        rows: otherwise a warm-up in a bad moment would leave the points that are not used, and
        so never corrected, too dear for good. The nearest point moves a little more. The
        observation is capped at twice the expectation, because an interruption by another
        process says nothing about the model.
        """
        expected = self(rows)
        change = _CORRECTION * (min(seconds, 2 * expected) / expected - 1)
        nearest = min(range(len(self._rows)), key=lambda i: abs(self._rows[i] - rows))
        self._seconds = [one * (1 + change) for one in self._seconds]
        self._seconds[nearest] *= 1 + change / 4
        self._make_monotonous()

    def _make_plausible(self) -> None:
        """Rows never cost more together than one by one: where they seem to it is noise."""
        dearest = self._seconds[0] / self._rows[0]
        pairs = zip(self._rows, self._seconds, strict=True)
        self._seconds = [min(seconds, dearest * rows) for rows, seconds in pairs]
        self._make_monotonous()

    def _make_monotonous(self) -> None:
        """More rows never cost less: where a measurement says so it is noise."""
        for i in range(len(self._seconds) - 2, -1, -1):
            self._seconds[i] = min(self._seconds[i], self._seconds[i + 1])
