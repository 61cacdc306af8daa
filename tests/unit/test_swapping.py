"""A drafter is replaced while sequences run: tokens stay, the old one ends with its last user."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest

from outpace.control.anew import begin_anew
from outpace.control.automatic import AutomaticController
from outpace.control.cost import CostTable
from outpace.control.routed import RoutedController
from outpace.control.router import Router
from outpace.errors import DraftError
from outpace.request import Request, SamplingParams
from swaps import run_swapping, steps

from engines import VOCAB, PeekDrafter, make_engine, make_runner, run, tokens_of
from tiny_heads import eagle_drafter, eagle_tensors, write_eagle

PROMPTS = [tuple((7 * i + j) % VOCAB for j in range(5 + 9 * i)) for i in range(6)]


def requests(first: int = 0) -> list[Request]:
    return [
        Request(
            f"r{first + i}",
            prompt,
            SamplingParams(temperature=0.8, seed=5, max_tokens=20 + 5 * i, ignore_eos=True),
        )
        for i, prompt in enumerate(PROMPTS)
    ]


@pytest.fixture(scope="module")
def plain() -> list[list[list[int]]]:
    return tokens_of(run(make_engine(make_runner()), requests()))


def peek(plain: list[list[list[int]]], seed: int, **options: object) -> PeekDrafter:
    answers = {prompt: group[0] for prompt, group in zip(PROMPTS, plain, strict=True)}
    return PeekDrafter(answers, seed=seed, name="eagle", **options)  # type: ignore[arg-type]


def test_who_has_begun_finishes_with_the_old_one(plain: list[list[list[int]]]) -> None:
    old, new = peek(plain, 1), peek(plain, 2)
    engine = make_engine(make_runner(), {"eagle": old})
    before = [engine.add(request) for request in requests()]
    steps(engine, 3)
    kept = engine.drafting.replace({"eagle": new}, engine.scheduler.running)
    assert set(kept) == set(old.seen)
    assert engine.drafting.num_former == len(PROMPTS)
    after = [engine.add(request) for request in requests(100)]
    steps(engine, 2)
    assert not set(new.seen) & set(kept)
    assert set(new.seen) == {group[0].seq_id for group in after}
    run(engine, [])
    assert tokens_of(before) == tokens_of(after) == plain
    assert not old.seen
    assert not new.seen
    assert engine.drafting.num_former == 0


@pytest.mark.parametrize("cache_tokens", [2048, 288])
def test_heads_change_places_in_the_middle(
    tmp_path: Path, plain: list[list[list[int]]], cache_tokens: int
) -> None:
    """Again and again, in one batch, also where sequences lose their blocks."""
    runner = make_runner()
    folders = [
        write_eagle(tmp_path / str(seed), eagle_tensors(seed=seed, scale=0.3)) for seed in (0, 1)
    ]
    engine = make_engine(
        runner, {"eagle": eagle_drafter(folders[0], runner)}, cache_tokens=cache_tokens
    )
    groups, former = run_swapping(
        engine,
        [*requests(), *requests(100)],
        lambda swap: {"eagle": eagle_drafter(folders[swap % 2], runner)},
    )
    assert tokens_of(groups) == plain * 2
    assert sum(group[0].counts.drafted for group in groups) > 100
    assert len(former) > 3
    assert (engine.scheduler.num_preemptions > 0) == (cache_tokens == 288)
    gc.collect()
    assert not any(reference() for reference in former)  # all memory of the old ones is free


def test_the_old_one_is_kept_for_its_users_alone(plain: list[list[list[int]]]) -> None:
    old = peek(plain, 1)
    engine = make_engine(make_runner(), {"eagle": old})
    [group] = [engine.add(request) for request in requests()[:1]]
    steps(engine, 2)
    engine.drafting.replace({"eagle": peek(plain, 2)}, engine.scheduler.running)
    reference = weakref.ref(old)
    del old
    gc.collect()
    assert reference() is not None
    engine.abort(group[0].request.request_id)
    gc.collect()
    assert reference() is None


def test_what_does_not_fit_changes_nothing(plain: list[list[list[int]]]) -> None:
    old, listening = peek(plain, 1), peek(plain, 3, taps=(1,))
    listening.name = "head"
    engine = make_engine(make_runner(), {"eagle": old, "head": listening})
    groups = [engine.add(request) for request in requests()]
    steps(engine, 2)
    other_layers = peek(plain, 2, taps=(2,))
    other_layers.name = "head"
    for name, new in (
        ("nobody", peek(plain, 2)),
        ("eagle", peek(plain, 2, taps=())),
        ("eagle", listening),
    ):
        with pytest.raises(DraftError, match="nothing of this kind"):
            engine.drafting.replace({name: new}, engine.scheduler.running)
    # Nobody uses the head, so that other layers may be listened to; then somebody does.
    assert engine.drafting.replace({"head": other_layers}, engine.scheduler.running) == []
    assert engine.drafting.taps == (2,)
    head_user = Request("user", PROMPTS[0], SamplingParams(max_tokens=30), drafter="head")
    engine.add(head_user)
    steps(engine, 1)
    with pytest.raises(DraftError, match="after layers"):
        engine.drafting.replace({"head": listening}, engine.scheduler.running)
    assert engine.drafting.taps == (2,)
    assert engine.drafting.num_former == 0
    run(engine, [])
    assert tokens_of(groups) == plain


def test_what_was_learned_of_it_is_forgotten() -> None:
    inner = AutomaticController(CostTable({1: 0.01, 64: 0.011}))
    for _ in range(200):
        inner.history.record("chat", "eagle", 0, True)
        inner.history.record("chat", "ngram", 3, True)
    before = inner.history.curve("chat", "ngram", 3)
    assert inner.history.curve("chat", "eagle", 1)[0].mean < 0.05
    begin_anew(RoutedController(inner, Router(), {}), ["eagle"])
    assert inner.history.trials("chat", "eagle") == 0
    assert inner.history.curve("chat", "eagle", 1)[0].mean > 0.5
    assert inner.history.curve("chat", "ngram", 3) == before
