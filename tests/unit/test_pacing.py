"""A controller that is asked once in several steps knows and says what it would otherwise."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.control.automatic import AutomaticController
from outpace.control.controller import (
    LONGEST_HOLD,
    Budget,
    Candidate,
    FixedController,
    Hold,
    Outcome,
    StepRecord,
)
from outpace.control.cost import CostTable
from outpace.control.pacing import Pacing
from outpace.control.routed import RoutedController
from outpace.control.router import Router

STEPS = CostTable({1: 0.01, 2: 0.0105, 16: 0.018})


class Scribe:
    """Says how long its budgets hold, and writes down what it is asked and told."""

    def __init__(self, holds: int, tokens: int = 2) -> None:
        self.hold = Hold(holds)
        self.tokens = tokens
        self.heard: list[object] = []
        self.asked: list[list[int]] = []

    def budgets(self, candidates: Sequence[Candidate]) -> list[Budget]:
        self.asked.append([one.seq_id for one in candidates])
        return [
            Budget(most, by_source={"drafter": most})
            for most in (min(self.tokens, one.room) for one in candidates)
        ]

    def record(self, step: StepRecord) -> None:
        self.heard.append(step)

    def forget(self, seq_id: int) -> None:
        self.heard.append(seq_id)


def candidates(ids: Sequence[int], room: int = 999) -> list[Candidate]:
    return [Candidate(one, "drafter", room, None) for one in ids]


def step(number: int) -> StepRecord:
    return StepRecord(1, float(number), {}, ())


@given(holds=st.integers(0, 20), steps=st.integers(1, 60), ends=st.integers(0, 60))
def test_a_controller_hears_everything_in_order_and_is_asked_when_its_word_is_over(
    holds: int, steps: int, ends: int
) -> None:
    scribe = Scribe(holds)
    pacing = Pacing(scribe)
    expected: list[object] = []
    questions = left = 0
    for number in range(steps):
        questions, left = (questions, left - 1) if left else (questions + 1, holds)
        pacing.budgets([7], [999], lambda: candidates([7]))
        pacing.record(step(number))
        expected.append(step(number))
        if number == ends:
            pacing.forget(5)
            expected.append(5)
            assert scribe.heard == expected
            left = 0  # whoever ends makes it another step
    assert len(scribe.asked) == questions
    pacing.forget(7)
    assert scribe.heard == [*expected, 7]


def test_other_sequences_are_asked_about_at_once() -> None:
    scribe = Scribe(10)
    pacing = Pacing(scribe)
    for whose in ([1], [1, 2], [2], [2, 1], [2, 1]):
        budgets, _ = pacing.budgets(
            whose, [999] * len(whose), lambda whose=whose: candidates(whose)
        )  # type: ignore[misc]
        assert len(budgets) == len(whose)
    assert scribe.asked == [[1], [1, 2], [2], [2, 1]]


@given(room=st.integers(0, 80), tokens=st.integers(0, 8), holds=st.integers(0, 40))
def test_no_budget_is_held_beyond_the_room_that_is_left(room: int, tokens: int, holds: int) -> None:
    """Even if every guess of every step is right."""
    pacing = Pacing(Scribe(holds, tokens))
    while room >= 0:
        now = room
        [budget], _ = pacing.budgets([1], [now], lambda now=now: candidates([1], now))  # type: ignore[misc]
        assert budget.tokens <= room
        assert budget.tokens == min(tokens, room)
        assert all(one <= room for one in budget.by_source.values())
        room -= budget.tokens + 1


def test_a_fixed_length_is_asked_for_seldom() -> None:
    pacing = Pacing(FixedController(3))
    fresh = [
        pacing.budgets([1], [999], lambda: candidates([1]))[1] for _ in range(2 * LONGEST_HOLD)
    ]
    assert sum(fresh) == 2


def held(acceptance: int, steps: int = 60) -> tuple[list[int], list[bool], AutomaticController]:
    """Lengths, and in which steps they were decided on, where so many guesses are right."""
    controller = AutomaticController(STEPS)
    pacing, lengths, fresh, context = Pacing(controller), [], [], 2
    for _ in range(steps):
        candidate = Candidate(0, "drafter", 9999, None, context)
        [budget], decided = pacing.budgets([0], [9999], lambda one=candidate: [one])  # type: ignore[misc]
        k = budget.tokens
        right = min(k, acceptance)
        outcome = Outcome(0, "drafter", k, right, right < k, k, 1 + right, context)
        pacing.record(StepRecord(1 + k, STEPS(1 + k), {"drafter": 1e-4}, (outcome,), 1e-4))
        context += 1 + right
        lengths.append(k)
        fresh.append(decided)
    pacing.forget(0)
    return lengths, fresh, controller


@pytest.mark.parametrize("acceptance", [2, 15])
def test_what_pays_is_decided_on_now_and_then(acceptance: int) -> None:
    lengths, fresh, _ = held(acceptance)
    assert min(lengths) > 0
    assert fresh[:2] == [True] * 2  # little is known of it yet
    assert sum(fresh[20:]) <= 7


def test_a_draft_that_is_never_right_is_looked_at_each_time() -> None:
    lengths, fresh, _ = held(0)
    drafted = [i for i, one in enumerate(lengths) if one]
    assert all(fresh[i] and fresh[i + 1] for i in drafted)  # held over none of them
    silent = [fresh[i] for i, one in enumerate(lengths) if not one]
    assert sum(silent) < len(silent) / 2


def test_held_steps_count_as_silent_ones() -> None:
    """Tries come after as many steps as if each had been decided on."""
    lengths, _, _ = held(0)
    tries = [i for i, one in enumerate(lengths) if one]
    controller = AutomaticController(STEPS)
    each, context = [], 2
    for number in range(60):
        [budget] = controller.budgets([Candidate(0, "drafter", 9999, None, context)])
        k = budget.tokens
        outcome = Outcome(0, "drafter", k, 0, k > 0, k, 1, context)
        controller.record(StepRecord(1 + k, STEPS(1 + k), {"drafter": 1e-4}, (outcome,), 1e-4))
        context += 1
        each += [number] if k else []
    assert tries == each


def test_a_draft_that_is_news_ends_the_hold() -> None:
    scribe = Scribe(10)
    scribe.hold = Hold(10, frozenset({(2, "drafter")}))
    pacing = Pacing(scribe)
    drafts = [(0, 0), (2, 0), (0, 0), (0, 2), (0, 0)]  # of both sequences, step by step
    for first, second in drafts:
        pacing.budgets([1, 2], [999] * 2, lambda: candidates([1, 2]))
        outcomes = (
            Outcome(1, "both", first, 0, first > 0, source="drafter"),
            Outcome(2, "drafter", second, 0, second > 0),
        )
        pacing.record(StepRecord(2, 0.0, {}, outcomes))
    assert len(scribe.asked) == 2
    assert len(scribe.heard) == 4


def test_whoever_explores_is_looked_at_in_each_step() -> None:
    inner = AutomaticController(STEPS)
    router = Router(exploration=1.0)
    routed = RoutedController(inner, router, {name: (name,) for name in ("a", "b")})
    holds: dict[bool, list[int]] = {True: [], False: []}
    for seq_id in range(40):
        pacing, room = Pacing(routed), 48
        while room >= 0:
            one = Candidate(seq_id, "a", room, None, 100 - room, choices=("a", "b"))
            [budget], fresh = pacing.budgets([seq_id], [room], lambda one=one: [one])  # type: ignore[misc]
            decision = routed.decision(seq_id)
            assert decision is not None
            if fresh:
                holds[decision.explored].append(routed.hold.steps)
            k = budget.tokens
            right = min(k, 1)
            outcome = Outcome(seq_id, budget.drafter, k, right, right < k, k, 1 + right, 100 - room)
            pacing.record(StepRecord(1 + k, STEPS(1 + k), {}, (outcome,), 1e-4))
            room -= 1 + right
        pacing.forget(seq_id)
    assert len(holds[True]) > 5  # it does explore
    assert max(holds[True]) == 0
    assert max(holds[False]) > 0
