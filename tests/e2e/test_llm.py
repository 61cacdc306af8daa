"""The offline API on a tiny model: results, streams, limits, and what is refused."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from outpace import LLM, OutpaceError, SamplingParams
from outpace.config import FirstOfConfig, ModelDraftConfig, NgramConfig, PredictionConfig
from outpace.errors import CapacityError, CheckpointError, DraftError, InvalidValueError

import tiny

PROMPT = "the quick brown fox jumps over the lazy dog and the quick brown fox"


def greedy(**options: object) -> SamplingParams:
    return SamplingParams(**({"max_tokens": 20, "ignore_eos": True} | options))  # type: ignore[arg-type]


def test_a_result_is_complete(tiny_llm: LLM) -> None:
    [result] = tiny_llm.generate(PROMPT, greedy(logprobs=2))
    assert result.finish_reason == "length"
    assert result.usage.completion_tokens == len(result.token_ids) == 20
    assert result.usage.total_tokens == 20 + len(result.prompt_token_ids)
    assert result.logprobs is not None
    assert len(result.logprobs) == 20
    assert len(result.outputs[0].accepted) == 20
    assert sum(result.outputs[0].accepted) == result.speculative.accepted
    assert result.text == tiny_llm.tokenizer.decode(result.token_ids)
    record = result.as_dict()
    assert {"text", "token_ids", "finish_reason", "usage", "speculative", "timing"} <= set(record)


def test_prompts_in_every_form(tiny_llm: LLM) -> None:
    token_ids = tiny_llm.tokenizer.encode(PROMPT)
    forms = [PROMPT, token_ids, [PROMPT], [token_ids, PROMPT]]
    results = [tiny_llm.generate(form, greedy()) for form in forms]
    assert [len(r) for r in results] == [1, 1, 1, 2]
    assert len({r.token_ids for many in results for r in many}) == 1


def test_samples_differ_and_the_first_is_the_single_one(tiny_llm: LLM) -> None:
    [several] = tiny_llm.generate(PROMPT, greedy(n=4, temperature=1.0, seed=3))
    [single] = tiny_llm.generate(PROMPT, greedy(temperature=1.0, seed=3))
    assert [output.index for output in several.outputs] == [0, 1, 2, 3]
    assert len({output.token_ids for output in several.outputs}) == 4
    assert several.token_ids == single.token_ids
    assert several.usage.completion_tokens == 80


def test_without_a_seed_results_differ(tiny_llm: LLM) -> None:
    results = [tiny_llm.generate(PROMPT, greedy(temperature=1.0))[0] for _ in range(3)]
    assert len({result.token_ids for result in results}) == 3
    assert results[0].speculative.verification == "rejection"
    assert results[0].speculative.guarantee == "distribution"


@settings(max_examples=40, deadline=None)
@given(
    stop=st.lists(st.text("abcdefghijklmnop qrst", min_size=1, max_size=2), max_size=3),
    max_tokens=st.integers(1, 24),
    min_tokens=st.integers(0, 6),
    seed=st.integers(0, 5),
    stop_token=st.integers(0, 399),
)
def test_any_cut_equals_plain_decoding(
    tiny_llm: LLM,
    stop: list[str],
    max_tokens: int,
    min_tokens: int,
    seed: int,
    stop_token: int,
) -> None:
    """Stops and limits that fall inside an accepted run: ids, text, reason and usage agree."""
    params = SamplingParams(
        temperature=1.0,
        seed=seed,
        logit_bias={5: 100, 6: 99, 70: 99} if seed == 5 else {},  # repetitive: drafts are right
        stop=tuple(stop),
        stop_token_ids=(stop_token,),
        max_tokens=max_tokens,
        min_tokens=min(min_tokens, max_tokens),
        logprobs=1,
    )
    [plain] = tiny_llm.generate(PROMPT, params, drafter="none")
    [drafted] = tiny_llm.generate(PROMPT, params, drafter="ngram")
    assert drafted.text == plain.text
    assert drafted.token_ids == plain.token_ids
    assert drafted.finish_reason == plain.finish_reason
    assert drafted.outputs[0].stop_reason == plain.outputs[0].stop_reason
    assert drafted.logprobs == plain.logprobs
    assert drafted.usage.completion_tokens == len(drafted.token_ids) <= max_tokens
    assert not any(text in drafted.text for text in stop if min_tokens == 0)
    chunks = list(tiny_llm.stream(PROMPT, params, drafter="ngram"))
    assert "".join(chunk.text for chunk in chunks) == plain.text
    assert sum((chunk.token_ids for chunk in chunks), ()) == plain.token_ids
    assert chunks[-1].output is not None
    assert chunks[-1].output.text == plain.text


def test_an_end_token_inside_an_accepted_run(tiny_llm: LLM) -> None:
    """Field report: EOS accepted in the middle of a block, generation goes on."""
    loop = greedy(logit_bias={50: 100}, max_tokens=12)
    [whole] = tiny_llm.generate(PROMPT, loop, prediction=None)
    assert whole.speculative.accepted > 0
    stopping = greedy(logit_bias={50: 100}, max_tokens=12, stop_token_ids=(50,), min_tokens=7)
    [cut] = tiny_llm.generate(PROMPT, stopping)
    [plain] = tiny_llm.generate(PROMPT, stopping, drafter="none")
    assert cut.token_ids == plain.token_ids
    assert len(cut.token_ids) == 8  # seven that may not end it, and the one that does
    assert cut.finish_reason == "stop"
    assert cut.outputs[0].stop_reason == 50


def test_a_stop_at_the_very_limit_is_a_stop(tiny_llm: LLM) -> None:
    params = greedy(logit_bias={50: 100}, stop_token_ids=(50,), min_tokens=4, max_tokens=5)
    assert tiny_llm.generate(PROMPT, params)[0].finish_reason == "stop"


def test_an_answer_does_not_wait_for_an_open_stream(tiny_llm: LLM) -> None:
    stream = tiny_llm.stream(PROMPT, greedy(max_tokens=400))
    next(stream)
    tiny_llm.generate(PROMPT, greedy(max_tokens=1))
    assert len(next(stream).token_ids) < 20
    stream.close()


def test_a_stream_that_is_aborted_from_outside_ends(tiny_llm: LLM) -> None:
    stream = tiny_llm.stream(PROMPT, greedy(max_tokens=400))
    next(stream)
    for request_id in list(tiny_llm.engine._by_request):
        tiny_llm.engine.abort(request_id)
    chunks = list(stream)
    assert chunks[-1].finish_reason == "abort"
    assert chunks[-1].output is not None


@pytest.mark.parametrize("interrupted", [0, 1, 2, 3])
def test_a_step_that_fails_leaves_a_working_engine(
    tiny_llm: LLM, monkeypatch: pytest.MonkeyPatch, interrupted: int
) -> None:
    """Whatever is raised in the middle of a step: tokens of others stay right, nothing leaks."""
    [expected] = tiny_llm.generate(PROMPT, greedy())
    stream = tiny_llm.stream(PROMPT, greedy())
    pieces = [next(stream).text]
    commit, calls = tiny_llm.engine._commit, iter(range(100))

    def failing(*arguments: Any) -> Any:
        if next(calls) == interrupted:
            raise KeyboardInterrupt
        return commit(*arguments)

    monkeypatch.setattr(tiny_llm.engine, "_commit", failing)
    with pytest.raises(KeyboardInterrupt):
        tiny_llm.generate([PROMPT, "def add"], [greedy(max_tokens=1), greedy()])
    monkeypatch.undo()
    pieces += [chunk.text for chunk in stream]
    assert "".join(pieces) == expected.text
    assert not tiny_llm.engine.has_work
    tiny_llm.engine.blocks.check_integrity([])
    assert tiny_llm.generate(PROMPT, greedy())[0].token_ids == expected.token_ids


def test_ctrl_c_waits_for_the_end_of_the_step(
    tiny_llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, done = tiny_llm.engine.runner.run, []

    def interrupted(*arguments: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        done.append(True)
        return run(*arguments)

    monkeypatch.setattr(tiny_llm.engine.runner, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tiny_llm.generate(PROMPT, greedy())
    assert done == [True]
    assert not tiny_llm.engine.has_work
    tiny_llm.engine.blocks.check_integrity([])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_damaged_numbers_are_noticed_before_the_first_answer(
    tiny_folder: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    broken = tmp_path / "broken"
    shutil.copytree(tiny_folder, broken)
    weights = load_file(broken / "model.safetensors")
    weights["model.norm.weight"] = torch.full_like(weights["model.norm.weight"], torch.nan)
    save_file(weights, broken / "model.safetensors", {"format": "pt"})
    with pytest.raises(CheckpointError, match="NaN"):
        LLM(str(broken))
    with pytest.raises(CheckpointError, match="NaN"):
        LLM(str(tiny_folder), f"model:{broken}")


def test_a_prediction_outside_the_vocabulary_only_costs_the_draft(tmp_path: Path) -> None:
    """The tokenizer knows 400 tokens, the model 380."""
    small = tiny.write_checkpoint(tmp_path / "small", vocab_size=380)
    llm = LLM(small, PredictionConfig(PROMPT), num_speculative_tokens=4, dtype="fp32")
    [found] = llm.generate([[5, 6]], greedy())
    [plain] = llm.generate([[5, 6]], greedy(), drafter="none")
    assert found.token_ids == plain.token_ids


def test_a_configuration_that_leaves_layers_out(tiny_folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "model"
    shutil.copytree(tiny_folder, copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 1}))
    with pytest.raises(CheckpointError, match="num_hidden_layers = 1"):
        LLM(copy)


def test_an_end_token_outside_the_vocabulary(tiny_folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "model"
    shutil.copytree(tiny_folder, copy)
    (copy / "generation_config.json").write_text('{"eos_token_id": [2, 5000]}')
    [result] = LLM(copy, dtype="fp32").generate(PROMPT, SamplingParams(min_tokens=2, max_tokens=4))
    assert len(result.token_ids) >= 2


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda llm: LLM(5), "model"),
        (lambda llm: LLM("demo", None), "drafter"),
        (lambda llm: LLM("demo", NgramConfig), "drafter"),
        (lambda llm: FirstOfConfig((5,)), "drafters"),
        (lambda llm: FirstOfConfig(5), "drafters"),
        (lambda llm: ModelDraftConfig(5), "model"),
        (lambda llm: ModelDraftConfig("x", dtype="zz"), "dtype"),
        (lambda llm: PredictionConfig(5), "text"),
        (lambda llm: NgramConfig(max_ngram="4"), "max_ngram"),
        (lambda llm: SamplingParams(ignore_eos="false"), "ignore_eos"),
        (lambda llm: SamplingParams(stop=5), "stop"),
        (lambda llm: SamplingParams(logit_bias=[1]), "logit_bias"),
        (lambda llm: llm.generate("a", 5), "params"),
        (lambda llm: llm.generate("a", {"temperature": 1}), "params"),
        (lambda llm: llm.generate("a", ["x"]), "params"),
        (lambda llm: llm.generate("a", drafter=5), "drafter"),
        (lambda llm: llm.generate("a", prediction=[5]), "prediction"),
        (lambda llm: llm.generate(5), "prompts"),
        (lambda llm: llm.generate(b"abc"), "prompts"),
        (lambda llm: llm.generate([[True]]), "prompt"),
        (lambda llm: llm.chat("hi"), "messages"),
        (lambda llm: llm.chat([]), "messages"),
        (lambda llm: llm.chat([5]), "messages"),
        (lambda llm: llm.chat([{"role": "user", "content": "a"}, 5]), "messages"),
        (lambda llm: llm.stream(5), "prompt"),
        (lambda llm: llm.stream("a", {"temperature": 1}), "params"),
        (lambda llm: llm.stream("a", drafter="eagle"), "drafter"),
        (
            lambda llm: llm.generate(
                "a", SamplingParams(stop_token_ids=range(400), min_tokens=1, temperature=1.0)
            ),
            "stop_token_ids",
        ),
    ],
)
def test_wrong_kinds_are_refused_by_name(
    tiny_llm: LLM, call: Callable[[LLM], object], field: str
) -> None:
    with pytest.raises(InvalidValueError) as caught:
        call(tiny_llm)
    assert caught.value.field.startswith(field)
    assert not tiny_llm.engine.has_work


def test_a_stream_that_is_left_frees_everything(tiny_llm: LLM) -> None:
    stream = tiny_llm.stream(PROMPT, greedy(max_tokens=100, n=2))
    next(stream)
    stream.close()
    assert not tiny_llm.engine.has_work
    tiny_llm.engine.blocks.check_integrity([])


def test_two_streams_at_once(tiny_llm: LLM) -> None:
    [expected] = tiny_llm.generate(PROMPT, greedy())
    one, two = tiny_llm.stream(PROMPT, greedy()), tiny_llm.stream("def add", greedy())
    pieces: list[str] = []
    other = 0
    while True:
        chunk = next(one, None)
        if chunk is None:
            break
        pieces.append(chunk.text)
        other += len(next(two).token_ids) if other < 15 else 0
    two.close()
    assert "".join(pieces) == expected.text
    assert not tiny_llm.engine.has_work


def test_an_equal_beginning_is_computed_once(tiny_folder: Path) -> None:
    llm = LLM(str(tiny_folder), "none", dtype="float32")
    prompt = list(range(3, 103))
    [first] = llm.generate([prompt], greedy())
    [second] = llm.generate([prompt], greedy())
    assert (first.usage.cached_tokens, second.usage.cached_tokens) == (0, 96)
    assert first.token_ids == second.token_ids


def test_a_draft_model_of_the_same_family(tiny_folder: Path, tmp_path: Path) -> None:
    draft = tiny.write_checkpoint(tmp_path / "draft", seed=1, num_hidden_layers=1)
    llm = LLM(str(tiny_folder), f"model:{draft}", num_speculative_tokens=3, dtype="float32")
    params = greedy(temperature=0.7, seed=1)
    [drafted] = llm.generate(PROMPT, params)
    [plain] = llm.generate(PROMPT, params, drafter="none")
    assert drafted.token_ids == plain.token_ids
    assert drafted.speculative.drafter == "model"
    assert drafted.speculative.drafted > 0


def test_a_draft_with_a_shorter_context_stops_drafting_for_that_request(
    tiny_folder: Path, tmp_path: Path
) -> None:
    draft = tiny.write_checkpoint(tmp_path / "draft", max_position_embeddings=64)
    llm = LLM(str(tiny_folder), f"model:{draft}", num_speculative_tokens=3, dtype="float32")
    prompts = [list(range(3, 73)), list(range(3, 23))]
    long, short = llm.generate(prompts, greedy())
    assert long.speculative.drafted == 0
    assert "64" in long.speculative.off_reason
    assert short.speculative.drafted > 0


def test_a_draft_whose_tokenizer_is_not_its_own_is_refused(
    tiny_folder: Path, tmp_path: Path
) -> None:
    draft = tiny.write_checkpoint(tmp_path / "draft", vocab_size=300)
    tiny.write_tokenizer(draft, tiny.byte_bpe(350))
    with pytest.raises(DraftError, match=r"has \d+ tokens, but its model only 300"):
        LLM(str(tiny_folder), f"model:{draft}")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"num_speculative_tokens": -1}, InvalidValueError, "num_speculative_tokens = -1"),
        ({"num_speculative_tokens": 65}, InvalidValueError, "from 0 to 64"),
        ({"dtype": "fp8"}, InvalidValueError, "dtype = 'fp8'"),
        ({"verification": "typical"}, InvalidValueError, "coupled"),
        ({"max_model_len": 100_000}, CapacityError, "512"),
        ({"max_model_len": 300, "kv_cache_tokens": 200}, CapacityError, "at least one context"),
        ({"kv_cache_tokens": 10**12}, CapacityError, "lower"),
        ({"device": "abacus"}, InvalidValueError, "try cpu"),
        ({"no_such_option": 1}, InvalidValueError, "choose one of"),
    ],
)
def test_options_that_cannot_be(
    tiny_folder: Path, options: dict[str, object], error: type[OutpaceError], words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        LLM(str(tiny_folder), "ngram", **options)
    assert "\n" not in str(caught.value)


def test_models_that_cannot_be(tmp_path: Path) -> None:
    for name in (str(tmp_path / "nothing"), str(tmp_path), str(tmp_path / "x.gguf")):
        with pytest.raises(CheckpointError) as caught:
            LLM(name)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "prompt",
    ["", [], [400], [-1], [0] * 512, [1, 2, 10**9], [1.5], [1, "a"], [[1]]],
    ids=lambda p: f"{str(p)[:12]}",
)
def test_prompts_that_cannot_be(tiny_llm: LLM, prompt: str | list[int]) -> None:
    with pytest.raises(InvalidValueError, match="prompt"):
        tiny_llm.generate([prompt, "fine"], greedy())
    assert not tiny_llm.engine.has_work


def test_a_bad_request_in_a_batch_leaves_nothing_behind(tiny_llm: LLM) -> None:
    with pytest.raises(InvalidValueError, match="logit_bias"):
        tiny_llm.generate(["fine", "bad"], [greedy(), greedy(logit_bias={400: 1})])
    with pytest.raises(InvalidValueError, match="drafter"):
        tiny_llm.generate(["fine", "bad"], greedy(), drafter=[None, "eagle"])
    with pytest.raises(InvalidValueError, match="params"):
        tiny_llm.generate(["one", "two"], [greedy()])
    assert not tiny_llm.engine.has_work
    tiny_llm.engine.blocks.check_integrity([])


@pytest.mark.parametrize("length", [1, 2, 511])
def test_shortest_and_longest_prompts(tiny_llm: LLM, length: int) -> None:
    [result] = tiny_llm.generate([list(range(3, 3 + length % 300)) * 2][:1], greedy(max_tokens=2))
    [whole] = tiny_llm.generate([[7] * length], greedy(max_tokens=None))
    assert len(whole.token_ids) == 512 - length
    assert result.finish_reason == "length"
