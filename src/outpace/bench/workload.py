"""What is asked: prompts by task, ours or anyone's, from a file of JSON lines."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from outpace.config import check_integer
from outpace.errors import InvalidValueError, OutpaceError

TASKS = (
    "code",
    "summarization",
    "rag",
    "translation",
    "math",
    "qa",
    "chat",
    "extraction",
    "edit",
)
SHIPPED = "shipped"

# The categories of Spec-Bench (Xia et al. 2024, arXiv 2401.07851) in our words.
_CATEGORIES = {
    "coding": "code",
    "math_reasoning": "math",
    "reasoning": "chat",
    "writing": "chat",
    "roleplay": "chat",
    "stem": "chat",
    "humanities": "chat",
}
_OUR_KEYS = {"id", "task", "prompt", "messages", "prediction", "max_tokens"}


class WorkloadError(OutpaceError):
    """A workload cannot be read or has a line that is not a prompt."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One prompt.

    Attributes:
        id: unique within its workload.
        task: one of `TASKS`, or a word of the file's own.
        messages: the conversation; a bare prompt is one message of the user.
        prediction: what a caller could expect the answer to be.
        max_tokens: length of the answer; None: the run's.
        unused_turns: later turns of the file's conversation, which need the model's own
            answers and are not asked.
    """

    id: str
    task: str
    messages: tuple[tuple[str, str], ...]
    prediction: str | None = None
    max_tokens: int | None = None
    unused_turns: int = 0

    @property
    def conversation(self) -> list[dict[str, str]]:
        """The messages as the chat template and servers want them."""
        return [{"role": role, "content": content} for role, content in self.messages]

    @property
    def text(self) -> str:
        """All messages joined, for models without a chat template."""
        return "\n\n".join(content for _, content in self.messages)


@dataclass(frozen=True, slots=True)
class Workload:
    """Prompts with the name they are known by, and what was wrong in their file."""

    name: str
    entries: tuple[Entry, ...]
    skipped: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Changes with any prompt, prediction or length; says whether two runs asked the same."""
        content = json.dumps([[e.id, e.messages, e.prediction, e.max_tokens] for e in self.entries])
        return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def selected(self, tasks: Sequence[str], per_task: int) -> Workload:
        """Return at most ``per_task`` prompts (0: all) of each of the tasks, tasks taking turns.

        With the tasks in turns a run that is stopped early, or a group of requests that run
        together, holds a bit of everything.

        Raises:
            InvalidValueError: a task of which there are no prompts.
        """
        check_integer("per_task", per_task, 0)
        there = list(dict.fromkeys(entry.task for entry in self.entries))
        for task in tasks:
            if task not in there:
                way_out = f"the workload has {', '.join(there)}"
                raise InvalidValueError("task", task, way_out)
        columns = [
            [entry for entry in self.entries if entry.task == task][: per_task or None]
            for task in (tasks or there)
        ]
        depth = max(len(column) for column in columns)
        chosen = [column[i] for i in range(depth) for column in columns if i < len(column)]
        return Workload(self.name, tuple(chosen), self.skipped)


def load(name: str, *, skip_bad: bool = False) -> Workload:
    """Read a workload: ``shipped``, or a file of JSON lines in our layout or Spec-Bench's.

    Ours: ``{"task", "prompt" or "messages", "prediction"?, "max_tokens"?, "id"?}``. Spec-Bench's:
    ``{"question_id", "category", "turns"}``, of which the first turn is asked.

    Args:
        name: ``shipped`` or a path.
        skip_bad: leave out lines that cannot be used, and say which, instead of refusing.

    Raises:
        WorkloadError: no such file, not UTF-8, a bad line, or nothing in it.
    """
    if name == SHIPPED:
        text = (files("outpace.bench") / "workload.jsonl").read_text("utf-8")
    else:
        text = _read(name)
    entries: dict[str, Entry] = {}
    wrong: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            entry = _entry(line, number)
            if entry.id in entries:
                raise ValueError(f"the id {entry.id!r} was there before")
            entries[entry.id] = entry
        except ValueError as error:
            wrong.append(f"line {number}: {error}")
    if wrong and not skip_bad:
        more = f" (and {len(wrong) - 1} more lines)" if len(wrong) > 1 else ""
        way_out = "correct it, or give --skip-bad-lines to run the rest"
        raise WorkloadError(f"workload {name}: {wrong[0]}{more}; {way_out}")
    if not entries:
        reason = wrong[0] if wrong else "it is empty"
        raise WorkloadError(f"workload {name}: has no prompt that can be asked: {reason}")
    return Workload(name, tuple(entries.values()), tuple(wrong))


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise WorkloadError(
            f"workload {path}: byte {error.start} is not UTF-8; convert the file"
        ) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "its name is not one of a file"
        raise WorkloadError(
            f"workload {path}: cannot be read: {reason}; give a file of JSON lines, or 'shipped'"
        ) from error


def _entry(line: str, number: int) -> Entry:
    """Read a line; raises ValueError with the reason in words."""
    try:
        value = json.loads(line)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError("must be an object in braces")
    if "turns" in value or "category" in value:
        return _spec_bench_entry(value)
    unknown = sorted(set(value) - _OUR_KEYS)
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}; known are {', '.join(sorted(_OUR_KEYS))}")
    task = _text(value, "task")
    if task == "all":
        raise ValueError("the task 'all' stands for all tasks together; choose another word")
    prediction = value.get("prediction")
    if prediction is not None:
        prediction = _text(value, "prediction")
    length = value.get("max_tokens")
    if length is not None and (type(length) is not int or length < 1):
        raise ValueError(f"max_tokens = {length!r} must be an integer of at least 1")
    name = str(value["id"]) if "id" in value else f"{task}-line-{number}"
    return Entry(name, task, _messages(value), prediction, length)


def _messages(value: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    if ("prompt" in value) == ("messages" in value):
        raise ValueError("needs either a prompt or messages")
    if "prompt" in value:
        return (("user", _text(value, "prompt")),)
    messages = value["messages"]
    if not isinstance(messages, list) or not messages:
        raise ValueError("messages must be a list with at least one message")
    pairs = []
    for message in messages:
        if not isinstance(message, dict):
            raise ValueError("a message must be an object with role and content")
        pairs.append((_text(message, "role"), _text(message, "content")))
    return tuple(pairs)


def _spec_bench_entry(value: dict[str, Any]) -> Entry:
    turns = value.get("turns")
    if not isinstance(turns, list) or not turns:
        raise ValueError("turns must be a list with at least one text")
    first = turns[0]
    if not isinstance(first, str) or not first.strip():
        raise ValueError("the first of the turns must be a text")
    if "question_id" not in value:
        raise ValueError("needs a question_id")
    category = _text(value, "category")
    return Entry(
        id=str(value["question_id"]),
        task=_CATEGORIES.get(category, category),
        messages=(("user", first),),
        unused_turns=len(turns) - 1,
    )


def _text(value: dict[str, Any], key: str) -> str:
    text = value.get(key)
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"{key} must be a text that is not empty")
    return text
