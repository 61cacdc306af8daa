from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.control.beginning import Leash, first_length
from outpace.control.choice import Contender, Costs, Others
from outpace.control.cost import CostTable
from outpace.control.draft_cost import DraftCost
from outpace.control.line import OnlineLine


def drafts(leash: Leash, steps: int, wanted: int, right: int | None = None) -> list[int]:
    """Draft lengths of so many steps; the draft of step ``right`` has a right guess."""
    lengths = []
    for step in range(steps):
        length = leash.held(wanted, lambda: 6)
        lengths.append(length)
        if length:
            leash.learn(length, int(step == right))
    return lengths


def test_drafts_that_fail_become_shorter_and_then_end() -> None:
    assert drafts(Leash(), 10, 9) == [6, 3, 1, 1, 1, 1, 0, 0, 0, 0]


def test_the_first_right_guess_takes_it_off() -> None:
    assert drafts(Leash(), 6, 9, right=1) == [6, 3, 9, 9, 9, 9]


@given(st.integers(1, 16), st.integers(0, 99))
def test_where_nothing_is_right_little_is_drafted(wanted: int, steps: int) -> None:
    assert sum(drafts(Leash(), steps, wanted)) <= 6 + 3 + 4


@pytest.mark.parametrize(
    ("row", "draft", "length"),
    [(0.0, 0.0, 12), (0.005, 0.0, 1), (0.001, 0.0, 7), (0.0, 0.001, 7), (0.001, 0.0004, 5)],
)
def test_a_first_draft_costs_at_most_three_quarters_of_a_step(
    row: float, draft: float, length: int
) -> None:
    cost = DraftCost()
    for guesses in (1, 2):
        cost.line.add(guesses, guesses * draft)
    table = CostTable({1: 0.01, 33: 0.01 + 32 * row})
    costs = Costs(table, OnlineLine(), {"eagle": cost})
    one = Contender("eagle", [0.9] * 12, 1.0, 1, 100, 100.0)
    assert first_length(one, 12, costs, Others()) == length
