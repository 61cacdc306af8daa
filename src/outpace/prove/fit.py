"""Statistical tests on counts: against a known distribution, and between two samples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outpace.prove import chi_square

# The chi-square approximation wants this many expected in a cell; rarer ones are pooled.
_LEAST_EXPECTED = 5.0
# The bound on the total variation distance holds with this probability.
CONFIDENCE = 0.95

Counts = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CountTest:
    """The outcome of a chi-square test with a bound on the total variation distance.

    Attributes:
        draws: of the tested sample; ``reference_draws`` of the other, None if it is exact.
        cells: compared after pooling rare ones.
        impossible: draws that the reference excludes; one is enough to fail.
        chi_square, p_value: of the counts.
        alpha: the test's false-alarm rate.
        tv: total variation distance between the two as observed, sampling noise included.
        tv_bound: with 95 % confidence the distance over these cells is at most this, for any
            sample size.
        deviation: the distance for which the power is stated.
    """

    draws: int
    reference_draws: int | None
    cells: int
    impossible: int
    chi_square: float
    p_value: float
    alpha: float
    tv: float
    tv_bound: float
    deviation: float

    @property
    def _effective(self) -> float:
        """Draws that a comparison with an exact distribution would need for the same power."""
        if self.reference_draws is None:
            return self.draws
        return self.draws * self.reference_draws / max(self.draws + self.reference_draws, 1)

    @property
    def power(self) -> float:
        """The probability that a total variation distance of ``deviation`` is found."""
        return chi_square.power(self.cells - 1, self.alpha, self._effective, self.deviation)

    @property
    def least_deviation(self) -> float:
        """The distance that is found with a probability of 99 %."""
        return chi_square.least_deviation(self.cells - 1, self.alpha, self._effective)

    @property
    def rejected(self) -> bool:
        """Whether the two distributions differ, but for a false alarm."""
        return self.impossible > 0 or self.p_value < self.alpha

    def as_dict(self) -> dict[str, Any]:
        """A plain structure for JSON."""
        return asdict(self) | {
            "rejected": self.rejected,
            "power": self.power,
            "least_deviation": self.least_deviation,
        }


def fit(
    observed: Mapping[Any, int],
    expected: Mapping[Any, float],
    alpha: float,
    deviation: float,
) -> CountTest:
    """Test counts against a known distribution (Pearson 1900).

    Args:
        observed: how often each outcome was drawn.
        expected: its probability; what is not in it is impossible.
        alpha: false-alarm rate.
        deviation: the total variation distance for which the power is stated.
    """
    draws = sum(observed.values())
    impossible = sum(n for outcome, n in observed.items() if not expected.get(outcome, 0.0))
    outcomes = [outcome for outcome, p in expected.items() if p > 0]
    seen = np.array([observed.get(outcome, 0) for outcome in outcomes], dtype=np.float64)
    probs = np.array([expected[outcome] for outcome in outcomes], dtype=np.float64)
    probs /= probs.sum()
    seen, probs = _pooled(probs * draws, _LEAST_EXPECTED, seen, probs)
    possible = draws - impossible
    wanted = probs * possible
    statistic = float((np.square(seen - wanted) / wanted).sum()) if possible else 0.0
    tv = float(np.abs(seen / max(draws, 1) - probs).sum() + impossible / max(draws, 1)) / 2
    return _result(
        statistic, len(probs), alpha, deviation, draws, None, impossible, tv if draws else 1.0
    )


def compare(
    first: Mapping[Any, int],
    second: Mapping[Any, int],
    alpha: float,
    deviation: float,
) -> CountTest:
    """Test whether two samples come from one distribution (chi-square test of homogeneity).

    Rare outcomes are pooled by their count in both samples together, which does not depend on
    the sample that they fell into.
    """
    draws, others = sum(first.values()), sum(second.values())
    if draws == 0 or others == 0:
        return _result(0.0, 0, alpha, deviation, draws, others, 0, 1.0)
    outcomes = sorted({*first, *second}, key=repr)
    a = np.array([first.get(outcome, 0) for outcome in outcomes], dtype=np.float64)
    b = np.array([second.get(outcome, 0) for outcome in outcomes], dtype=np.float64)
    least = _LEAST_EXPECTED * (draws + others) / min(draws, others)
    a, b = _pooled(a + b, least, a, b)
    together = (a + b) / (draws + others)
    statistic = sum(
        float((np.square(counts - together * total) / (together * total)).sum())
        for counts, total in ((a, draws), (b, others))
    )
    tv = float(np.abs(a / draws - b / others).sum()) / 2
    return _result(statistic, len(a), alpha, deviation, draws, others, 0, tv)


def _pooled(weight: Counts, least: float, *counts: Counts) -> tuple[Counts, ...]:
    """The counts with the rarest cells made one, so that none weighs less than ``least``."""
    order = np.argsort(weight, kind="stable")
    rare = int(np.searchsorted(weight[order], least))
    pool = float(weight[order[:rare]].sum())
    if 0 < rare < len(order) and pool < least:
        rare += 1  # the pool itself would be too rare: the next rarest joins it
    if rare < 2:
        return counts
    return tuple(np.append(c[order[rare:]], c[order[:rare]].sum()) for c in counts)


def _result(
    statistic: float,
    cells: int,
    alpha: float,
    deviation: float,
    draws: int,
    others: int | None,
    impossible: int,
    tv: float,
) -> CountTest:
    return CountTest(
        draws=draws,
        reference_draws=others,
        cells=cells,
        impossible=impossible,
        chi_square=statistic,
        p_value=chi_square.tail(statistic, cells - 1),
        alpha=alpha,
        tv=tv,
        tv_bound=tv_bound(tv, cells + (impossible > 0), draws, others),
        deviation=deviation,
    )


def tv_bound(tv: float, cells: int, draws: int, others: int | None = None) -> float:
    """An upper confidence bound on the total variation distance, for any sample size.

    An empirical distribution is on average within sqrt((cells - 1) / n) / 2 of what it was drawn
    from (Jensen and Cauchy-Schwarz), and exceeds its average by t with a probability of at most
    exp(-2 n t^2) (McDiarmid 1989); the triangle inequality does the rest. No approximation is
    made, and so the bound is wide: it is a statement, not the test.
    """
    samples = [draws] if others is None else [draws, others]
    if min(samples) == 0:
        return 1.0
    average = sum(math.sqrt(max(cells - 1, 0) / n) / 2 for n in samples)
    spread = math.sqrt(math.log(1 / (1 - CONFIDENCE)) / 2 * sum(1 / n for n in samples))
    return min(1.0, tv + average + spread)
