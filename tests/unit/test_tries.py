"""When a silent source tries a guess, and what follows from it."""

from __future__ import annotations

import pytest

from outpace.control.choice import Contender, Costs, Others
from outpace.control.cost import CostTable
from outpace.control.line import OnlineLine
from outpace.control.state import SHORTEST_PAUSE, SourceState
from outpace.control.tries import Pauses, pauses


def bounds(right: float, others: int = 0, row: float = 0.002, found: float = 1.0) -> Pauses:
    """A step of ten milliseconds, and more for each further row."""
    table = CostTable({rows: 0.01 + row * (rows - 1) for rows in range(1, 70)})
    costs = Costs(table, OnlineLine(), {})
    one = Contender("lookup", [right], found, 1, 10, 100.0)
    beside = Others(others, others)
    plainly = (1 + others) / table(1 + others)
    return pauses(one, plainly, costs, beside)


def test_a_try_that_costs_nothing_need_not_wait() -> None:
    assert bounds(0.0, row=0.0) == (0.0, 0.0)


def test_the_dearer_a_failed_try_the_longer_the_pause_before_it_is_harmless() -> None:
    assert bounds(0.9, row=0.001).longest == pytest.approx(0.1 / 0.006)
    assert bounds(0.9, row=0.004).longest == pytest.approx(0.4 / 0.006)


def test_in_a_batch_a_try_is_held_against_ones_own_part_of_the_step() -> None:
    """All wait for it: 2 ms are a twentieth of a step of 40 ms, and four fifths of a sixteenth."""
    assert bounds(0.9, others=15).longest == pytest.approx(0.002 / (0.04 / 16) / 0.006)


@pytest.mark.parametrize(
    ("right", "found", "expected"),
    [(0.3, 1.0, 0.0), (0.19, 1.0, 0.01 / 0.006), (0.0, 1.0, 32.0), (0.1, 0.5, 0.05 / 0.006)],
)
def test_a_try_waits_as_long_as_it_is_expected_to_lose(
    right: float, found: float, expected: float
) -> None:
    assert bounds(right, found=found).shortest == pytest.approx(expected)


def test_without_room_nothing_is_brought() -> None:
    costs = Costs(CostTable({1: 0.01, 2: 0.012}), OnlineLine(), {})
    assert pauses(Contender("lookup", [], 1.0, 1, 10, 0.0), 100.0, costs, Others()).shortest == 32


@pytest.mark.parametrize(("pause", "expected"), [(1, 5), (8, 8), (99, 20)])
def test_a_pause_stays_within_its_bounds(pause: float, expected: float) -> None:
    assert Pauses(5, 20).within(pause) == expected


def test_where_both_bounds_differ_losing_less_counts_more() -> None:
    assert Pauses(30, 20).within(8) == 30


def tried(expected: float, right: bool) -> SourceState:
    source = SourceState(in_try=True, quiet=SHORTEST_PAUSE)
    source.contender = Contender("lookup", [expected], 1.0, 1, 10, 100.0)
    source.learn(10, 1, int(right), not right)
    return source


def test_an_unlikely_success_is_followed_by_a_larger_try_at_once() -> None:
    source = tried(0.2, right=True)
    assert (source.quiet, source.trying) == (source.pause, 2)


def test_a_likely_success_is_no_news() -> None:
    source = tried(0.6, right=True)
    assert (source.quiet, source.trying, source.pause) == (0, 1, SHORTEST_PAUSE)


def test_after_a_failure_the_next_try_comes_later() -> None:
    assert tried(0.6, right=False).pause == tried(0.2, right=False).pause == 2 * SHORTEST_PAUSE
