"""A drafter is replaced under a router: who has begun goes on to choose among the former ones."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest

from outpace.config import NgramConfig
from outpace.prove.changing import ChangingController
from outpace.request import Request, SamplingParams
from outpace.spec.drafter import Drafter
from outpace.spec.drafters.first_of import FirstOfDrafter
from outpace.spec.drafters.ngram import NgramDrafter
from swaps import run_swapping, steps

from engines import PeekDrafter, make_engine, make_runner, run, same_for_all, tokens_of
from tiny_heads import eagle_drafter, eagle_tensors, write_eagle

PROMPTS = [tuple((5 * i + 3 * j) % 17 for j in range(20 + 7 * i)) for i in range(4)]
NAMES = ("ngram", "eagle", "none", "ngram+eagle")


def requests(first: int = 0) -> list[Request]:
    params = SamplingParams(temperature=0.7, seed=3, max_tokens=40, ignore_eos=True)
    return [Request(f"r{first + i}", prompt, params) for i, prompt in enumerate(PROMPTS)]


@pytest.fixture(scope="module")
def plain() -> list[list[list[int]]]:
    return tokens_of(run(make_engine(make_runner()), requests()))


def peek(plain: list[list[list[int]]], seed: int) -> PeekDrafter:
    answers = {prompt: group[0] for prompt, group in zip(PROMPTS, plain, strict=True)}
    return PeekDrafter(answers, seed=seed, name="eagle")


def with_head(ngram: NgramDrafter, head: Drafter) -> dict[str, Drafter]:
    return {"eagle": head, "ngram+eagle": FirstOfDrafter([ngram, head])}


def test_choices_are_of_one_generation(plain: list[list[list[int]]]) -> None:
    ngram, old, new = NgramDrafter(NgramConfig(min_ngram=1)), peek(plain, 1), peek(plain, 2)
    engine = make_engine(
        make_runner(),
        {"ngram": ngram, **with_head(ngram, old)},
        ChangingController(4, 1),
        menu=same_for_all(NAMES),
    )
    before = [engine.add(request) for request in requests()]
    steps(engine, 3)
    kept = engine.drafting.replace(with_head(ngram, new), engine.scheduler.running)
    assert set(kept) == {group[0].seq_id for group in before}
    after = [engine.add(request) for request in requests(100)]
    steps(engine, 6)  # every one of them has had every drafter meanwhile
    assert set(old.seen) == set(kept)  # and hears of its own alone, whoever drafts
    assert set(new.seen) == {group[0].seq_id for group in after}
    assert engine.drafting.current.drafters["ngram"] is ngram
    run(engine, [])
    assert tokens_of(before) == tokens_of(after) == plain
    for [sequence] in before + after:
        assert sequence.counts_by_drafter()["eagle"].accepted > 0
    assert not old.seen
    assert not new.seen
    assert engine.drafting.num_former == 0


def test_who_may_not_have_it_has_the_new_generation_at_once(plain: list[list[list[int]]]) -> None:
    """Their drafters are the same ones, and nothing old is held for them."""
    ngram, old = NgramDrafter(NgramConfig(min_ngram=1)), peek(plain, 1)
    engine = make_engine(
        make_runner(),
        {"ngram": ngram, **with_head(ngram, old)},
        ChangingController(4, 1),
        menu=same_for_all(["ngram"]),
    )
    groups = [engine.add(request) for request in requests()]
    steps(engine, 3)
    reference = weakref.ref(old)
    del old
    changed = with_head(ngram, peek(plain, 2))
    assert engine.drafting.replace(changed, engine.scheduler.running) == []
    gc.collect()
    assert reference() is None
    run(engine, [])
    assert tokens_of(groups) == plain


def test_a_former_generation_holds_what_its_users_may_have(plain: list[list[list[int]]]) -> None:
    ngram, old, unused = NgramDrafter(NgramConfig(min_ngram=1)), peek(plain, 1), peek(plain, 3)
    unused.name = "medusa"
    names = ("ngram", "eagle")
    engine = make_engine(
        make_runner(),
        {"ngram": ngram, "eagle": old, "medusa": unused},
        ChangingController(4, 1),
        menu=same_for_all(names),
    )
    groups = [engine.add(request) for request in requests()]
    steps(engine, 3)
    engine.drafting.replace({"eagle": peek(plain, 2)}, engine.scheduler.running)
    reference = weakref.ref(unused)
    del unused
    other = peek(plain, 4)
    other.name = "medusa"
    assert engine.drafting.replace({"medusa": other}, engine.scheduler.running) == []
    gc.collect()
    assert reference() is None
    run(engine, [])
    assert tokens_of(groups) == plain


@pytest.mark.parametrize("cache_tokens", [2048, 192])
def test_heads_change_places_under_changing_choices(
    tmp_path: Path, plain: list[list[list[int]]], cache_tokens: int
) -> None:
    """Again and again, in one batch, also where sequences lose their blocks."""
    runner = make_runner()
    folders = [
        write_eagle(tmp_path / str(seed), eagle_tensors(seed=seed, scale=0.3)) for seed in (0, 1)
    ]
    ngram = NgramDrafter(NgramConfig(min_ngram=1))
    engine = make_engine(
        runner,
        {"ngram": ngram, **with_head(ngram, eagle_drafter(folders[0], runner))},
        ChangingController(4, 2),
        cache_tokens=cache_tokens,
        menu=same_for_all(NAMES),
    )
    groups, former = run_swapping(
        engine,
        [*requests(), *requests(100)],
        lambda swap: with_head(ngram, eagle_drafter(folders[swap % 2], runner)),
    )
    assert tokens_of(groups) == plain * 2
    drafted = [group[0].counts_by_drafter()["eagle"].drafted for group in groups]
    assert sum(drafted) > 50
    assert len(former) > 3
    assert (engine.scheduler.num_preemptions > 0) == (cache_tokens == 192)
    gc.collect()
    assert not any(reference() for reference in former)
