"""The chi-square distribution, central and noncentral: tail, critical value, power.

Only the regularised incomplete gamma function is needed, which PyTorch has; the tests hold all
of it against SciPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch


def tail(x: float, freedom: int) -> float:
    """P(X > x) for chi-square with ``freedom`` degrees."""
    if freedom < 1:
        return 1.0
    half = torch.tensor([freedom / 2, max(x, 0.0) / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def critical_value(alpha: float, freedom: int) -> float:
    """The x that is exceeded with probability ``alpha``."""
    high = float(freedom) + 1.0
    while tail(high, freedom) > alpha:
        high *= 2
    return _bisect(lambda x: tail(x, freedom) > alpha, 0.0, high)


def noncentral_tail(x: float, freedom: int, noncentrality: float) -> float:
    """P(X > x) for noncentral chi-square: a Poisson mixture of central ones."""
    mean = noncentrality / 2
    if mean <= 0:
        return tail(x, freedom)
    # Beyond 12 standard deviations the weights vanish in double precision.
    spread = 12 * math.sqrt(mean) + 12
    first, last = max(0, int(mean - spread)), int(mean + spread)
    index = torch.arange(first, last + 1, dtype=torch.float64)
    log_weight = index * math.log(mean) - mean - torch.lgamma(index + 1)
    half = torch.full_like(index, max(x, 0.0) / 2)
    tails = torch.special.gammaincc(freedom / 2 + index, half)
    return min(1.0, float((log_weight.exp() * tails).sum()))


def power(freedom: int, alpha: float, draws: float, deviation: float) -> float:
    """The probability that a test of ``draws`` finds a total variation of ``deviation``.

    Chi-square is then noncentral with draws * sum(d^2 / p). Spread over the cells in proportion
    to p, which is hardest to see, this is draws * (2 * deviation)^2.
    """
    if freedom < 1:
        return 0.0
    critical = critical_value(alpha, freedom)
    return noncentral_tail(critical, freedom, draws * (2 * deviation) ** 2)


def least_deviation(freedom: int, alpha: float, draws: float, wanted: float = 0.99) -> float:
    """The smallest total variation that is found with probability ``wanted``; at most 1."""
    if freedom < 1:
        return 1.0
    critical = critical_value(alpha, freedom)

    def too_small(deviation: float) -> bool:
        return noncentral_tail(critical, freedom, draws * (2 * deviation) ** 2) < wanted

    return 1.0 if too_small(1.0) else _bisect(too_small, 0.0, 1.0)


def _bisect(below: Callable[[float], bool], low: float, high: float) -> float:
    for _ in range(80):
        middle = (low + high) / 2
        if below(middle):
            low = middle
        else:
            high = middle
    return high
