"""``auto`` with an automatic k: a choice for each request, within a policy, kept across starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import outpace
from outpace import LLM, SamplingParams
from outpace.control.routed import RoutedController
from outpace.errors import InvalidValueError
from outpace.grammar import Grammar
from outpace.record.recorder import load
from outpace.request import Request

TEXT = "1 2 3 4 5 6 7 8 9 10 1 2 3 4 5 6 7 8 9 10 1 2 3"
PARAMS = SamplingParams(max_tokens=70, ignore_eos=True)
POLICY = """
[default]
order = ["suffix"]
[types.plainly]
pin = "none"
[types.grams]
pin = "ngram"
[types.never]
forbid = ["ngram"]
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OUTPACE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def make(folder: Path, drafter: str = "auto", **options: object) -> LLM:
    return LLM(folder, drafter, dtype="fp32", threads=1, kv_cache_tokens=2048, **options)


def test_auto_is_a_choice_and_changes_no_token(
    tiny_folder: Path, cache: Path, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    record = tmp_path / "record.db"
    with make(tiny_folder, drafter_policy=policy, record=record) as llm:
        assert isinstance(llm.engine.controller, RoutedController)
        prompts = [TEXT, f"say {TEXT}", "hello"]
        [*plain] = llm.generate(prompts, PARAMS, drafter="none")
        for kind in ("grams", "plainly", "never", None):
            routed = llm.generate(prompts, PARAMS, request_type=kind)
            assert [one.token_ids for one in routed] == [one.token_ids for one in plain]
            for one in routed:
                drafters = [choice.drafter for choice in one.speculative.choices]
                assert drafters, "nobody chose"
                assert all(choice.reason for choice in one.speculative.choices)
                if kind in ("plainly", "grams"):
                    assert drafters == ["none" if kind == "plainly" else "ngram"]
                    assert "pins" in one.speculative.choices[0].reason
                if kind == "never":
                    assert not any("ngram" in name for name in drafters)
        assert all(not one.speculative.choices for one in plain)  # it was asked for
    rows = load(record)
    assert all(sum(one.emitted for one in row.drafts) == row.completion_tokens for row in rows)
    assert {row.decisions[0].reason for row in rows[:3]} == {"asked for by the request"}
    assert rows[3].decisions[0].reason == "the policy pins ngram for grams"


def test_what_a_request_brings_is_drafted_from(tiny_folder: Path, cache: Path) -> None:
    llm = make(tiny_folder)
    [plain] = llm.generate("hello", PARAMS, drafter="none")
    menu = llm.engine.drafting.choices
    assert menu(Request("a", (1,), prediction=(2, 3)))[:2] == ("none", "prediction+ngram")
    assert menu(Request("b", (1,))) == ("none", "ngram", "suffix")  # no head is for this model
    assert menu(Request("c", (1,), drafter="auto")) == ("none", "ngram", "suffix")
    assert menu(Request("d", (1,), drafter="ngram")) == ()
    [result] = llm.generate("hello", PARAMS, prediction=plain.text)
    assert result.token_ids == plain.token_ids
    form = SamplingParams(max_tokens=30, grammar=Grammar.regex("(one two three four){3}"))
    [formed] = llm.generate("hello", form)
    [reference] = llm.generate("hello", form, drafter="none")
    assert formed.token_ids == reference.token_ids
    assert "grammar" in formed.speculative.choices[0].drafter


def test_several_that_are_joined_are_a_choice_and_one_is_none(
    tiny_folder: Path, cache: Path
) -> None:
    joined = make(tiny_folder, "suffix+ngram")
    [result] = joined.generate(TEXT, PARAMS)
    assert result.speculative.choices
    offered = joined.engine.drafting._menu
    assert offered is not None
    assert offered.everybody == ("none", "suffix", "ngram", "suffix+ngram")
    [named] = joined.generate(TEXT, PARAMS, drafter="ngram")
    assert named.speculative.choices == ()
    assert named.speculative.drafter == "ngram"
    for llm in (make(tiny_folder, "ngram"), make(tiny_folder, "auto", num_speculative_tokens=2)):
        [result] = llm.generate(TEXT, PARAMS)
        assert result.speculative.choices == ()


def test_a_policy_without_a_choice_or_with_unknown_names_is_refused(
    tiny_folder: Path, cache: Path, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[default]\npin = "modell"\n')
    with pytest.raises(InvalidValueError, match="is no drafter here"):
        make(tiny_folder, drafter_policy=policy)
    for options in ({"drafter": "ngram"}, {"num_speculative_tokens": 3}):
        with pytest.raises(InvalidValueError, match="there is no choice"):
            make(tiny_folder, drafter_policy=policy, **options)  # type: ignore[arg-type]


SCRIPT = """
import sys
from outpace import LLM, SamplingParams
llm = LLM(sys.argv[1], "ngram", dtype="fp32", threads=1, kv_cache_tokens=2048,
          keep_learned=sys.argv[2] == "yes")
print(llm._assembly.keeper.origin if llm._assembly.keeper else "off")
llm.generate(sys.argv[3], SamplingParams(max_tokens=120, ignore_eos=True), request_type="count")
"""


def test_what_is_learned_outlives_a_process_that_closes_nothing(
    tiny_folder: Path, cache: Path
) -> None:
    def start(keep: str) -> str:
        command = [sys.executable, "-c", SCRIPT, str(tiny_folder), keep, TEXT * 2]
        here = {"PYTHONPATH": str(Path(outpace.__file__).parents[1])}
        done = subprocess.run(command, capture_output=True, text=True, env=os.environ | here)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert start("no") == "off"
    assert not (cache / "learned").exists()
    assert start("yes") == "nothing was learned before"
    [file] = (cache / "learned").glob("*.json")
    assert start("yes") == f"learned before, from {file}"
    assert '"count"' in file.read_text()
