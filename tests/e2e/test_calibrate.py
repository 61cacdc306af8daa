from __future__ import annotations

import json
from pathlib import Path

import pytest

from outpace.cli import run
from outpace.cli.calibrate import stretches
from outpace.llm import LLM
from outpace.request import SamplingParams

import tiny


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OUTPACE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_what_the_command_keeps_the_drafter_uses(
    tiny_folder: Path, own_cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "mine.txt"
    text.write_text("\n".join(tiny.CORPUS))
    options = ["--model", str(tiny_folder), "--dtype", "fp32", "--text", str(text)]
    assert run(["calibrate", "early-exit", *options, "--seconds", "1", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["num_layers"] == 2
    assert {tuple(figure["layers"]) for figure in told["figures"]} == {(0,)}
    kept = Path(told["kept"])
    before = kept.stat().st_mtime_ns
    llm = LLM(str(tiny_folder), "early_exit", dtype="fp32", num_speculative_tokens=3)
    params = SamplingParams(max_tokens=20, ignore_eos=True)
    [drafted] = llm.generate("the quick brown", params)
    [plain] = llm.generate("the quick brown", params, drafter="none")
    assert drafted.token_ids == plain.token_ids
    assert drafted.speculative.drafted > 0
    assert kept.stat().st_mtime_ns == before
    assert [file.name for file in (own_cache / "exits").iterdir()] == [kept.name]


def test_the_first_use_calibrates(tiny_folder: Path, own_cache: Path) -> None:
    LLM(str(tiny_folder), "early_exit", dtype="fp32", num_speculative_tokens=3)
    assert len(list((own_cache / "exits").iterdir())) == 1


def test_the_table_for_people(tiny_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--model", str(tiny_folder), "--dtype", "fp32", "--seconds", "0"]
    assert run(["calibrate", "early-exit", *options]) == 0
    out = capsys.readouterr().out
    assert "times faster" in out
    assert "kept in" in out
    assert stretches([1, 2, 3, 7, 9, 10]) == "1-3, 7, 9-10"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--text", "/no/such/file"], "text = '/no/such/file': cannot be read"),
        (["--seconds", "-1"], "seconds = -1"),
        (["--model", "/no/such/model"], "no such file or folder"),
    ],
)
def test_bad_input(options: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", "early-exit", *options]) == 1
    assert words in capsys.readouterr().err


def test_a_text_that_is_too_short_or_not_utf_8(
    tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text"
    for content, words in ((b"a", "at least 16 tokens"), (b"\xff" * 99, "not UTF-8")):
        text.write_bytes(content)
        options = ["--model", str(tiny_folder), "--text", str(text)]
        assert run(["calibrate", "early-exit", *options]) == 1
        assert words in capsys.readouterr().err


@pytest.mark.parametrize("drafter", ["early_exit:2", "early_exit:99", "ngram|early_exit:5"])
def test_an_exit_that_the_target_does_not_have(
    tiny_folder: Path, drafter: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["generate", "hi", "--model", str(tiny_folder), "--drafter", drafter]) == 1
    assert "the target has 2 layers; choose 1 to 1, or auto" in capsys.readouterr().err
