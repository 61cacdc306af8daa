from __future__ import annotations

import io
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from outpace.cli import loading, run


@pytest.fixture(autouse=True)
def never_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bad input is found before a model is loaded."""

    def load(options: Any, config: Any) -> None:
        pytest.fail("the model was loaded")

    monkeypatch.setattr(loading, "load", load)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--temperature nan", "temperature = nan: must be a number in [0, 100]"),
        ("--temperature -1", "temperature = -1.0: must be a number in [0, 100]"),
        ("--temperature inf", "temperature = inf: must be a number in [0, 100]"),
        ("--top-p 0", "top_p = 0.0: must be a number in (0, 1]"),
        ("--top-p 1.5", "top_p = 1.5: must be a number in (0, 1]"),
        ("--top-k -1", "top_k = -1: must be an integer of at least 0"),
        ("--min-p 2", "min_p = 2.0: must be a number in [0, 1]"),
        ("--presence-penalty 3", "presence_penalty = 3.0: must be a number in [-2, 2]"),
        ("--repetition-penalty 0", "repetition_penalty = 0.0: must be a number in (0, 100]"),
        ("--seed -1", "seed = -1: must be an integer from 0 to 18446744073709551615"),
        ("--max-tokens 0", "max_tokens = 0: must be an integer of at least 1"),
        ("--min-tokens 9 --max-tokens 8", "min_tokens = 9: exceeds max_tokens = 8"),
        ("-n 0", "n = 0: must be an integer from 1 to 128"),
        ("--logprobs 1000", "logprobs = 1000: must be an integer from 0 to 100"),
        ("-k -1", "num_speculative_tokens = -1: must be an integer from 0 to 64"),
        ("-k 1000", "num_speculative_tokens = 1000: must be an integer from 0 to 64"),
        ("-k many", "num_speculative_tokens = 'many': must be an integer or auto"),
        ("--dtype fp8", "dtype = 'fp8': choose one of bf16, fp32, auto"),
        ("--threads 0", "threads = 0: must be an integer from 1 to 1024"),
        ("--verification no", "verification = 'no': choose one of auto, coupled, rejection"),
        ("--max-model-len 1", "max_model_len = 1: must be an integer of at least 2"),
        ("--drafter model:", "drafter = 'model:': say which: model:PATH"),
        ("--logit-bias 5", "logit_bias = '5': write ID:VALUE, for example 42:-100"),
        ("--logit-bias 5:x", "logit_bias = '5:x': write ID:VALUE, for example 42:-100"),
        ("--logit-bias 5:nan", "logit_bias[5] = nan: must be a number in [-100, 100]"),
        ("--logit-bias 5:1 --logit-bias 5:2", "logit_bias = '5:2': token 5 has a bias already"),
        ("--logit-bias -5:1", "logit_bias (token id) = -5: must be an integer of at least 0"),
        ("--stop-token-ids 1,x", "stop_token_ids = '1,x': give token ids, for example 2 or 2,7"),
        ("--stop-token-ids -1", "stop_token_ids = -1: must be an integer of at least 0"),
    ],
)
def test_one_line_with_field_value_and_way_out(line: str, message: str, capsys: Any) -> None:
    assert run(["generate", "hi", *line.split()]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"error: {message}\n")


def one_error(arguments: list[str], capsys: Any, status: int = 1) -> str:
    assert run(arguments) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    return str(err.removeprefix("error: ").removesuffix("\n"))


def test_empty_texts(capsys: Any) -> None:
    assert one_error(["generate", ""], capsys) == ("PROMPT = '': must have at least one character")
    assert one_error(["generate", "hi", "--stop", ""], capsys) == (
        "stop = '': must be a text of at least one character"
    )
    assert one_error(["generate", "hi", "--model", ""], capsys).startswith("model = ''")


def test_too_many_stop_texts(capsys: Any) -> None:
    stops = [word for i in range(65) for word in ("--stop", f"s{i}")]
    assert one_error(["generate", "hi", *stops], capsys) == "stop = '65 strings': give at most 64"


def test_unknown_drafter_lists_those_that_exist(capsys: Any) -> None:
    error = one_error(["generate", "hi", "--drafter", "oracle"], capsys)
    assert error.startswith("drafter = 'oracle': choose one of none, auto, ngram, ")


def test_prediction_file_that_is_missing_or_not_text(tmp_path: Path, capsys: Any) -> None:
    missing = tmp_path / "missing"
    assert one_error(["generate", "hi", "--drafter", f"prediction:{missing}"], capsys) == (
        f"drafter = 'prediction:{missing}': the file cannot be read: No such file or directory"
    )
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe")
    assert one_error(["generate", "hi", "--drafter", f"prediction:{binary}"], capsys) == (
        f"drafter = 'prediction:{binary}': the file cannot be read: it is not UTF-8"
    )


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["generate", "caf\udce9"], "argument 2"),
        (["generate", "hi", "--stop", "\udcff"], "--stop"),
        (["generate", "hi", "--stop=\udcff"], "--stop"),
        (["generate", "hi", "--\udcff"], "argument 3"),
    ],
)
def test_bytes_that_are_not_utf8_are_named(arguments: list[str], name: str, capsys: Any) -> None:
    error = one_error(arguments, capsys)
    assert error.startswith(f"{name} = ")
    assert error.endswith("is not valid UTF-8; give it in UTF-8")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "PROMPT = '': must have at least one character; nothing came from stdin"),
        (b"\n", "PROMPT = '': must have at least one character; nothing came from stdin"),
        (b"ab\xff", "PROMPT = '-': byte 2 on stdin is not UTF-8; convert the input"),
    ],
)
def test_stdin_without_a_usable_prompt(
    data: bytes, message: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    assert one_error(["generate", "-"], capsys) == message


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["generate"], "'PROMPT'"),
        (["generate", "hi", "--no-such-option"], "--no-such-option"),
        (["generate", "hi", "--temperature", "warm"], "--temperature"),
        (["generate", "one", "two"], "two"),
        (["no-such-command"], "no-such-command"),
    ],
)
def test_usage_errors_are_one_line_with_status_2(
    arguments: list[str], part: str, capsys: Any
) -> None:
    error = one_error(arguments, capsys, status=2)
    assert part in error
    assert error.endswith("--help)")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--repeats 0", "repeats = 0: must be an integer from 1 to 100"),
        ("--max-tokens 0", "max_tokens = 0: must be an integer of at least 1"),
        ("--temperature nan", "temperature = nan: must be a number in [0, 100]"),
    ],
)
def test_demo_options(line: str, message: str, capsys: Any) -> None:
    assert one_error(["demo", *line.split()], capsys) == message


def test_demo_refuses_a_rule_that_does_not_keep_tokens(capsys: Any) -> None:
    error = one_error(["demo", "--verification", "rejection"], capsys)
    assert error.startswith("verification = 'rejection': keeps the distribution")


def test_the_package_is_the_command_too(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import outpace

    monkeypatch.setattr(sys, "argv", ["outpace", "--version"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("outpace", run_name="__main__")
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"outpace {outpace.__version__}\n"


def test_version_and_help(capsys: Any) -> None:
    import outpace

    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"outpace {outpace.__version__}\n"
    for arguments in ([], ["--help"]):
        assert run(arguments) == 0
        out = capsys.readouterr().out
        assert all(name in out for name in ("generate", "chat", "demo"))
