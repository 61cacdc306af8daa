from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from test_drafters import ask

from outpace.cache.blocks import slots
from outpace.config import EarlyExitConfig, parse_drafter
from outpace.control.controller import FixedController
from outpace.engine.exits import measure_exits
from outpace.engine.kept_exits import Calibration
from outpace.errors import InvalidValueError
from outpace.model.runner import ModelRunner
from outpace.request import Request, SamplingParams
from outpace.spec.drafter import Seen
from outpace.spec.drafters.early_exit import EarlyExitDrafter

from engines import VOCAB, make_engine, make_runner, run, tokens_of

TEXT = [i * i % 89 for i in range(120)]
PARAMS = SamplingParams(temperature=1.0, seed=3, max_tokens=26, ignore_eos=True)


def drafter(target: ModelRunner, layers: tuple[int, ...]) -> EarlyExitDrafter:
    return EarlyExitDrafter(ModelRunner(target.decoder, target.pool, layers), 16)


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(("idle", "layers"), [((2,), (0, 1)), ((1,), (0, 2)), ((0, 2), (1,))])
@pytest.mark.parametrize("rule", ["coupled", "rejection"])
def test_layers_that_say_what_all_say_are_always_right(
    native: bool, idle: tuple[int, ...], layers: tuple[int, ...], rule: str
) -> None:
    target = make_runner(idle_layers=idle, native=native)
    engine = make_engine(
        target, {"exit": drafter(target, layers)}, FixedController(4), verification=rule
    )
    [[sequence]] = run(engine, [Request("r", (5, 6, 7), PARAMS)])
    assert sequence.counts.rejections == 0
    assert sequence.counts.accepted == sequence.counts.drafted == 20


def test_nothing_of_a_draft_remains_in_the_targets_cache() -> None:
    """Layers that are often wrong write to the cache that the target reads."""
    request = Request("r", (5, 6, 7), PARAMS)
    pools = []
    for layers in (None, (0,), (0, 2)):
        target = make_runner()
        drafters = {} if layers is None else {"exit": drafter(target, layers)}
        engine = make_engine(target, drafters, FixedController(4))
        [sequence] = engine.add(request)
        while engine.has_work:
            blocks = list(sequence.table.blocks)
            engine.step()
        assert len(sequence.tokens) == 29
        kept = torch.from_numpy(slots(blocks, 0, 28, engine.blocks.block_size))
        pools.append([layer[kept] for layer in target.pool.layers])
    for other in pools[1:]:
        assert all(torch.equal(a, b) for a, b in zip(pools[0], other, strict=True))


def test_it_waits_until_the_target_has_read_the_text() -> None:
    exits = drafter(make_runner(), (0, 1))
    [tree] = exits.propose([ask([1, 2, 3])])
    assert len(tree) == 0
    assert "has not computed" in tree.reason
    exits.observe([Seen(1, 0, (1, 2), None, None)])
    assert len(exits.propose([ask([1, 2, 3])])[0]) == 4
    exits.forget(1)
    assert len(exits.propose([ask([1, 2, 3])])[0]) == 0


def test_the_probabilities_are_those_of_the_exit() -> None:
    target = make_runner()
    exits = drafter(target, (0, 1))
    params = SamplingParams(temperature=1.0, top_k=3)
    exits.observe([Seen(1, 0, (3, 1), None, None)])
    [tree] = exits.propose([ask([3, 1, 4], wants_probs=True, params=params)])
    assert tree.source == "early_exit"
    assert tree.probs is not None
    assert tree.probs.shape == (4, VOCAB)
    assert bool(((tree.probs > 0).sum(1) <= 3).all())


# ---- calibration ----


def test_the_layers_that_do_nothing_are_found() -> None:
    target = make_runner(idle_layers=(1,))
    figures = measure_exits(target, TEXT, seconds=5)
    by_layers = {figure.layers: figure for figure in figures}
    assert by_layers[0, 2].agreement == 1.0
    assert by_layers[0,].agreement < 1.0
    assert all(figure.seconds > 0 and 1 <= figure.num_tokens <= 8 for figure in figures)
    assert [f.speedup for f in figures] == sorted((f.speedup for f in figures), reverse=True)


def test_agreement_is_that_of_the_first_guess() -> None:
    """Measured for all positions at once, it is what the drafter itself reaches."""
    target = make_runner()
    text = TEXT[:30]
    found = {f.layers: f.agreement for f in measure_exits(target, text, seconds=0)}
    right = 0
    for length in range(1, len(text) + 1):
        engine = make_engine(target, {"exit": drafter(target, (0, 1))}, FixedController(1))
        params = SamplingParams(max_tokens=1, ignore_eos=True)
        [[sequence]] = run(engine, [Request("r", tuple(text[:length]), params)])
        exits = drafter(target, (0, 1))
        exits.observe([Seen(1, 0, tuple(text[: length - 1]), None, None)])
        [tree] = exits.propose([ask(text[:length], budget=1)])
        right += tree.tokens[0] == sequence.output.token_ids[0]
    assert found[0, 1] == pytest.approx(right / len(text), abs=1e-6)  # a mean in float32


def test_what_was_found_is_kept(tmp_path: Path, tiny_folder: Path) -> None:
    target = make_runner(idle_layers=(1,))
    calibration = Calibration(target, tiny_folder, tmp_path)
    asked = []

    def text() -> list[int]:
        asked.append(1)
        return TEXT

    first = calibration.layers(text)
    assert calibration.layers(text) == first
    assert len(asked) == 1
    content = json.loads(calibration.file.read_text())
    for damaged in ("", "[]", json.dumps(content | {"format": 0}), json.dumps({"format": 1})):
        calibration.file.write_text(damaged)
        calibration.layers(text)
    for layers in ([], [7], [0, 1, 2], [1, 0], ["0"]):
        wrong = [content["figures"][0] | {"layers": layers}]
        calibration.file.write_text(json.dumps(content | {"figures": wrong}))
        calibration.layers(text)
    assert len(asked) == 10
    other = Calibration(make_runner(torch.bfloat16), tiny_folder, tmp_path)
    assert other.file != calibration.file


def test_a_calibration_that_cannot_be_kept_is_used_all_the_same(
    tmp_path: Path, tiny_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "exits").write_text("a file where the folder should be")
    calibration = Calibration(make_runner(), tiny_folder, tmp_path)
    assert calibration.layers(lambda: TEXT)
    assert "cannot be kept" in caplog.text


def test_a_text_that_is_too_short() -> None:
    with pytest.raises(InvalidValueError, match="text = '5 tokens': give a text of at least 16"):
        measure_exits(make_runner(), TEXT[:5], seconds=0)


# ---- how it is set up ----


def test_spellings() -> None:
    assert parse_drafter("early_exit") == EarlyExitConfig("auto")
    assert parse_drafter("early_exit:12") == EarlyExitConfig(12)
    assert EarlyExitConfig(5, (1, 2)).layers(30) == (0, 3, 4)
    assert EarlyExitConfig(30, (4, 9)).layers(30)[-1] == 29


@pytest.mark.parametrize("spec", ["early_exit:", "early_exit:x", "early_exit:-1", "early_exit:0"])
def test_an_exit_that_is_no_number(spec: str) -> None:
    with pytest.raises(InvalidValueError, match=r"early_exit(\[:N\]|:N)|exit_layer"):
        parse_drafter(spec)


@pytest.mark.parametrize(
    ("exit_layer", "skipped"), [(3, (3,)), (2, (0, 1)), ("auto", (1,)), (4, [1]), (True, ())]
)
def test_parts_that_cannot_be(exit_layer: object, skipped: object) -> None:
    with pytest.raises(InvalidValueError, match=r"exit_layer|skipped"):
        EarlyExitConfig(exit_layer, skipped)  # type: ignore[arg-type]


@pytest.mark.parametrize("config", [EarlyExitConfig(3), EarlyExitConfig(9, (1,))])
def test_layers_that_the_target_does_not_have(config: EarlyExitConfig) -> None:
    with pytest.raises(InvalidValueError, match="the target has 3 layers; choose 1 to 2"):
        config.layers(3)


def test_tokens_are_the_same_whatever_the_exit() -> None:
    requests = [Request(f"r{i}", (i, 9, 8, 7), PARAMS) for i in range(3)]
    plain = tokens_of(run(make_engine(make_runner()), requests))
    for layers in ((0,), (1,), (0, 1), (0, 2), (1, 2)):
        target = make_runner()
        engine = make_engine(target, {"exit": drafter(target, layers)}, FixedController(4))
        assert tokens_of(run(engine, requests)) == plain
