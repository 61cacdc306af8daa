"""How deep a structure from outside may be nested: templates and copies walk it recursively."""

from __future__ import annotations

from collections.abc import Mapping

MAX_DEPTH = 64


def too_deep(value: object) -> bool:
    """Whether lists and objects stand in each other more than ``MAX_DEPTH`` times."""
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _members(outer)]
        if not level:
            return False
    return True


def _members(value: object) -> list[object]:
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else []
