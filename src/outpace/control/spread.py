"""How much more requests differ from each other than chance alone would make them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

# A request counts half after so many further ones.
_HALF_LIFE = 500.0
_DECAY = 0.5 ** (1 / _HALF_LIFE)
# Before anything is known, guesses count half, and so many requests' worth of evidence says so.
_PRIOR_EFFECT, _PRIOR_REQUESTS = 2.0, 10.0
_MOST = 60.0
# Requests that tried a place fewer times than this say nothing about it.
_FEWEST = 3.0
# Without evidence, and within which bounds, how much a request leans on its type.
_USUAL_LIKENESS, _LIKENESS = 6.0, (4.0, 40.0)
_FEWEST_REQUESTS = 6.0


# Beyond any life of a server, and far from where sums and squares of counts overflow.
MOST_COUNTED = 10**15
# What has faded to less counts as nothing, and is far from where its reciprocal overflows.
TRACE = 1e-12


def without_traces(counts: Sequence[float]) -> list[float]:
    """Counts as they are kept: what has all but faded is 0."""
    return [one if one >= TRACE else 0.0 for one in counts]


@dataclass(slots=True)
class Spread:
    """The design effect by place: how much wider requests spread than independent guesses.

    For requests r with n_r tries of which a_r were right and p expected, it is
    sum (a_r - p·n_r)^2 / sum n_r·p·(1 - p): 1 if only chance is at work. Dividing counts by it
    keeps intervals honest (Rao and Scott 1992, "A simple method for the analysis of clustered
    binary data").
    """

    squares: list[float] = field(default_factory=list)
    variances: list[float] = field(default_factory=list)
    requests: float = 0.0
    tries: float = 0.0
    tries_squared: float = 0.0

    def add(
        self, accepted: Sequence[float], tried: Sequence[float], expected: Sequence[float]
    ) -> None:
        """One request's counts by place, beside what was expected of them."""
        missing = len(tried) - len(self.squares)
        self.squares += [0.0] * missing
        self.variances += [0.0] * missing
        self.squares = [one * _DECAY for one in self.squares]
        self.variances = [one * _DECAY for one in self.variances]
        self.requests = self.requests * _DECAY + 1
        first = tried[0] if tried else 0.0
        self.tries = self.tries * _DECAY + first
        self.tries_squared = self.tries_squared * _DECAY + first * first
        for position, (good, n, p) in enumerate(zip(accepted, tried, expected, strict=True)):
            if n >= _FEWEST:
                self.squares[position] += (good - p * n) ** 2
                self.variances[position] += n * p * (1 - p)

    def effect(self, position: int) -> float:
        """The design effect at a place, at least 1."""
        if position >= len(self.squares) or not self.requests:
            return _PRIOR_EFFECT
        prior = _PRIOR_REQUESTS / self.requests * max(self.variances[position], 1.0)
        squares = self.squares[position] + prior * _PRIOR_EFFECT
        return min(max(squares / (self.variances[position] + prior), 1.0), _MOST)

    @property
    def likeness(self) -> float:
        """How many guesses of its own it takes until a request is its own rather than its type's.

        In the beta-binomial model the effect is 1 + (m - 1)·rho for m tries a request, and a
        request's acceptance is drawn from a Beta whose strength is 1/rho - 1.
        """
        if self.requests < _FEWEST_REQUESTS or not self.tries:
            return _USUAL_LIKENESS
        tries = self.tries_squared / self.tries
        rho = (self.effect(0) - 1) / max(tries - 1, 1e-9)
        least, most = _LIKENESS
        return min(max(1 / max(rho, 1e-9) - 1, least), most)

    def as_plain(self) -> dict[str, Any]:
        """Plain values for JSON."""
        plain = asdict(self)
        for name, value in plain.items():
            plain[name] = without_traces(value if isinstance(value, list) else [value])
            if not isinstance(value, list):
                [plain[name]] = plain[name]
        return plain

    @classmethod
    def from_plain(cls, plain: Any) -> Spread:
        """Read what `as_plain` wrote.

        Raises:
            ValueError: it is something else.
        """
        squares = [float(one) for one in plain["squares"]]
        variances = [float(one) for one in plain["variances"]]
        requests = float(plain["requests"])
        tries, tries_squared = float(plain["tries"]), float(plain["tries_squared"])
        numbers = [*squares, *variances, requests, tries, tries_squared]
        possible = all(one == 0 or TRACE <= one <= MOST_COUNTED for one in numbers)
        if len(squares) != len(variances) or not possible or 0 < requests < 1:
            raise ValueError("not a spread")
        return cls(squares, variances, requests, tries, tries_squared)
