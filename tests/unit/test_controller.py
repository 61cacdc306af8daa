from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from outpace.control.automatic import AutomaticController
from outpace.control.controller import (
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
        controller.record(StepRecord(None, 1.0, {}, (outcome,)))
    return budget


def test_where_rows_are_free_and_drafts_right_it_drafts_much() -> None:
    assert played(FLAT, accepted=100, rejected=False).tokens >= 10


def test_where_rows_cost_a_step_it_stops() -> None:
    budget = played(STEEP, accepted=0, rejected=True)
    assert budget.tokens == 0
    assert "drafting" in budget.reason


def tries(costs: dict[int, float], steps: int) -> tuple[list[int], Budget]:
    """The steps in which something was drafted, of which nothing was ever accepted."""
    controller = AutomaticController(CostTable(costs))
    drafted = []
    budget = Budget(0)
    for step in range(steps):
        [budget] = controller.budgets([candidate()])
        if budget.tokens:
            drafted.append(step)
        outcome = Outcome(1, "ngram", budget.tokens, 0, budget.tokens > 0, budget.tokens)
        rows = 1 + budget.tokens
        controller.record(StepRecord(rows, CostTable(costs)(rows), {}, (outcome,)))
    return drafted, budget


def test_where_nothing_is_ever_accepted_it_stops_and_tries_again_more_and_more_rarely() -> None:
    drafted, _ = tries({1: 1.0, 2: 1.5, 16: 2.5}, 600)
    gaps = [b - a for a, b in zip(drafted[-4:], drafted[-3:], strict=False)]
    assert len(drafted) < 20
    assert gaps == sorted(gaps)
    assert gaps[-1] > 60


def test_cheap_tries_come_more_often() -> None:
    dear, _ = tries({1: 1.0, 2: 1.5, 16: 2.5}, 600)
    cheap, _ = tries({1: 1.0, 2: 1.02, 16: 1.3}, 600)
    assert len(cheap) > 5 * len(dear)


def test_what_cannot_pay_is_not_even_tried() -> None:
    drafted, budget = tries(STEEP, 300)
    assert drafted == []
    assert budget.tokens == 0
    assert budget.reason


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
