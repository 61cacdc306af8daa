"""What tools there are and which the model may or must call, as the OpenAI API writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from outpace.errors import InvalidValueError
from outpace.text.tools.depth import MAX_DEPTH, too_deep

MAX_TOOLS = 128
_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
_NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the model may call.

    Attributes:
        name: letters, digits, ``_``, ``-`` and ``.``; at most 64.
        definition: the whole entry as JSON, as the chat template shows it to the model.
        parameters: the JSON schema of its arguments, as JSON; always that of an object.
        strict: whether the caller relies on arguments that the schema accepts.
    """

    name: str
    definition: str
    parameters: str
    strict: bool = False


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Which tools may be called: ``none``, ``auto``, ``required``, or ``named`` with a name."""

    kind: Literal["none", "auto", "required", "named"]
    name: str = ""


def read_tools(value: object) -> tuple[Tool, ...]:
    """The tools of a request.

    Args:
        value: a list of ``{"type": "function", "function": {"name", "description",
            "parameters", "strict"}}``, or None.

    Raises:
        InvalidValueError: something else, with the place.
    """
    if value is None:
        return ()
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InvalidValueError("tools", value, "must be a list")
    if len(value) > MAX_TOOLS:
        raise InvalidValueError("tools", f"{len(value)} tools", f"give at most {MAX_TOOLS}")
    tools = tuple(_read_tool(f"tools[{i}]", entry) for i, entry in enumerate(value))
    names = [tool.name for tool in tools]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise InvalidValueError(f"tools[{i}].function.name", name, "is there already")
    return tools


def _read_tool(where: str, entry: object) -> Tool:
    function = entry.get("function") if isinstance(entry, Mapping) else None
    if not isinstance(entry, Mapping) or entry.get("type", "function") != "function":
        raise InvalidValueError(where, entry, 'must be {"type": "function", "function": {…}}')
    if not isinstance(function, Mapping):
        raise InvalidValueError(f"{where}.function", function, "must be an object with a name")
    if too_deep(entry):
        raise InvalidValueError(where, entry, f"must not be nested more than {MAX_DEPTH} deep")
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        wanted = "must be 1 to 64 letters, digits, underscores, hyphens or dots"
        raise InvalidValueError(f"{where}.function.name", name, wanted)
    description = function.get("description")
    if description is not None and not isinstance(description, str):
        raise InvalidValueError(f"{where}.function.description", description, "must be a text")
    strict = function.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise InvalidValueError(f"{where}.function.strict", strict, "must be true or false")
    parameters = function.get("parameters") or _NO_ARGUMENTS
    if not isinstance(parameters, Mapping) or parameters.get("type", "object") != "object":
        wanted = "must be the JSON schema of an object"
        raise InvalidValueError(f"{where}.function.parameters", parameters, wanted)
    try:
        definition = json.dumps({"type": "function", "function": dict(function)}, allow_nan=False)
        schema = json.dumps({"type": "object", **parameters}, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValueError(where, entry, f"must be plain JSON: {error}") from error
    return Tool(name, definition, schema, bool(strict))


def read_choice(value: object, tools: Sequence[Tool]) -> ToolChoice:
    """Which tools may be called.

    Args:
        value: ``"none"``, ``"auto"``, ``"required"``, ``{"type": "function", "function":
            {"name": …}}``, or None: ``auto`` where there are tools.
        tools: of the same request.

    Raises:
        InvalidValueError: something else, or a name that no tool has.
    """
    if value is None:
        return ToolChoice("auto" if tools else "none")
    if value == "none":
        return ToolChoice("none")
    if value in ("auto", "required"):
        if not tools:
            raise InvalidValueError("tool_choice", value, "needs tools to choose from")
        return ToolChoice("auto" if value == "auto" else "required")
    function: Any = value.get("function") if isinstance(value, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str):
        wanted = 'choose none, auto, required, or {"type": "function", "function": {"name": …}}'
        raise InvalidValueError("tool_choice", value, wanted)
    if name not in [tool.name for tool in tools]:
        there = ", ".join(tool.name for tool in tools) or "none"
        raise InvalidValueError("tool_choice", name, f"choose one of the tools: {there}")
    return ToolChoice("named", name)
