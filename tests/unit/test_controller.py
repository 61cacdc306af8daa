from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.control.controller import (
    AutomaticController,
    Budget,
    Candidate,
    FixedController,
    Outcome,
    StepRecord,
)
from outpace.control.cost import CostTable

FLAT = {1: 1.0, 16: 1.2}  # rows are almost free
STEEP = {1: 1.0, 16: 16.0}  # each row costs a whole step


def candidate(room: int = 100, requested: int | None = None, drafter: str = "ngram") -> Candidate:
    return Candidate(1, drafter, room, requested)


def played(costs: dict[int, float], accepted: int, rejected: bool, steps: int = 40) -> Budget:
    """The budget after many steps with the same outcome."""
    controller = AutomaticController(CostTable(costs))
    budget = Budget(0)
    for _ in range(steps):
        [budget] = controller.budgets([candidate()])
        taken = min(accepted, budget.tokens)
        lost = rejected and budget.tokens > taken
        outcome = Outcome(1, "ngram", budget.tokens, taken, lost)
        controller.record(StepRecord(None, 1.0, 0.0, (outcome,)))
    return budget


def test_where_rows_are_free_and_drafts_right_it_drafts_much() -> None:
    assert played(FLAT, accepted=100, rejected=False).tokens >= 10


def test_where_rows_cost_a_step_it_stops() -> None:
    budget = played(STEEP, accepted=0, rejected=True)
    assert budget.tokens == 0
    assert budget.reason == "drafting costs more than it brings here"


def test_where_nothing_is_ever_accepted_it_stops_and_tries_again_more_and_more_rarely() -> None:
    controller = AutomaticController(CostTable(STEEP))
    tries = []
    for step in range(400):
        [budget] = controller.budgets([candidate()])
        if budget.tokens:
            tries.append(step)
        outcome = Outcome(1, "ngram", budget.tokens, 0, budget.tokens > 0)
        controller.record(StepRecord(None, 1.0, 0.0, (outcome,)))
    gaps = [b - a for a, b in zip(tries[-4:], tries[-3:], strict=False)]
    assert len(tries) < 40
    assert gaps == sorted(gaps)
    assert gaps[-1] > 60


def test_a_larger_batch_drafts_less() -> None:
    controller = AutomaticController(CostTable({1: 1.0, 8: 1.0, 16: 2.0, 64: 8.0}))
    [alone] = controller.budgets([Candidate(0, "ngram", 50, None)])
    crowd = controller.budgets([Candidate(i, "ngram", 50, None) for i in range(16)])
    assert alone.tokens > max(budget.tokens for budget in crowd)


@given(st.integers(0, 20), st.one_of(st.none(), st.integers(0, 30)), st.integers(0, 20))
def test_limits_hold_for_every_controller(room: int, requested: int | None, k: int) -> None:
    for controller in (FixedController(k), AutomaticController(CostTable(FLAT))):
        [budget] = controller.budgets([candidate(room, requested)])
        assert 0 <= budget.tokens <= room
        if requested is not None:
            assert budget.tokens == min(requested, room)
        assert bool(budget.reason) == (budget.tokens == 0)


def test_without_a_drafter_there_is_no_budget() -> None:
    assert FixedController(4).budgets([candidate(drafter="none")]) == [Budget(0, "no drafter")]


def test_cost_between_beyond_and_corrected() -> None:
    cost = CostTable({1: 1.0, 5: 2.0, 10: 4.0})
    assert [cost(rows) for rows in (1, 3, 5, 10, 20)] == pytest.approx([1.0, 1.5, 2.0, 4.0, 8.0])
    for _ in range(200):
        cost.correct(5, 3.0)
    assert cost(5) == pytest.approx(3.0, rel=0.02)
    before = cost(10)
    cost.correct(10, 1e9)  # an interruption, not a measurement
    assert cost(10) <= before * 1.2


def test_a_warm_up_in_a_bad_moment_is_forgotten() -> None:
    """All points were ten times too dear; only steps of one row are seen afterwards."""
    cost = CostTable({1: 10.0, 8: 12.0, 16: 15.0})
    for _ in range(200):
        cost.correct(1, 1.0)
    assert cost(16) < 2.5


def test_rows_are_never_dearer_together_than_one_by_one() -> None:
    assert CostTable({1: 1.0, 4: 100.0})(4) == 4.0


def test_more_rows_never_cost_less() -> None:
    cost = CostTable({1: 1.3, 2: 1.0, 4: 1.1})
    assert cost(1) <= cost(2) <= cost(3) <= cost(4)


def test_a_cost_table_needs_a_point() -> None:
    with pytest.raises(ValueError, match="at least one"):
        CostTable({})
