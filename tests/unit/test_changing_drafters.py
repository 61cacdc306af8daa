"""A controller may give a sequence another drafter in the middle of it; no token changes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import pytest

from outpace.control.automatic import AutomaticController
from outpace.control.controller import Budget, Candidate, Hold, StepRecord
from outpace.control.cost import CostTable
from outpace.control.routed import RoutedController
from outpace.control.router import Router
from outpace.request import Request, SamplingParams

from engines import VOCAB, PeekDrafter, make_engine, make_runner, run, same_for_all, tokens_of

PROMPTS = [tuple((7 * i + j) % VOCAB for j in range(12 + i)) for i in range(3)]


class Restless:
    """Gives every sequence another of its choices in each step."""

    hold = Hold()

    def __init__(self) -> None:
        self._turns = cycle(range(97))
        self.offered: set[tuple[str, ...]] = set()
        self.types: set[str] = set()

    def budgets(self, candidates: Sequence[Candidate]) -> list[Budget]:
        budgets = []
        for one in candidates:
            self.offered.add(one.choices)
            self.types.add(one.request_type)
            name = one.choices[next(self._turns) % len(one.choices)] if one.choices else ""
            budgets.append(Budget(max(0, min(4, one.room)), drafter=name))
        return budgets

    def record(self, step: StepRecord) -> None: ...

    def forget(self, seq_id: int) -> None: ...


def requests(drafter: str | None = None) -> list[Request]:
    params = SamplingParams(temperature=0.8, seed=5, max_tokens=40, ignore_eos=True)
    return [
        Request(f"r{i}", prompt, params, drafter=drafter, request_type=f"type-{i}")
        for i, prompt in enumerate(PROMPTS)
    ]


@pytest.fixture(scope="module")
def plain() -> list[list[list[int]]]:
    return tokens_of(run(make_engine(make_runner()), requests("none")))


def drafters(plain: list[list[list[int]]]) -> dict[str, PeekDrafter]:
    answers = {prompt: group[0] for prompt, group in zip(PROMPTS, plain, strict=True)}
    return {
        "head": PeekDrafter(answers, seed=3, name="head", taps=()),
        "a": PeekDrafter(answers, seed=1, name="a"),
        "b": PeekDrafter(answers, seed=2, name="b"),
    }


def test_tokens_do_not_change_and_books_are_kept(plain: list[list[list[int]]]) -> None:
    controller, named = Restless(), drafters(plain)
    menu = same_for_all(["none", *named])
    groups = run(make_engine(make_runner(), named, controller, menu=menu), requests())
    assert tokens_of(groups) == plain
    assert sum(group[0].counts.accepted for group in groups) > 20
    assert not any(drafter.seen for drafter in named.values())  # all were told to forget
    assert controller.offered == {("none", "head", "a", "b")}
    assert controller.types == {"type-0", "type-1", "type-2"}


def test_who_chose_a_drafter_keeps_it(plain: list[list[list[int]]]) -> None:
    controller = Restless()
    named = drafters(plain)
    menu = same_for_all(["none", *named])
    groups = run(make_engine(make_runner(), named, controller, menu=menu), requests("a"))
    assert tokens_of(groups) == plain
    assert controller.offered == {()}
    assert {group[0].drafter for group in groups} == {"a"}


def test_a_routed_engine_is_exact(plain: list[list[list[int]]]) -> None:
    inner = AutomaticController(CostTable({1: 0.01, 64: 0.011}))
    sources = {"none": (), "a": ("a",), "b": ("b",)}
    controller = RoutedController(inner, Router(), sources)
    named = {name: one for name, one in drafters(plain).items() if name != "head"}
    menu = same_for_all(sources)
    groups = run(make_engine(make_runner(), named, controller, menu=menu), requests())
    assert tokens_of(groups) == plain
    assert {one.request_type for one in controller.log} <= {"type-0", "type-1", "type-2"}
    assert all(controller.decision(group[0].seq_id) is None for group in groups)  # forgotten
