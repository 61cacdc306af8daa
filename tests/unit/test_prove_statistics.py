"""The statistics of a proof, held against SciPy and against what they promise."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from outpace.prove import chi_square
from outpace.prove.fit import compare, fit, tv_bound

GRID = list(itertools.product([1, 2, 7, 63, 500], [0.1, 0.9, 1.5, 4.0]))


@pytest.mark.parametrize(("freedom", "factor"), GRID)
def test_tails_are_those_of_scipy(freedom: int, factor: float) -> None:
    # The two libraries compute the same function; they agree up to their rounding.
    x = freedom * factor
    assert chi_square.tail(x, freedom) == pytest.approx(stats.chi2.sf(x, freedom), rel=1e-9)
    for noncentrality in (0.0, 0.5, 30.0, 900.0):
        expected = stats.ncx2.sf(x, freedom, noncentrality) if noncentrality else None
        found = chi_square.noncentral_tail(x, freedom, noncentrality)
        if expected is not None:
            assert found == pytest.approx(expected, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("freedom", [1, 10, 200])
@pytest.mark.parametrize("alpha", [0.1, 1e-3, 1e-8])
def test_critical_values_are_those_of_scipy(freedom: int, alpha: float) -> None:
    found = chi_square.critical_value(alpha, freedom)
    assert found == pytest.approx(stats.chi2.isf(alpha, freedom), rel=1e-9)


def test_the_least_deviation_has_the_power_that_it_is_named_for() -> None:
    least = chi_square.least_deviation(40, 1e-4, 2048)
    assert chi_square.power(40, 1e-4, 2048, least) == pytest.approx(0.99, abs=1e-6)
    assert chi_square.least_deviation(40, 1e-4, 10) == 1.0


def random_distribution(random: np.random.Generator, cells: int) -> dict[int, float]:
    return dict(enumerate(random.dirichlet(np.full(cells, 0.4)).tolist()))


def drawn(random: np.random.Generator, probs: dict[int, float], draws: int) -> Counter[int]:
    values = np.array(list(probs.values()))
    counts = random.multinomial(draws, values / values.sum())
    return Counter({cell: int(n) for cell, n in zip(probs, counts, strict=True) if n})


def test_false_alarms_come_as_often_as_stated() -> None:
    """At alpha = 0.05, 1500 right samples of skewed distributions: between 3 % and 7 % alarms.

    With the right rate a binomial is outside these bounds once in some thousands of seeds, and
    the seed is fixed. Pooling only what is rare in each cell, and not until the pool is large
    enough itself, has a rate of about twice the nominal one here.
    """
    random = np.random.default_rng(5)
    one = two = 0
    for _ in range(1500):
        probs = random_distribution(random, 60)
        one += fit(drawn(random, probs, 800), probs, 0.05, 0.1).rejected
        pair = drawn(random, probs, 800), drawn(random, probs, 400)
        two += compare(*pair, 0.05, 0.1).rejected
    assert 45 <= one <= 105
    assert 45 <= two <= 105


def test_a_deviation_is_found_as_often_as_stated() -> None:
    """The hardest deviation: spread in proportion to p. Stated power 0.8, 400 samples."""
    random = np.random.default_rng(6)
    probs = dict.fromkeys(range(32), 1 / 32)
    least = chi_square.least_deviation(31, 0.01, 1000, wanted=0.8)
    shifted = {cell: p * (1 + 2 * least * (-1) ** cell) for cell, p in probs.items()}
    found = [fit(drawn(random, shifted, 1000), probs, 0.01, least) for _ in range(400)]
    assert found[0].power == pytest.approx(0.8, abs=1e-6)
    assert 0.72 < np.mean([test.rejected for test in found]) < 0.88


def test_the_bound_holds_and_is_not_empty() -> None:
    """In 500 samples of a shifted distribution the bound, 95 % each, never fails by chance."""
    random = np.random.default_rng(7)
    for _ in range(500):
        probs, actual = random_distribution(random, 12), random_distribution(random, 12)
        test = fit(drawn(random, actual, 3000), probs, 0.01, 0.1)
        distance = sum(abs(probs[cell] - actual[cell]) for cell in probs) / 2
        # Pooling can only bring the two nearer, and here hardly anything is pooled.
        assert test.tv <= distance + 0.05
        assert test.tv_bound >= min(test.tv + 0.02, 1.0)
        assert distance <= tv_bound(test.tv, 12, 3000) + 0.01


def test_an_impossible_outcome_fails_at_once() -> None:
    probs = {"a": 0.5, "b": 0.5}
    assert not fit({"a": 500, "b": 500}, probs, 1e-6, 0.1).rejected
    test = fit({"a": 500, "b": 499, "c": 1}, probs, 1e-6, 0.1)
    assert test.impossible == 1
    assert test.rejected


def test_samples_without_anything_to_compare_reject_nothing() -> None:
    for test in (compare({}, {"a": 3}, 0.01, 0.1), compare({"a": 9}, {"a": 9}, 0.01, 0.1)):
        assert not test.rejected
        assert test.power == 0.0
    assert fit({}, {"a": 1.0}, 0.01, 0.1).tv_bound == 1.0
