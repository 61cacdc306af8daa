"""Two drafters on captured prompts of a tiny model; the target as its own draft must win."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from outpace import LLM, SamplingParams
from outpace.cli import run
from outpace.record.capture import load_capture

PROMPTS = [f"{i} dogs and {i + 1} foxes sleep in the sun" for i in range(24)]


@pytest.fixture(scope="module")
def capture(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("capture") / "a.db"
    llm = LLM(str(tiny_folder), "ngram", dtype="fp32", threads=1, capture=path)
    params = SamplingParams(max_tokens=12, temperature=0.8, seed=3, ignore_eos=True)
    results = llm.generate(PROMPTS, params, request_type=["a", "b"] * 12)
    assert llm.capture is not None
    llm.capture.close()
    held = load_capture(path)
    assert [one.answer for one in held] == [result.token_ids for result in results]
    assert [one.prompt for one in held] == [result.prompt_token_ids for result in results]
    return str(path)


def options(folder: Path, capture: str) -> list[str]:
    model = ["--model", str(folder), "--dtype", "fp32", "--threads", "1"]
    return [*model, "--capture", capture, "--json"]


def test_the_better_draft_is_offered(
    tiny_folder: Path, capture: str, capsys: pytest.CaptureFixture[str]
) -> None:
    perfect = f"model:{tiny_folder}"
    assert run(["align", "evaluate", "ngram", perfect, *options(tiny_folder, capture)]) == 0
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["offered"] is True
    assert [one["request_type"] for one in verdict["types"]] == ["all", "a", "b"]
    assert verdict["types"][0]["new"] > verdict["types"][0]["old"] >= 1.0
    assert run(["align", "evaluate", perfect, "ngram", *options(tiny_folder, capture)]) == 1
    assert json.loads(capsys.readouterr().out)["offered"] is False


def test_what_it_holds_and_that_it_goes(capture: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["align", "capture-info", capture, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["requests"], facts["types"]) == (24, {"a": 12, "b": 12})
    assert run(["align", "capture-info", capture]) == 0
    assert "a 12, b 12" in capsys.readouterr().out
    assert run(["align", "delete", capture, "--yes"]) == 0
    assert not Path(capture).exists()
    assert run(["align", "capture-info", capture]) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ngram", "ngram"], "is the old one"),
        (["ngram", "nonsense"], "choose one of"),
        (["ngram", "none", "--limit", "1"], "limit = 1"),
        (["ngram", "none"], "no such file"),
    ],
)
def test_bad_input_is_refused_before_a_model_is_loaded(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--model", "no-such-model", "--capture", str(tmp_path / "missing.db")]
    assert run(["align", "evaluate", *arguments, *more]) == 1
    assert said in capsys.readouterr().err
