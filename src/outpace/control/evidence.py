"""Evidence against "nothing has changed" that may be looked at after every single request."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

# Falls beyond the margin that the bets are made for; what lies between is found too.
_FALLS = (0.03, 0.08, 0.2)
# A bet may not lose more than this share of what is left.
_MOST_AT_STAKE = 0.9
_MEMORY = 200.0
# Before anything is known: the variance of what one request says, worth so many requests.
_PRIOR_VARIANCE, _PRIOR_STRENGTH = 0.03, 10.0


@dataclass(slots=True)
class Bets:
    """Bets that a mean is below what it should be, begun anew with every request.

    Each request says a number z in [-1, 1] whose mean, given all before, is at most 0 while
    nothing has changed. Whoever bets the share λ of his money on it has 1 + λ z times as much
    afterwards, in the mean no more than before, if λ was chosen before z was seen. The
    statistic S adds up what gamblers hold who begin with 1 at each request:
    S' = (S + 1) (1 + λ z). Its mean grows by at most 1 a request, so that it reaches a level c in
    n requests with a probability of at most n / c, and once in c requests in the mean, whatever
    the distribution of z is (Shin, Ramdas, Rinaldo 2023, "E-detectors", section 3). Several λ,
    for falls of several sizes, each hold a part of the money.
    """

    statistics: list[float] = field(default_factory=lambda: [0.0] * len(_FALLS))
    requests: int = 0
    _seen: float = 0.0
    _squares: float = 0.0
    _weights: float = 0.0
    _sums: list[float] = field(default_factory=lambda: [0.0] * len(_FALLS))
    _since: list[int] = field(default_factory=lambda: [0] * len(_FALLS))

    def add(self, z: float, weight: float, worst: float) -> None:
        """Take in what one request says.

        Args:
            z: weight times (what should be, less what was).
            weight: how much the request can say, in (0, 1].
            worst: how far below 0 any z can lie, known before this one: λ times it stays below 1.
        """
        self.requests += 1
        shares = self._shares(worst)
        for i, share in enumerate(shares):
            factor = 1 + share * z
            self.statistics[i] = (self.statistics[i] + 1) * factor
            self._sums[i] = self._sums[i] + math.log(factor)
            if self._sums[i] <= 0:  # whoever began before has lost since
                self._sums[i], self._since[i] = 0.0, self.requests
        fade = 1 - 1 / _MEMORY
        self._seen = fade * self._seen + 1
        self._squares = fade * self._squares + z * z
        self._weights = fade * self._weights + weight

    def _shares(self, worst: float) -> list[float]:
        """Choose λ for each size of fall, from what was seen before.

        The best for a mean μ is μ / (σ² + μ²), as far as the logarithm is a parabola.
        """
        seen = self._seen + _PRIOR_STRENGTH
        variance = (self._squares + _PRIOR_VARIANCE * _PRIOR_STRENGTH) / seen
        weight = (self._weights + 0.5 * _PRIOR_STRENGTH) / seen
        shares = []
        for fall in _FALLS:
            mean = fall * weight
            shares.append(min(mean / (variance + mean * mean), _MOST_AT_STAKE / worst))
        return shares

    @property
    def level(self) -> float:
        """What there is against "nothing has changed"; compare it with a threshold."""
        return sum(self.statistics) / len(self.statistics)

    @property
    def span(self) -> int:
        """About how many requests ago it began: where the best of the gamblers began."""
        best = max(range(len(_FALLS)), key=self.statistics.__getitem__)
        return self.requests - self._since[best]

    def restart(self) -> None:
        """Begin anew, after an alarm."""
        self.statistics = [0.0] * len(_FALLS)
        self._sums = [0.0] * len(_FALLS)
        self._since = [self.requests] * len(_FALLS)


@dataclass(slots=True)
class Baseline:
    """How often guesses are right as long as nothing has changed, from the first requests.

    A request counts with the share of its guesses that were right, weighted by their number up
    to a limit, and not guess by guess: guesses of one request are alike.

    Attributes:
        requests: that were learned from.
    """

    requests: int = 0
    _weights: float = 0.0
    _right: float = 0.0
    _squares: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def add(self, share: float, weight: float) -> None:
        """Learn from a request: the share of its guesses that were right."""
        self.requests += 1
        self._weights += weight
        self._right += weight * share
        square = weight * weight
        one, two, three = self._squares
        self._squares = (one + square, two + square * share, three + square * share * share)

    @property
    def mean(self) -> float:
        """Share of guesses that are right."""
        return self._right / self._weights if self._weights else 0.0

    @property
    def error(self) -> float:
        """Standard error of the mean, with requests as what was drawn."""
        if self.requests < 2:
            return 1.0
        one, two, three = self._squares
        mean = self.mean
        spread = max(three - 2 * mean * two + mean * mean * one, 0.0)
        correction = self.requests / (self.requests - 1)
        return float((spread * correction) ** 0.5 / self._weights)
