"""What is captured: bad input is named with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from outpace.errors import InvalidValueError
from outpace.train.entries import read_all


def test_prompts_conversations_and_texts(tmp_path: Path) -> None:
    lines = tmp_path / "a.jsonl"
    lines.write_text(
        '{"prompt": "hi", "kind": "chat"}\n\n{"messages": [{"role": "user", "content": "ho"}]}\n'
        '{"text": "a text that is long enough"}\n{"prompt": "hi"}\n',
        "utf-8",
    )
    text = tmp_path / "b.txt"
    text.write_text("Another text of some length.", "utf-8")
    found = read_all([lines, text])
    assert [bool(entry.messages) for entry in found] == [True, True, False, False]
    assert len({entry.key for entry in found}) == 4


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b"", "is empty"),
        ("a.txt", b" \n ", "is empty"),
        ("a.txt", b"caf\xe9 and more text", "byte 3 is not UTF-8"),
        ("a.jsonl", b'{"prompt": "\xff"}', "is not UTF-8"),
        ("a.txt", b"short", "too short to learn from"),
        ("a.jsonl", b'{"text": "short"}', "a.jsonl, line 1"),
        ("a.jsonl", b'{"prompt": "hi"}\nnot json\n', "a.jsonl, line 2"),
        ("a.jsonl", b'{"prompt": ""}', "must be like"),
        ("a.jsonl", b'{"prompt": 3}', "must be like"),
        ("a.jsonl", b"[1]", "must be like"),
        ("a.jsonl", b'{"prompt": "a", "text": "b"}', "must be like"),
        ("a.jsonl", b'{"messages": []}', "must be like"),
        ("a.jsonl", b'{"messages": [{"role": "user"}]}', "must be like"),
    ],
)
def test_bad_input(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(InvalidValueError, match=message):
        read_all([file])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="cannot be read"):
        read_all([tmp_path / "none.jsonl"])
