"""Every pair of real drafters, changed in the midst of requests: exact, caught up, booked apart."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from outpace.config import NgramConfig, PredictionConfig, SuffixConfig
from outpace.engine.sequence import Sequence as EngineSequence
from outpace.model.runner import ModelRunner
from outpace.prove.changing import ChangingController
from outpace.record.taken import take_row
from outpace.request import Request, SamplingParams
from outpace.spec.drafter import Drafter
from outpace.spec.drafters.best_of import BestOfDrafter
from outpace.spec.drafters.early_exit import EarlyExitDrafter
from outpace.spec.drafters.first_of import FirstOfDrafter
from outpace.spec.drafters.model import ModelDrafter
from outpace.spec.drafters.ngram import NgramDrafter
from outpace.spec.drafters.prediction import PredictionDrafter
from outpace.spec.drafters.suffix import SuffixDrafter

from engines import VOCAB, make_engine, make_runner, run, same_for_all, tokens_of
from tiny_heads import eagle_drafter, medusa_drafter, medusa_tensors, write_eagle, write_head

NAMES = (
    "ngram", "suffix", "prediction", "eagle", "medusa", "model", "early_exit",
    "ngram+eagle", "ngram|model",
)  # fmt: skip
PROMPTS = [tuple((5 * i + 3 * j) % 17 for j in range(20 + 7 * i)) for i in range(3)]


def drafters(target: ModelRunner, folder: Path) -> dict[str, Drafter]:
    write_head(
        folder / "medusa",
        {"medusa_num_heads": 3, "medusa_num_layers": 1},
        medusa_tensors(),
        "medusa_lm_head",
    )
    ngram = NgramDrafter(NgramConfig(min_ngram=1))
    eagle = eagle_drafter(write_eagle(folder / "eagle"), target)
    relative = make_runner(noise=0.02, num_slots=target.pool.num_slots)
    model = ModelDrafter(relative, 16, VOCAB)
    part = ModelRunner(target.decoder, target.pool, (0, 1))
    return {
        "ngram": ngram,
        "suffix": SuffixDrafter(SuffixConfig(min_match=1, min_probability=0.0)),
        "prediction": PredictionDrafter(PredictionConfig(min_match=1), PROMPTS[2]),
        "eagle": eagle,
        "medusa": medusa_drafter(folder / "medusa", target),
        "model": model,
        "early_exit": EarlyExitDrafter(part, 16),
        "ngram+eagle": FirstOfDrafter([ngram, eagle]),
        "ngram|model": BestOfDrafter([ngram, model]),
    }


def requests(temperature: float, seed: int | None = 3) -> list[Request]:
    params = SamplingParams(temperature=temperature, seed=seed, max_tokens=36, ignore_eos=True)
    return [Request(f"r{i}", prompt, params) for i, prompt in enumerate(PROMPTS)]


@pytest.fixture(scope="module")
def plain() -> dict[float, list[list[list[int]]]]:
    engine = make_engine(make_runner())
    return {heat: tokens_of(run(engine, requests(heat))) for heat in (0.0, 0.7)}


def books_are_apart(sequence: EngineSequence) -> None:
    parts = sequence.counts_by_drafter().values()
    whole = sequence.counts
    for name in ("emitted", "target_steps", "drafted", "accepted", "rejections", "asked"):
        assert sum(getattr(one, name) for one in parts) == getattr(whole, name)
    for name in ("accepted_at", "rejected_at", "off_reasons", "drafted_by"):
        added = sum((getattr(one, name) for one in parts), type(whole.off_reasons)())
        assert added == +getattr(whole, name)


@pytest.mark.parametrize("pair", list(combinations(NAMES, 2)), ids="<->".join)
def test_no_change_changes_a_token(
    pair: tuple[str, str], plain: dict[float, list[list[list[int]]]], tmp_path: Path
) -> None:
    target = make_runner()
    named = drafters(target, tmp_path)
    named = {name: named[name] for name in pair}
    for heat, steps, cache in ((0.0, 1, 2048), (0.7, 3, 160)):
        controller = ChangingController(4, steps)
        menu = same_for_all(pair)
        engine = make_engine(target, named, controller, cache_tokens=cache, menu=menu)
        groups = run(engine, requests(heat))
        assert tokens_of(groups) == plain[heat]
        assert (engine.scheduler.num_preemptions > 0) == (cache < 2048)
        for [sequence] in groups:
            books_are_apart(sequence)
            assert set(sequence.counts_by_drafter()) <= set(pair)
            assert [one.reason for one in sequence.drafter_choices][:2] == ["turn 0", "turn 1"]


def test_who_listened_can_draft_at_once(tmp_path: Path) -> None:
    """A head that is come to late, and a model whose cache is behind, draft in their first step."""
    target = make_runner()
    named = drafters(target, tmp_path)
    for late in ("eagle", "medusa", "model", "early_exit"):
        names = ("ngram", late)
        engine = make_engine(
            target,
            {name: named[name] for name in names},
            ChangingController(4, 9),
            menu=same_for_all(names),
        )
        [[sequence]] = run(engine, requests(0.0)[:1])
        reasons = sequence.counts.off_reasons
        assert not any("not seen" in one or "not computed" in one for one in reasons)
        assert sequence.counts_by_drafter()[late].drafted > 0


def test_a_head_drafts_the_same_whoever_drafted_before(tmp_path: Path) -> None:
    """With all it would know had it drafted from the beginning."""
    drafted = []
    for steps in (1, 10_000):  # in turn with nobody, or alone
        target = make_runner()
        eagle = eagle_drafter(write_eagle(tmp_path / str(steps)), target)
        names = ("none", "eagle") if steps == 1 else ("eagle",)
        trees: dict[int, tuple[int, ...]] = {}
        propose = eagle.propose

        def kept(asks, propose=propose, trees=trees):  # type: ignore[no-untyped-def]
            found = propose(asks)
            for one, tree in zip(asks, found, strict=True):
                trees[len(one.token_ids)] = tree.tokens
            return found

        eagle.propose = kept  # type: ignore[method-assign]
        run(
            make_engine(
                target, {"eagle": eagle}, ChangingController(4, 1), menu=same_for_all(names)
            ),
            requests(0.0)[:1],
        )
        drafted.append(trees)
    common = set(drafted[0]) & set(drafted[1])
    assert len(common) > 8
    assert all(drafted[0][at] == drafted[1][at] for at in common)


def test_a_record_has_each_drafter_with_its_own_counts(tmp_path: Path) -> None:
    target = make_runner()
    named = drafters(target, tmp_path)
    names = ("model", "ngram")
    controller = ChangingController(4, 4)
    engine = make_engine(
        target, {name: named[name] for name in names}, controller, menu=same_for_all(names)
    )
    [request] = requests(0.0)[:1]
    [sequences] = run(engine, [request])
    row = take_row(request, sequences, controller, "m", "bit-exact")
    assert {one.drafter for one in row.drafts} == set(names)
    assert sum(one.steps for one in row.drafts) == sequences[0].counts.target_steps
    assert sum(one.emitted for one in row.drafts) == row.completion_tokens
    assert sum(one.drafted for one in row.drafts) == sequences[0].counts.drafted
    assert row.decisions[0].reason == "turn 0"
    assert row.decisions[1].at_token > row.decisions[0].at_token
    assert row.drafter == row.decisions[-1].drafter == sequences[0].drafter
