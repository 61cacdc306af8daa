"""Calls that an assistant made earlier, as they stand in a conversation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from outpace.errors import InvalidValueError
from outpace.text.tools.depth import too_deep

_WANTED = 'must be {"id": …, "type": "function", "function": {"name": …, "arguments": …}}'


def checked_calls(where: str, calls: object) -> list[dict[str, Any]]:
    """Copy the calls of a message; their arguments come out parsed where they are a JSON object.

    Args:
        where: the message, for the text of an error.
        calls: a list as the OpenAI API writes it, or None.

    Raises:
        InvalidValueError: something else.
    """
    if calls is None:
        return []
    if not isinstance(calls, Sequence) or isinstance(calls, str | bytes):
        raise InvalidValueError(f"{where}.tool_calls", calls, "must be a list")
    return [_checked(f"{where}.tool_calls[{i}]", call) for i, call in enumerate(calls)]


def _checked(where: str, call: object) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        raise InvalidValueError(where, call, _WANTED)
    name, arguments, number = function.get("name"), function.get("arguments"), call.get("id", "")
    if not isinstance(name, str) or not isinstance(number, str):
        raise InvalidValueError(where, call, _WANTED)
    if isinstance(arguments, str):
        arguments = _parsed(arguments)
    elif not isinstance(arguments, Mapping) or too_deep(arguments):
        raise InvalidValueError(f"{where}.function.arguments", arguments, "must be JSON as a text")
    return {"id": number, "type": "function", "function": {"name": name, "arguments": arguments}}


def _parsed(arguments: str) -> Any:
    """The object that a text stands for; the text itself where it is none."""
    try:
        found = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        return arguments
    return found if isinstance(found, dict) and not too_deep(found) else arguments
