"""What the record says of requests is what their results say."""

from __future__ import annotations

from pathlib import Path

import pytest

from outpace import LLM, SamplingParams
from outpace.errors import InvalidValueError
from outpace.record.recorder import load

PARAMS = SamplingParams(max_tokens=24, ignore_eos=True)
PROMPTS = ["the dog sleeps the dog sleeps the dog", "1 2 3 4 5", "def add(a, b):"]


@pytest.fixture(scope="module")
def llm(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> LLM:
    """Answers go through a draft model that is the target itself: much is accepted."""
    path = tmp_path_factory.mktemp("record") / "a.db"
    drafter = f"model:{tiny_folder}"
    options = {"dtype": "fp32", "num_speculative_tokens": 3, "threads": 1}
    return LLM(str(tiny_folder), drafter, record=path, **options)  # type: ignore[arg-type]


def test_each_request_is_a_row_with_its_own_figures(llm: LLM) -> None:
    types = ["copy", None, "code"]
    results = llm.generate(PROMPTS, PARAMS, request_type=types)
    assert llm.recorder is not None
    assert llm.recorder.flush()
    rows = load(llm.recorder.path, last=3)
    assert [row.request_id for row in rows] == [result.request_id for result in results]
    assert [row.request_type for row in rows] == ["copy", "other", "code"]
    for row, result in zip(rows, results, strict=True):
        told, [draft] = result.speculative, row.drafts
        assert (row.drafter, draft.drafter) == ("model", "model")
        assert (row.prompt_tokens, row.completion_tokens) == (result.usage.prompt_tokens, 24)
        assert (draft.steps, draft.drafted) == (told.target_steps, told.drafted)
        assert (draft.accepted, draft.rejections) == (told.accepted, told.rejections)
        assert draft.drafted_at == told.drafted_per_position
        assert draft.accepted_at == told.accepted_per_position
        assert sum(draft.accepted_at) == draft.accepted > 0
        assert sum(draft.rejected_at) == draft.rejections
        assert draft.asked >= draft.drafted
        assert sum(row.times.steps.values()) == draft.steps
        assert sum(row.times.tokens.values()) == 24
        # The three go through their steps together; the first one reads the prompts.
        assert row.times.clean_steps <= draft.steps - 1
        assert row.times.sharing >= row.times.clean_steps
        assert row.times.plain_seconds is None  # a fixed k measures no costs
        assert row.first_token_seconds == result.timing.first_token_seconds
        assert row.total_seconds == result.timing.total_seconds
        assert (row.prompt, row.answer) == (None, None)


def test_samples_are_one_row(llm: LLM) -> None:
    params = SamplingParams(max_tokens=8, n=3, temperature=1.0, seed=1, ignore_eos=True)
    [result] = llm.generate("hello", params)
    assert llm.recorder is not None
    llm.recorder.flush()
    [row] = load(llm.recorder.path, last=1)
    assert row.samples == 3
    assert row.completion_tokens == row.drafts[0].emitted == 24
    assert row.drafts[0].steps == sum(one.speculative.target_steps for one in result.outputs)


def test_a_stream_that_is_left_is_a_row_too(llm: LLM) -> None:
    stream = llm.stream("1 2 3", PARAMS, request_type="count")
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert llm.recorder is not None
    llm.recorder.flush()
    [row] = load(llm.recorder.path, last=1)
    assert (row.request_type, row.finish_reason) == ("count", "abort")
    assert 0 < row.completion_tokens < 24


def test_texts_are_kept_only_where_they_were_asked_for(tiny_folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    llm = LLM(str(tiny_folder), "ngram", dtype="fp32", record=path, record_text=True, threads=1)
    [result] = llm.generate("1 2 3 grüße", PARAMS)
    assert llm.recorder is not None
    llm.recorder.close()
    [row] = load(path)
    assert row.prompt == "1 2 3 grüße"
    assert row.answer == result.text
    assert row.times.plain_seconds is not None  # an automatic k measures costs
    assert row.times.plain_seconds > 0


def test_a_record_that_cannot_be_is_refused_before_a_model_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(InvalidValueError, match="another file"):
        LLM(str(tmp_path / "no model"), record=tmp_path / "notes.txt")
    with pytest.raises(InvalidValueError, match="record=PATH"):
        LLM(str(tmp_path / "no model"), record_text=True)
