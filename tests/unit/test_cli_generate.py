from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from outpace.cli import loading, run
from outpace.grammar import Grammar

from fake_llm import FakeLLM


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the commands load a fake model."""

    def install(llm: FakeLLM) -> FakeLLM:
        monkeypatch.setattr(loading, "load", lambda options, config: llm)
        return llm

    return install


def test_streams_the_answer_and_closes_with_the_figures(use: Any, capsys: Any) -> None:
    llm = use(FakeLLM("hello"))
    assert run(["generate", "hi", "--max-tokens", "9", "--temperature", "0.5"]) == 0
    out, err = capsys.readouterr()
    assert out == "hello\n"
    assert err == (
        "5 tokens in 4 target steps · acceptance length 1.25 · alpha 1.00 · 4.0 tokens/s · "
        "drafter ngram · coupled, bit-exact · finished by stop\n"
    )
    [call] = llm.calls
    assert call.prompt == [{"role": "user", "content": "hi"}]
    assert (call.params.max_tokens, call.params.temperature) == (9, 0.5)
    assert llm.closed == 1


SCHEMA = '{"type": "object"}'


@pytest.mark.parametrize(
    ("options", "grammar"),
    [
        ([], None),
        (["--json-object"], Grammar.json_object()),
        (["--json-schema", f" {SCHEMA}"], Grammar.json_schema(f" {SCHEMA}")),
        (["--json-schema", "FILE"], Grammar.json_schema(SCHEMA)),
        (["--regex", "a+"], Grammar.regex("a+")),
        (["--lark", "FILE"], Grammar.lark(SCHEMA)),
    ],
)
def test_the_form_of_the_answer(
    use: Any, tmp_path: Path, options: list[str], grammar: Grammar | None
) -> None:
    file = tmp_path / "form"
    file.write_text(SCHEMA)
    llm = use(FakeLLM())
    assert run(["generate", "hi", *(str(file) if o == "FILE" else o for o in options)]) == 0
    assert llm.calls[0].params.grammar == grammar


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--json-object", "--regex", "a"], "--regex = 'a': cannot go with --json-object"),
        (["--json-schema", "/nothing"], "the file cannot be read: No such file"),
        (["--json-schema", "{"], "is not JSON"),
        (["--lark", "\0"], "the file cannot be read"),
    ],
)
def test_a_form_that_cannot_be_is_refused_before_the_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, options: list[str], said: str
) -> None:
    monkeypatch.setattr(loading, "load", lambda *_: pytest.fail("loaded"))
    assert run(["generate", "hi", *options]) == 1
    assert said in capsys.readouterr().err


def test_a_model_without_a_template_continues_the_bare_text(use: Any) -> None:
    llm = use(FakeLLM(chat_template=None))
    assert run(["generate", "hi"]) == 0
    assert llm.calls[0].prompt == "hi"


@pytest.mark.parametrize(
    ("options", "prompt"),
    [
        (["--raw"], "hi"),
        (["--chat"], [{"role": "user", "content": "hi"}]),
        (
            ["--system", "be brief"],
            [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}],
        ),
    ],
)
def test_chat_raw_and_system(use: Any, options: list[str], prompt: Any) -> None:
    llm = use(FakeLLM())
    assert run(["generate", "hi", *options]) == 0
    assert llm.calls[0].prompt == prompt


def test_json_is_one_object_on_stdout_and_nothing_else(use: Any, capsys: Any) -> None:
    use(FakeLLM("grüße"))
    assert run(["generate", "hi", "--json"]) == 0
    out, err = capsys.readouterr()
    value = json.loads(out)
    assert {"text", "token_ids", "finish_reason", "usage", "speculative", "timing"} <= set(value)
    assert value["text"] == "grüße"
    assert value["token_ids"] == list(map(ord, "grüße"))
    assert value["finish_reason"] == "stop"
    assert err == ""


def test_json_is_valid_utf8_whatever_the_text_is(use: Any, monkeypatch: Any) -> None:
    use(FakeLLM("a\udce9\x00\u2028b"))
    stdout = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stdout)
    assert run(["generate", "hi", "--json"]) == 0
    data = stdout.buffer.getvalue()  # type: ignore[attr-defined]
    assert json.loads(data.decode("utf-8"))["text"] == "a\udce9\x00\u2028b"


def test_several_answers_are_numbered(use: Any, capsys: Any) -> None:
    use(FakeLLM("yes"))
    assert run(["generate", "hi", "-n", "2"]) == 0
    out, err = capsys.readouterr()
    assert out == "--- 1 of 2 ---\nyes\n--- 2 of 2 ---\nyes\n"
    assert err.startswith("6 tokens in 2 target steps · acceptance length 3.00")


def test_every_sampling_option_arrives(use: Any) -> None:
    llm = use(FakeLLM())
    line = (
        "generate hi --temperature 0.7 --top-p 0.9 --top-k 40 --min-p 0.1 --presence-penalty 0.2 "
        "--frequency-penalty 0.3 --repetition-penalty 1.1 --seed 7 --max-tokens 32 --min-tokens 2 "
        "--stop END --stop ; --stop-token-ids 5,6 --stop-token-ids 7 --logit-bias 3:-1.5 "
        "--logit-bias 4:2 --ignore-eos --logprobs 3"
    )
    assert run(line.split()) == 0
    params = llm.calls[0].params
    assert (params.temperature, params.top_p, params.top_k, params.min_p) == (0.7, 0.9, 40, 0.1)
    assert (params.presence_penalty, params.frequency_penalty) == (0.2, 0.3)
    assert (params.repetition_penalty, params.seed, params.ignore_eos) == (1.1, 7, True)
    assert (params.max_tokens, params.min_tokens, params.logprobs) == (32, 2, 3)
    assert params.stop == ("END", ";")
    assert params.stop_token_ids == (5, 6, 7)
    assert params.logit_bias == {3: -1.5, 4: 2.0}


def test_engine_options_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def load(options: Any, config: Any) -> FakeLLM:
        seen.append(config)
        return FakeLLM()

    monkeypatch.setattr(loading, "load", load)
    line = "generate hi --dtype fp32 -k 4 --drafter ngram --verification coupled"
    assert run([*line.split(), "--max-model-len", "64", "--kv-cache-tokens", "128"]) == 0
    [config] = seen
    assert (config.dtype, config.num_speculative_tokens) == ("float32", 4)
    assert (config.drafter.name, config.verification) == ("ngram", "coupled")
    assert (config.max_model_len, config.kv_cache_tokens) == (64, 128)


def test_prompt_from_stdin_loses_its_last_line_feed_only(use: Any, monkeypatch: Any) -> None:
    llm = use(FakeLLM())
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO("grüße\n\r\n".encode())))
    assert run(["generate", "-", "--raw"]) == 0
    assert llm.calls[0].prompt == "grüße\n"


def test_ctrl_c_ends_the_line_and_closes_the_stream(use: Any, capsys: Any) -> None:
    llm = use(FakeLLM("hello", failure=KeyboardInterrupt()))
    assert run(["generate", "hi"]) == 130
    out, err = capsys.readouterr()
    assert (out, err) == ("h\n", "")
    assert llm.closed == 1


def test_a_reader_that_went_away_is_no_news(use: Any, capsys: Any) -> None:
    use(FakeLLM("hello", failure=BrokenPipeError(32, "Broken pipe")))
    assert run(["generate", "hi"]) != 0
    assert capsys.readouterr().err == ""


def test_an_unexpected_error_is_one_line_with_its_type(use: Any, capsys: Any) -> None:
    use(FakeLLM(failure=RuntimeError("first\nsecond")))
    assert run(["generate", "hi"]) == 1
    err = capsys.readouterr().err
    assert err == (
        "error: RuntimeError: first second (this is a defect, please report it; rerun with "
        "--debug for the traceback)\n"
    )


def test_debug_shows_the_traceback(use: Any, capsys: Any) -> None:
    use(FakeLLM(failure=RuntimeError("boom")))
    assert run(["generate", "hi", "--debug"]) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert err.endswith("--debug for the traceback)\n")
