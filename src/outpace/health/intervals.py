"""Shares of right guesses with intervals that know that guesses of one request are alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# From fewer requests than this their spread cannot be known.
_FEWEST_REQUESTS = 5
_Z = 1.96


@dataclass(frozen=True, slots=True)
class Share:
    """So many of so many, with a 95 % interval.

    Attributes:
        right, tried: guesses.
        value: their ratio; None of nothing.
        low, high: the interval.
    """

    right: int
    tried: int
    value: float | None
    low: float
    high: float

    def as_plain(self) -> dict[str, Any]:
        """A plain structure for JSON."""
        names = ("right", "tried", "value", "low", "high")
        return {name: getattr(self, name) for name in names}

    def below(self, other: Share) -> bool:
        """Whether it lies below the other one for sure."""
        return self.tried > 0 and other.tried > 0 and self.high < other.low


def share(pairs: Sequence[tuple[int, int]]) -> Share:
    """The share of right guesses, from (right, tried) of each request.

    The interval is Wilson's (1927) for the number of independent guesses that would vary as much
    as these do: the requests are what was drawn, and guesses of one request are alike (the
    variance is that of a ratio of sums, Cochran 1977, section 6.3). From fewer than five
    requests guesses are taken to be independent, which is too narrow.
    """
    counted = [(right, tried) for right, tried in pairs if tried > 0]
    right, tried = sum(pair[0] for pair in counted), sum(pair[1] for pair in counted)
    if tried == 0:
        return Share(0, 0, None, 0.0, 1.0)
    value = right / tried
    independent = float(tried)
    if len(counted) >= _FEWEST_REQUESTS and 0 < right < tried:
        squares = sum((one - value * of) ** 2 for one, of in counted)
        variance = squares / tried**2 * len(counted) / (len(counted) - 1)
        independent = min(float(tried), value * (1 - value) / variance) if variance else independent
    low, high = _wilson(value, independent)
    return Share(right, tried, value, low, high)


def _wilson(value: float, trials: float) -> tuple[float, float]:
    centre = value + _Z * _Z / (2 * trials)
    spread = _Z * math.sqrt(value * (1 - value) / trials + _Z * _Z / (4 * trials * trials))
    scale = 1 + _Z * _Z / trials
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def quantile_of(values: Sequence[float], at: float) -> float | None:
    """The value that this share of all values does not exceed, between neighbours linear."""
    if not values:
        return None
    ordered = sorted(values)
    place = at * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
