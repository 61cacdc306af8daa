"""What another policy would have brought, from the log of this one, with an interval."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from outpace.control.estimate import Z95

# A decision that was this unlikely says too little for its weight.
LEAST_PROPENSITY = 0.005
_SHRINKAGE = 3.0


@dataclass(frozen=True, slots=True)
class Logged:
    """A decision and what came of it.

    Attributes:
        request: an id; decisions of one request are not independent.
        request_type: what was known.
        drafter: who was chosen.
        propensities: probability with which each drafter could have been chosen.
        outcome: what followed until the next decision: times faster than plain by the table.
    """

    request: int
    request_type: str
    drafter: str
    propensities: Mapping[str, float]
    outcome: float


@dataclass(frozen=True, slots=True)
class PolicyValue:
    """The mean outcome under a policy.

    Attributes:
        mean: doubly robust estimate.
        low, high: 95 %, over requests.
        decisions: that the estimate rests on.
        support: share of all decisions that could have gone the policy's way; the others are
            left out, so with little support the estimate speaks of few.
        effective: decisions that the weighted ones are worth.
    """

    mean: float
    low: float
    high: float
    decisions: int
    support: float
    effective: float


Policy = Callable[[str], str]
"""From a request's type to a drafter."""


def value(log: Sequence[Logged], policy: Policy) -> PolicyValue | None:
    """Estimate the mean outcome had ``policy`` decided; None if no decision can tell.

    With q(x, a) the mean logged outcome of drafter a for type x, shrunk to a's mean, a decision
    contributes q(x, pi) + 1[a = pi]/p(a)·(r - q(x, a)) (Dudik, Langford and Li 2011, "Doubly
    robust policy evaluation and learning"): without bias for any fixed q, because the
    propensities p are logged and not estimated, and of less variance the better q is. The
    interval is a normal one over the sums of whole requests, since decisions of one request
    depend on each other.
    """
    usable = [
        one for one in log if one.propensities.get(policy(one.request_type), 0) >= LEAST_PROPENSITY
    ]
    if not usable:
        return None
    model = _means(log)
    by_request: dict[int, list[float]] = defaultdict(list)
    weights = []
    for one in usable:
        wanted = policy(one.request_type)
        estimate = model(one.request_type, wanted)
        weight = 0.0
        if one.drafter == wanted:
            weight = 1 / one.propensities[wanted]
            estimate += weight * (one.outcome - model(one.request_type, wanted))
        weights.append(weight)
        by_request[one.request].append(estimate)
    mean, error = _clustered(list(by_request.values()))
    squares = sum(weight * weight for weight in weights)
    return PolicyValue(
        mean,
        mean - Z95 * error,
        mean + Z95 * error,
        decisions=len(usable),
        support=len(usable) / len(log),
        effective=sum(weights) ** 2 / squares if squares else 0.0,
    )


def _means(log: Sequence[Logged]) -> Callable[[str, str], float]:
    """Mean outcome by type and drafter, leaning on the drafter's and on the whole mean."""
    sums: dict[tuple[str, ...], tuple[float, int]] = {}
    for one in log:
        for key in ((), (one.drafter,), (one.request_type, one.drafter)):
            total, count = sums.get(key, (0.0, 0))
            sums[key] = total + one.outcome, count + 1
    whole = sums[()][0] / sums[()][1]

    def leaning(key: tuple[str, ...], usual: float) -> float:
        total, count = sums.get(key, (0.0, 0))
        return (total + _SHRINKAGE * usual) / (count + _SHRINKAGE)

    return lambda request_type, drafter: leaning(
        (request_type, drafter), leaning((drafter,), whole)
    )


def _clustered(groups: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Mean over all values, and its standard error when whole groups are drawn."""
    count = sum(len(group) for group in groups)
    mean = sum(sum(group) for group in groups) / count
    if len(groups) < 2:
        return mean, math.inf
    square = sum(sum(value - mean for value in group) ** 2 for group in groups)
    return mean, math.sqrt(square * len(groups) / (len(groups) - 1)) / count
