from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from outpace.bench.workload import TASKS, Entry, Workload, WorkloadError, load
from outpace.errors import InvalidValueError


def write(folder: Path, *lines: Any) -> str:
    file = folder / "work.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    file.write_text("\n".join(texts), "utf-8")
    return str(file)


def test_the_shipped_workload_has_a_dozen_of_each_task() -> None:
    workload = load("shipped")
    assert Counter(entry.task for entry in workload.entries) == dict.fromkeys(TASKS, 12)
    assert len({entry.text for entry in workload.entries}) == 108
    assert workload.skipped == ()


def test_shipped_texts_have_a_fair_length() -> None:
    with_texts = {"summarization", "rag", "translation", "extraction", "edit"}
    words = [len(e.text.split()) for e in load("shipped").entries if e.task in with_texts]
    assert min(words) >= 60
    assert max(words) <= 400


def test_every_edit_expects_its_own_text_and_only_edits_expect_something() -> None:
    for entry in load("shipped").entries:
        assert (entry.prediction is not None) == (entry.task == "edit")
        assert entry.prediction is None or entry.text.endswith(entry.prediction)


def test_no_two_shipped_texts_share_a_sentence() -> None:
    seen: dict[str, str] = {}
    for entry in load("shipped").entries:
        for sentence in entry.text.split(". "):
            if len(sentence.split()) > 8:
                assert seen.setdefault(sentence, entry.id) == entry.id


def test_our_layout(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        {"task": "qa", "prompt": "Why?"},
        "",
        {
            "id": 7,
            "task": "own word",
            "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}],
            "prediction": "P",
            "max_tokens": 5,
        },
    )
    first, second = load(file).entries
    assert first == Entry("qa-line-1", "qa", (("user", "Why?"),))
    assert second.id == "7"
    assert second.conversation == [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "U"},
    ]
    assert (second.text, second.prediction, second.max_tokens) == ("S\n\nU", "P", 5)


def test_the_layout_of_spec_bench(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        {"question_id": 81, "category": "writing", "turns": ["One", "Two"]},
        {"question_id": 9, "category": "rag", "turns": ["Three"], "reference": ["x"]},
    )
    first, second = load(file).entries
    assert (first.id, first.task, first.text, first.unused_turns) == ("81", "chat", "One", 1)
    assert (second.id, second.task, second.text, second.unused_turns) == ("9", "rag", "Three", 0)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "line 2: is not JSON"),
        ("[1]", "line 2: must be an object"),
        ({"task": "qa"}, "line 2: needs either a prompt or messages"),
        ({"prompt": "x"}, "line 2: task must be a text"),
        ({"task": "qa", "prompt": " "}, "line 2: prompt must be a text that is not empty"),
        ({"task": "qa", "prompt": 3}, "line 2: prompt must be a text"),
        ({"task": "qa", "messages": []}, "line 2: messages must be a list"),
        ({"task": "qa", "messages": [1]}, "line 2: a message must be an object"),
        ({"task": "qa", "messages": [{"role": "user"}]}, "line 2: content must be a text"),
        ({"task": "qa", "prompt": "x", "max_tokens": True}, "line 2: max_tokens = True"),
        ({"task": "qa", "prompt": "x", "promt": "y"}, "line 2: unknown key 'promt'"),
        ({"task": "all", "prompt": "x"}, "line 2: the task 'all'"),
        ({"task": "qa", "prompt": "x", "id": "a"}, "line 2: the id 'a' was there before"),
        ({"question_id": 1, "category": "qa"}, "line 2: turns must be a list"),
        ({"question_id": 1, "category": "qa", "turns": [3]}, "line 2: the first of the turns"),
        ({"category": "qa", "turns": ["x"]}, "line 2: needs a question_id"),
        ("[" * 100_000, "line 2: is "),
    ],
)
def test_a_bad_line_is_named_and_the_rest_can_run(tmp_path: Path, line: Any, reason: str) -> None:
    good = {"id": "a", "task": "qa", "prompt": "Why?"}
    file = write(tmp_path, good, line)
    with pytest.raises(WorkloadError) as caught:
        load(file)
    assert reason in str(caught.value)
    assert "--skip-bad-lines" in str(caught.value)
    workload = load(file, skip_bad=True)
    assert [entry.id for entry in workload.entries] == ["a"]
    [skipped] = workload.skipped
    assert skipped.startswith(reason)


def test_an_empty_workload_and_one_of_bad_lines_only(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="no prompt that can be asked: it is empty"):
        load(write(tmp_path, "", "  "))
    with pytest.raises(WorkloadError, match="no prompt that can be asked: line 1"):
        load(write(tmp_path, "{"), skip_bad=True)


def test_a_file_that_is_not_there_or_no_text(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="cannot be read"):
        load(str(tmp_path / "none.jsonl"))
    with pytest.raises(WorkloadError, match="cannot be read"):
        load("a\0b")
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    with pytest.raises(WorkloadError, match="byte 3 is not UTF-8"):
        load(str(tmp_path / "latin"))


def entries(*names: str) -> Workload:
    made = [Entry(name, name[0], (("user", name),)) for name in names]
    return Workload("made", tuple(made))


def test_a_selection_takes_tasks_in_turns() -> None:
    whole = entries("a1", "a2", "a3", "b1", "b2", "c1")
    assert [e.id for e in whole.selected([], 2).entries] == ["a1", "b1", "c1", "a2", "b2"]
    assert [e.id for e in whole.selected(["b"], 0).entries] == ["b1", "b2"]
    with pytest.raises(InvalidValueError, match="the workload has a, b, c"):
        whole.selected(["d"], 1)


def test_the_fingerprint_tells_work_apart() -> None:
    assert entries("a1", "b1").fingerprint == entries("a1", "b1").fingerprint
    assert entries("a1", "b1").fingerprint != entries("a1", "b2").fingerprint
