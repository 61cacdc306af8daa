"""A probability with its interval, and the arithmetic that shrinkage needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

LEAST, MOST = 0.005, 0.995
Z95 = 1.959964


class Estimate(NamedTuple):
    """A probability as it is believed to be.

    Attributes:
        mean: posterior mean.
        low, high: a 95 % interval of the probability itself.
        trials: effective observations behind it, the wider group's not counted.
    """

    mean: float
    low: float
    high: float
    trials: float


def clamped(p: float) -> float:
    """A probability that is neither quite 0 nor quite 1."""
    return min(max(p, LEAST), MOST)


def logit(p: float) -> float:
    """Log-odds of a probability, which is kept off 0 and 1."""
    p = clamped(p)
    return math.log(p / (1 - p))


def sigmoid(x: float) -> float:
    """The probability of some log-odds."""
    if x >= 0:
        return 1 / (1 + math.exp(-x))
    e = math.exp(x)
    return e / (1 + e)


def beta_estimate(successes: float, trials: float, prior: float, strength: float) -> Estimate:
    """Posterior of a probability under Beta(prior·strength, (1 - prior)·strength).

    The interval is that of a normal with the mean and variance that the log-odds have under a
    Beta(a, b): digamma(a) - digamma(b), and trigamma(a) + trigamma(b).
    """
    prior = clamped(prior)
    a = successes + prior * strength
    b = trials - successes + (1 - prior) * strength
    spread = Z95 * math.sqrt(_trigamma(a) + _trigamma(b))
    centre = _digamma(a) - _digamma(b)
    return Estimate(a / (a + b), sigmoid(centre - spread), sigmoid(centre + spread), trials)


def _digamma(x: float) -> float:
    """The derivative of log gamma, by recurrence and its asymptotic series."""
    total = 0.0
    while x < 4:
        total -= 1 / x
        x += 1
    inverse = 1 / (x * x)
    return total + math.log(x) - 1 / (2 * x) - inverse * (1 / 12 - inverse * (1 / 120))


def _trigamma(x: float) -> float:
    """The second derivative of log gamma, by recurrence and its asymptotic series."""
    total = 0.0
    while x < 4:
        total += 1 / (x * x)
        x += 1
    inverse = 1 / (x * x)
    return total + 1 / x + inverse / 2 + inverse / x * (1 / 6 - inverse * (1 / 30 - inverse / 42))


# Strengths among which the likeliest is taken: how alike the members of a group are.
STRENGTHS = (2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)


def likeliest_strength(
    groups: Sequence[tuple[float, float]], mean: float, usual: float = 8.0
) -> float:
    """How many observations the group's mean is worth to a member, by empirical Bayes.

    Each member's successes are beta-binomial under Beta(mean·s, (1 - mean)·s); the s with the
    largest marginal likelihood is taken (Efron and Morris 1975 give the idea; Griffiths 1973 the
    likelihood), against a weak preference for ``usual`` that decides while there are few members.

    Args:
        groups: ``(successes, trials)`` of each member; need not be whole numbers.
        mean: of all of them.
        usual: what is taken without evidence.
    """
    mean = clamped(mean)

    def score(strength: float) -> float:
        a, b = mean * strength, (1 - mean) * strength
        total = -0.25 * math.log(strength / usual) ** 2
        for successes, trials in groups:
            if trials > 0:
                total += _log_beta(a + successes, b + trials - successes) - _log_beta(a, b)
        return total

    return max(STRENGTHS, key=score)


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
