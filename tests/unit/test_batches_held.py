"""What holding and trying cost a batch, through the controller."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from outpace.control.automatic import AutomaticController
from outpace.control.controller import Candidate, Outcome, StepRecord
from outpace.control.cost import CostTable
from outpace.control.pacing import Pacing

DEAR = CostTable({rows: 0.002 + 0.008 * rows for rows in range(1, 65)})
CHEAP = CostTable({1: 0.01, 64: 0.02})


def serve(
    controller: AutomaticController,
    many: int,
    steps: int,
    right: Callable[[int], int],
    table: CostTable,
) -> list[list[int]]:
    """Lengths of all sequences by step, of whose guesses so many are right in each."""
    pacing, done = Pacing(controller), [0] * many
    lengths = []
    for step in range(steps):
        asked = [Candidate(i, "lookup", 9999, None, 10 + done[i]) for i in range(many)]
        budgets, _ = pacing.budgets(range(many), [9999] * many, lambda asked=asked: asked)  # type: ignore[misc]
        outcomes = []
        for i, budget in enumerate(budgets):
            k = budget.tokens
            good = min(k, right(step))
            outcomes.append(Outcome(i, "lookup", k, good, good < k, k, good + 1, 10 + done[i]))
            done[i] += good + 1
        rows = many + sum(one.drafted for one in outcomes)
        record = StepRecord(rows, table(rows), {"lookup": 1e-5}, tuple(outcomes), 1e-4)
        pacing.record(record)
        lengths.append([budget.tokens for budget in budgets])
    pacing.tell()
    return lengths


def left(controller: AutomaticController, many: int) -> float:
    return min(controller._sequences[i].may_lose for i in range(many))


@pytest.mark.parametrize("many", [1, 2, 4])
def test_silent_sequences_of_a_batch_try_as_seldom_as_one_alone(many: int) -> None:
    """Nine of ten guesses are wrong, and a row costs nearly a step."""
    controller = AutomaticController(DEAR)
    for i in range(200):
        controller.history.record("other", "lookup", int(i % 10 == 0), i % 10 != 0)
    lengths = serve(controller, many, 40, lambda step: 0, DEAR)
    assert sum(map(sum, lengths)) <= 3 * many
    assert left(controller, many) > 1.0


@pytest.mark.parametrize("many", [1, 2, 4, 8])
def test_a_batch_that_is_suddenly_wrong_is_not_held_to_its_budgets(many: int) -> None:
    controller = AutomaticController(CHEAP)
    lengths = serve(controller, many, 80, lambda step: 15 if step < 30 else 0, CHEAP)
    assert min(map(min, lengths[20:30])) > 8  # long drafts before
    wrong = CHEAP(16 * many) / CHEAP(many) - 1  # what a step loses
    assert left(controller, many) > -wrong  # it ends with the first that it cannot afford


def test_a_newcomer_is_not_charged_with_the_silence_of_others() -> None:
    controller = AutomaticController(DEAR)
    for i in range(200):
        controller.history.record("other", "lookup", int(i % 10 == 0), i % 10 != 0)
    serve(controller, 1, 9, lambda step: 0, DEAR)
    controller.budgets([Candidate(i, "lookup", 99, None, 10) for i in range(2)])
    assert controller._sequences[1].source("lookup").quiet <= 1


def test_a_budget_that_was_cut_is_learned_as_what_it_was() -> None:
    """A drafter that takes a millisecond a guess, to the end of the room."""
    controller = AutomaticController(CHEAP)
    pacing, room, context = Pacing(controller), 200, 10
    while room > 0:
        one = Candidate(0, "head", room, None, context)
        [budget], _ = pacing.budgets([0], [room], lambda one=one: [one])  # type: ignore[misc]
        k = budget.tokens
        outcome = Outcome(0, "head", k, k, False, k, k + 1, context)
        pacing.record(StepRecord(1 + k, CHEAP(1 + k), {"head": 1e-3 * k}, (outcome,), 1e-4))
        room, context = room - k - 1, context + k + 1
    pacing.tell()
    line = controller.costs.draft("head").line
    assert line.at(15) == pytest.approx(0.015, rel=0.02)
