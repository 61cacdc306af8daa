"""The grammar of calls, for requests that must call: the family's way of writing around schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from outpace.grammar import Grammar
from outpace.text.tools.definition import Tool
from outpace.text.tools.family import CallFormat

_SPACE = {"whitespace_pattern": r"[\x20\x0A\x0D\x09]{0,16}"}


def call_grammar(
    form: CallFormat, tools: Sequence[Tool], *, parallel: bool, control: Mapping[str, int]
) -> Grammar:
    """One call of one of the tools, or several.

    Args:
        form: the family's way of writing.
        tools: those that may be called; at least one.
        parallel: whether several calls may follow each other, where the family can write that.
        control: the model's control tokens, which no text spells, with their ids.
    """
    literal = _Literals(control)
    names = [f"call_{i}" for i in range(len(tools))]
    rules = [f"one: {' | '.join(names)}"]
    for i, tool in enumerate(tools):
        rules.append(f"call_{i}: {_call(form, tool, f'arguments_{i}', literal)}")
        rules.append(f"arguments_{i}: %json {_schema(tool)}")
    begin, between = literal(form.begin), form.between
    if form.bare:
        start = "one"
    elif form.after_name:
        start = f"({begin} one)+" if parallel else f"{begin} one"
    elif form.listed:
        more = f" ({literal(between)} one)*" if parallel else ""
        start = f"{begin} {literal('[')} one{more} {literal(']')}"
    else:
        single = f"{literal(form.begin + form.lead)} one {literal(form.trail + form.end)}"
        start = f"{single} ({literal(between)} {single})*" if parallel else single
    return Grammar("tools", "\n".join([f"start: {start}", *rules]))


def _call(form: CallFormat, tool: Tool, arguments: str, literal: _Literals) -> str:
    if form.after_name:
        return f"{literal(tool.name)} {literal(form.after_name)} {arguments}"
    head = f'{{"name": {json.dumps(tool.name)}, "{form.arguments}": '
    return f"{literal(head)} {arguments} {literal('}')}"


def _schema(tool: Tool) -> str:
    """The arguments' schema; what it asks beyond the library's means is left out unless strict."""
    schema = json.loads(tool.parameters)
    return json.dumps({"x-guidance": {**_SPACE, "lenient": not tool.strict}, **schema})


class _Literals:
    """Texts as the grammar writes them; a control token is named by its number."""

    def __init__(self, control: Mapping[str, int]) -> None:
        self._control = control

    def __call__(self, text: str) -> str:
        number = self._control.get(text)
        return json.dumps(text) if number is None else f"<[{number}]>"
