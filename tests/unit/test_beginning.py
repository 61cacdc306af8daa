from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.control.beginning import Leash, bearable, lost_if_wrong
from outpace.control.choice import Contender, Costs, Others
from outpace.control.cost import CostTable
from outpace.control.draft_cost import DraftCost, Wanted
from outpace.control.line import OnlineLine


def drafts(leash: Leash, steps: int, wanted: int, right: int | None = None) -> list[int]:
    """Draft lengths of so many steps; the draft of step ``right`` has a right guess."""
    lengths = []
    for step in range(steps):
        length = leash.held(wanted)
        lengths.append(length)
        if length:
            leash.learn(length, int(step == right))
    return lengths


def test_drafts_that_fail_become_shorter_and_then_end() -> None:
    assert drafts(Leash(), 10, 6) == [6, 3, 1, 1, 1, 1, 1, 1, 0, 0]


def test_the_first_right_guess_takes_it_off() -> None:
    assert drafts(Leash(), 6, 9, right=1) == [9, 4, 9, 9, 9, 9]


@given(st.integers(1, 16), st.integers(0, 99))
def test_where_nothing_is_right_little_is_drafted(wanted: int, steps: int) -> None:
    assert sum(drafts(Leash(), steps, wanted)) <= 2 * wanted + 6


def setting(row: float, draft: float) -> tuple[Contender, Costs]:
    """A step of ten milliseconds, with so much for a further row and for a guess."""
    cost = DraftCost()
    for guesses in (1, 2):
        cost.line.add(guesses, guesses * draft)
    table = CostTable({1: 0.01, 33: 0.01 + 32 * row})
    costs = Costs(table, OnlineLine(), {"eagle": cost})
    return Contender("eagle", [0.9] * 12, 1.0, 1, 100, 100.0), costs


def lost(one: Contender, length: int, costs: Costs) -> float:
    return lost_if_wrong([(one.drafter, Wanted(length, 1, one.context))], 1, costs)


@pytest.mark.parametrize(
    ("row", "draft", "length"),
    [(0.0, 0.0, 12), (0.005, 0.0, 1), (0.001, 0.0, 7), (0.0, 0.001, 7), (0.001, 0.0004, 5)],
)
def test_a_draft_puts_a_quarter_at_stake_of_what_may_be_lost(
    row: float, draft: float, length: int
) -> None:
    one, costs = setting(row, draft)
    assert bearable(one, 12, 3.0, costs, Others()) == length


@given(st.floats(0, 0.01), st.floats(0, 0.01), st.integers(1, 12), st.floats(0, 9))
def test_stakes_fall_with_what_is_left(row: float, draft: float, wanted: int, left: float) -> None:
    one, costs = setting(row, draft)
    length = bearable(one, wanted, left, costs, Others())
    assert 1 <= length <= wanted
    assert bearable(one, wanted, left / 2, costs, Others()) <= length
    assert length == 1 or lost(one, length, costs) <= left / 4


def test_luck_that_turns_finds_something_left() -> None:
    """Twelve wrong drafts in a row, with a head that costs a tenth of a step for each guess."""
    one, costs = setting(0.0005, 0.001)
    left, made = 2.0, []
    while left > 0 and len(made) < 12:
        made.append(bearable(one, 8, left, costs, Others()))
        left -= lost(one, made[-1], costs)
    assert made[0] == 3
    assert len(made) == 12 or made[-1] == 1
    assert len(made) >= 9  # with drafts as long as the first: four
