"""What drafts cost is booked to whoever made them, also where several are asked in a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from outpace.control.automatic import AutomaticController
from outpace.control.controller import Candidate, FixedController
from outpace.control.cost import CostTable
from outpace.control.draft_cost import DraftCost, Wanted
from outpace.request import Request, SamplingParams
from outpace.spec import drafter as drafters
from outpace.spec.drafter import Ask, Seen
from outpace.spec.drafters.first_of import FirstOfDrafter
from outpace.spec.tree import DraftTree

from engines import make_engine, make_runner, run


@dataclass
class Clock:
    """Stands still unless somebody works."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Worker:
    """Takes its time, and guesses the same token each time or nothing."""

    name: str
    clock: Clock
    each: float
    talks: bool
    taps: tuple[int, ...] | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.name,)

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        self.clock.now += self.each * sum(ask.budget for ask in asks)
        return [DraftTree.chain([7] * (ask.budget * self.talks), source=self.name) for ask in asks]

    def observe(self, seen: Sequence[Seen]) -> None: ...

    def forget(self, seq_id: int) -> None: ...


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(drafters, "perf_counter", clock)
    return clock


def test_the_second_source_of_two_is_known_though_the_first_is_asked_each_time(
    clock: Clock,
) -> None:
    quick, slow = Worker("quick", clock, 0.001, talks=False), Worker("slow", clock, 0.5, talks=True)
    drafter = FirstOfDrafter([quick, slow])
    control = AutomaticController(CostTable({1: 10.0, 16: 10.1}))
    engine = make_engine(make_runner(), {drafter.name: drafter}, control)
    run(engine, [Request("r", (1, 2, 3, 4), SamplingParams(max_tokens=24))])
    # Both are asked in each step, one after the other.
    assert control.costs.draft("quick").line.at(4) == pytest.approx(0.004, rel=0.2)
    assert control.costs.draft("slow").line.at(4) == pytest.approx(2.0, rel=0.2)


def test_who_is_asked_twice_has_taken_both(clock: Clock) -> None:
    one, other = Worker("one", clock, 0.1, talks=False), Worker("other", clock, 0.5, talks=True)
    nested = FirstOfDrafter([one, FirstOfDrafter([one, other])])
    engine = make_engine(make_runner(), {nested.name: nested}, FixedController(1))
    run(engine, [Request("r", (1, 2, 3, 4), SamplingParams(max_tokens=4))])
    assert nested.seconds_by_source == pytest.approx({"one": 0.2, "other": 0.5})


def test_a_heads_pass_for_many_is_not_a_pass_for_each() -> None:
    cost = DraftCost()
    for tokens in (1, 2, 3, 4) * 20:
        cost.record([Wanted(tokens, 1, 0)], 0.5 + 1.0 * tokens)
    one, four = cost.seconds([Wanted(3, 1, 0)]), cost.seconds([Wanted(3, 1, 0)] * 4)
    assert one == pytest.approx(3.5)
    assert one < four < 2 * one
    for _ in range(200):  # and what four take is learned when it is seen
        cost.record([Wanted(3, 1, 0)] * 4, 4.0)
    assert cost.seconds([Wanted(3, 1, 0)] * 4) == pytest.approx(4.0, rel=0.02)


def test_the_allocation_counts_passes_as_the_cost_of_drafts_does() -> None:
    control = AutomaticController(CostTable({1: 10.0, 64: 10.1}))
    for tokens in (1, 2, 3, 4) * 20:
        control.costs.draft("head").record([Wanted(tokens, 1, 0)], 1.5 * tokens)
    for _ in range(200):
        control.history.record("other", "head", 3, True)
        control.history.asked("other", "head", True)

    def lengths(sequences: int) -> list[int]:
        candidates = [
            Candidate(sequences * 100 + i, "head", 200, None, 50, ("head",))
            for i in range(sequences)
        ]
        return [budget.tokens for budget in control.budgets(candidates)]

    # Four share the passes, so each guess is cheaper than alone: never shorter drafts.
    assert np.min(lengths(4)) >= lengths(1)[0] > 0
