"""Tools in words, for models whose chat template cannot show them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from outpace.text.tools.definition import Tool
from outpace.text.tools.family import GENERIC

_ASK = (
    "You can call these functions. Each line describes one as JSON:\n{tools}\n\n"
    "To call one, write its name and its arguments like this, and nothing after it:\n"
    '{begin}\n{{"name": "FUNCTION", "arguments": {{"ARGUMENT": "VALUE"}}}}\n{end}'
)


def with_instructions(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Tool]
) -> list[dict[str, Any]]:
    """The messages with the tools in the system message, and earlier calls as plain text."""
    listed = "\n".join(tool.definition for tool in tools)
    told = _ASK.format(tools=listed, begin=GENERIC.begin, end=GENERIC.end)
    plain = [_plain(message) for message in messages]
    if plain and plain[0]["role"] == "system":
        system = {**plain[0], "content": f"{plain[0]['content']}\n\n{told}"}
        return [system, *plain[1:]]
    return [{"role": "system", "content": told}, *plain]


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message without calls or results, which such a template would drop or refuse."""
    content = message["content"]
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{content}\n</tool_response>"}
    parts = [content] if content else []
    for call in message.get("tool_calls", ()):
        written = json.dumps(call["function"], ensure_ascii=False)
        parts.append(f"{GENERIC.begin}\n{written}\n{GENERIC.end}")
    return {"role": message["role"], "content": "\n".join(parts)}
