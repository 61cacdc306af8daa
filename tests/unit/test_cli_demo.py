from __future__ import annotations

import json
from typing import Any

import pytest

from outpace.cli import loading, run
from outpace.cli.demo_report import highlighted
from outpace.demo.kinds import kinds
from outpace.demo.measure import compare, drafters_for
from outpace.request import SamplingParams

from fake_llm import FakeLLM


def demonstrate(monkeypatch: pytest.MonkeyPatch, llm: FakeLLM, *options: str) -> int:
    monkeypatch.setattr(loading, "load", lambda *_: llm)
    return run(["demo", "--repeats", "2", *options])


def test_the_kinds_cover_what_is_promised() -> None:
    found = {kind.name: kind for kind in kinds()}
    assert list(found) == ["code", "summary", "extraction", "editing", "chat"]
    assert found["editing"].prediction in found["editing"].prompt  # type: ignore[operator]


def test_drafters_for_a_kind() -> None:
    editing, chat = kinds()[3:]
    assert drafters_for(chat, "none") == ["ngram"]
    assert drafters_for(chat, "model") == ["ngram", "model"]
    assert drafters_for(editing, "ngram") == ["ngram", "prediction"]
    assert drafters_for(editing, "ngram+model") == ["ngram", "prediction", "ngram+model"]


def test_the_ways_take_turns_after_a_run_that_is_not_counted() -> None:
    llm = FakeLLM()
    done: list[None] = []
    params = SamplingParams(max_tokens=8)
    comparison = compare(  # type: ignore[arg-type]
        llm, kinds()[0], ["ngram"], params, 2, lambda: done.append(None)
    )
    assert [call.drafter for call in llm.calls] == ["none", "none", "ngram", "ngram", "none"]
    assert [call.params.max_tokens for call in llm.calls] == [1, 8, 8, 8, 8]
    assert len(done) == 4
    assert comparison.identical
    assert comparison.time_ratio(comparison.drafted[0]) == 1.0


def test_identical_tokens_give_status_0_and_say_so(monkeypatch: Any, capsys: Any) -> None:
    assert demonstrate(monkeypatch, FakeLLM("hello")) == 0
    out = capsys.readouterr().out
    assert out.endswith(
        "All tokens were identical, plain and speculative, in 5 kinds of request with 6 "
        "comparisons.\n"
    )
    assert "h⟦el⟧lo" in out


def test_different_tokens_give_status_1_and_say_so(monkeypatch: Any, capsys: Any) -> None:
    llm = FakeLLM("hello", by_drafter={"prediction": "hallo"})
    assert demonstrate(monkeypatch, llm) == 1
    out = capsys.readouterr().out
    assert out.endswith("TOKENS DIFFERED from the first plain run in: editing/prediction.\n")
    assert "NO" in out


def test_json_holds_all_figures(monkeypatch: Any, capsys: Any) -> None:
    assert demonstrate(monkeypatch, FakeLLM("hello"), "--json") == 0
    value = json.loads(capsys.readouterr().out)
    assert value["identical"] is True
    assert [kind["kind"] for kind in value["kinds"]] == [kind.name for kind in kinds()]
    for kind in value["kinds"]:
        plain, *drafted = kind["runs"]
        assert plain["drafter"] == "none"
        assert all(run["token_ids"] == plain["token_ids"] for run in drafted)
        assert all(run["speculative"]["target_steps"] == 3 for run in drafted)


def test_accepted_tokens_are_marked() -> None:
    comparison = compare(  # type: ignore[arg-type]
        FakeLLM("a\x1bbc"), kinds()[0], ["ngram"], SamplingParams(), 1
    )
    marked = highlighted(
        comparison.drafted[0],
        FakeLLM().tokenizer,  # type: ignore[arg-type]
        in_colour=False,
    )
    assert marked.plain == "a⟦�b⟧c"
