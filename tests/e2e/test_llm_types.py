"""Requests of `LLM` have a type: the caller's word, else what the rules say."""

from __future__ import annotations

from pathlib import Path

import pytest

from outpace import LLM, SamplingParams
from outpace.errors import InvalidValueError
from outpace.grammar import Grammar
from outpace.record.recorder import load

PARAMS = SamplingParams(max_tokens=2, ignore_eos=True)
CODE = "Write a python function that adds two numbers."
RULES = """
[[type]]
name = "greeting"
contains = ["hello"]
"""


def types_of(llm: LLM) -> list[str]:
    assert llm.recorder is not None
    llm.recorder.flush()
    return [row.request_type for row in load(llm.recorder.path)]


@pytest.fixture
def llm(tiny_folder: Path, tmp_path: Path) -> LLM:
    rules = tmp_path / "types.toml"
    rules.write_text(RULES)
    options = {"request_types": rules, "num_speculative_tokens": 2, "dtype": "fp32"}
    return LLM(tiny_folder, "ngram", record=tmp_path / "record.db", **options)


def test_rules_say_where_the_caller_does_not(llm: LLM) -> None:
    llm.generate([CODE, "Hello there", "no rule"], PARAMS)
    llm.generate([CODE, CODE], PARAMS, request_type=["Mine", None], prediction=["a b", "a b"])
    llm.chat([{"role": "user", "content": CODE}], PARAMS)
    llm.chat([{"role": "user", "content": "How are you?"}], PARAMS)
    list(llm.stream([{"role": "user", "content": "Oh, hello"}], PARAMS))
    form = SamplingParams(max_tokens=2, grammar=Grammar.regex("[ab]+"))
    list(llm.stream("1 2 3", form))
    assert types_of(llm) == [
        "code", "greeting", "other", "mine", "prediction", "code", "chat", "greeting", "structured",
    ]  # fmt: skip
    assert "greeting" in llm.types.names
    assert "mine" in llm.types.names


def test_a_label_that_is_none_is_refused_before_anything_starts(llm: LLM) -> None:
    with pytest.raises(InvalidValueError, match="request_type"):
        llm.generate(["a", "b"], PARAMS, request_type=["fine", "not fine!"])
    assert not llm.engine.has_work


def test_rules_that_cannot_be_used_are_refused_before_loading(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="type rules"):
        LLM("no such model", request_types=tmp_path / "missing.toml")
    with pytest.raises(InvalidValueError, match="request_types"):
        LLM("demo", request_types=3)
