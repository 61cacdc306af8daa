"""What is captured: prompts for the target to answer, or texts as they are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outpace.errors import InvalidValueError

SHORTEST_TEXT = 16  # characters


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of work.

    Attributes:
        kind: of request; empty if unknown.
        messages: a conversation that the target answers, or none.
        text: taken as it is where there are no messages.
    """

    kind: str
    messages: tuple[tuple[str, str], ...]
    text: str = ""

    @property
    def key(self) -> str:
        """Names the entry by its content."""
        content = json.dumps([self.messages, self.text])
        return hashlib.sha256(content.encode()).hexdigest()[:16]


def read_entries(path: Path) -> Iterator[Entry]:
    """Read a file: ``.jsonl`` line by line, anything else as one text.

    A line of JSON has ``prompt`` or ``messages`` or ``text``, and may have a ``kind``.

    Raises:
        InvalidValueError: it is missing, empty, not UTF-8, or a line is none of these.
    """
    try:
        content = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise InvalidValueError("file", str(path), f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        where = f"byte {error.start} is not UTF-8; convert it: iconv -f latin1 -t utf-8"
        raise InvalidValueError("file", str(path), where) from error
    if not content.strip():
        raise InvalidValueError("file", str(path), "is empty; give prompts or a text")
    if path.suffix != ".jsonl":
        yield _text(content, "", path, 1)
        return
    for number, line in enumerate(content.split("\n"), 1):
        if line.strip():
            yield _entry(line, path, number)


def _entry(line: str, path: Path, number: int) -> Entry:
    try:
        said: dict[str, Any] = json.loads(line)
        kind = str(said.get("kind", ""))
        given = [name for name in ("prompt", "messages", "text") if name in said]
        if len(given) != 1:
            raise ValueError
        if "text" in said:
            return _text(said["text"], kind, path, number)
        messages = said.get("messages", [{"role": "user", "content": said.get("prompt")}])
        turns = tuple((turn["role"], turn["content"]) for turn in messages)
        if not turns or not all(isinstance(part, str) and part for turn in turns for part in turn):
            raise ValueError
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if isinstance(error, InvalidValueError):
            raise
        wanted = 'must be like {"prompt": "…"}, {"messages": […]} or {"text": "…"}'
        raise InvalidValueError(f"{path}, line {number}", line, wanted) from error
    return Entry(kind, turns)


def _text(text: Any, kind: str, path: Path, number: int) -> Entry:
    if not isinstance(text, str) or len(text.strip()) < SHORTEST_TEXT:
        wanted = f"too short to learn from; give texts of {SHORTEST_TEXT} characters or more"
        raise InvalidValueError(f"{path}, line {number}", text, wanted)
    return Entry(kind, (), text)


def read_all(paths: Sequence[Path]) -> list[Entry]:
    """The entries of files, without repetition.

    Raises:
        InvalidValueError: see `read_entries`.
    """
    return list({entry.key: entry for path in paths for entry in read_entries(path)}.values())
