"""Prompts by task, rendered once through the target's chat template for all systems."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from outpace.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Prompt:
    """One request, the same for every system.

    Attributes:
        task: what kind of request it is.
        name: task and number.
        ids: its tokens, the chat template's included.
        text: what these tokens spell, for systems that read text only.
    """

    task: str
    name: str
    ids: list[int]
    text: str


def read(file: Path) -> dict[str, list[str]]:
    """Questions by task.

    Lines of JSON have ``category`` and ``turns`` (Spec-Bench's layout; the first turn is taken)
    or ``task`` and ``prompt``.

    Raises:
        ValueError: a line is neither; the text says which.
    """
    tasks: dict[str, list[str]] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            task = entry["category"] if "category" in entry else entry["task"]
            question = entry["turns"][0] if "turns" in entry else entry["prompt"]
        except (ValueError, LookupError, TypeError) as error:
            wanted = "a line has category and turns, or task and prompt"
            raise ValueError(f"{file}:{number}: {wanted} ({error!r})") from error
        tasks.setdefault(task, []).append(question)
    return tasks


def choose(
    tasks: dict[str, list[str]], names: Sequence[str], per_task: int, longest: int
) -> list[tuple[str, str]]:
    """The first questions of each task that are short enough, as (task, question).

    Raises:
        ValueError: an unknown task, or one without a question of at most ``longest`` characters.
    """
    chosen = []
    for name in names or list(tasks):
        if name not in tasks:
            raise ValueError(f"task {name!r}: not in the file; it has {', '.join(tasks)}")
        fitting = [question for question in tasks[name] if len(question) <= longest]
        if not fitting:
            raise ValueError(f"task {name!r}: no prompt of at most {longest} characters")
        chosen += [(name, question) for question in fitting[:per_task]]
    return chosen


def render(tokenizer: Tokenizer, questions: Sequence[tuple[str, str]]) -> list[Prompt]:
    """Put each question into the target's chat template."""
    prompts = []
    seen: dict[str, int] = {}
    for task, question in questions:
        seen[task] = seen.get(task, 0) + 1
        ids = tokenizer.encode_chat([{"role": "user", "content": question}])
        text = tokenizer.decode(ids, skip_special_tokens=False)
        prompts.append(Prompt(task, f"{task} {seen[task]}", ids, text))
    return prompts
