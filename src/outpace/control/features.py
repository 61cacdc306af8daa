"""What is known of a request before it starts, as far as its type and drafter depend on it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from outpace.config import check_integer

# Characters at either end of the prompt that are looked at. Instructions stand at an end, and
# the middle of a long document says no more than its ends.
WINDOW = 1000
_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True)
class Features:
    """A request in a few cheap facts.

    Attributes:
        prompt: its text, or "" where the caller has token ids alone.
        prompt_tokens: length of the prompt.
        label: the client's own name for this type of request.
        structured: whether the answer must fit a schema or a grammar.
        tools: tools that the model may call.
        prediction_tokens: length of the answer that the client expects; 0 if it expects none.
        messages: of a conversation; 0 where bare text is to be continued.
        greedy: whether the likeliest token is always taken.
    """

    prompt: str = ""
    prompt_tokens: int = 0
    label: str | None = None
    structured: bool = False
    tools: int = 0
    prediction_tokens: int = 0
    messages: int = 0
    greedy: bool = True

    def __post_init__(self) -> None:
        for name in ("prompt_tokens", "tools", "prediction_tokens", "messages"):
            check_integer(name, getattr(self, name), 0)

    @cached_property
    def ends(self) -> str:
        """Head and tail of the prompt, all that rules may look at; at most 2 windows."""
        if len(self.prompt) <= 2 * WINDOW:
            return self.prompt
        return f"{self.prompt[:WINDOW]}\n{self.prompt[-WINDOW:]}"

    @cached_property
    def lowered(self) -> str:
        """The ends in lower case."""
        return self.ends.lower()

    @cached_property
    def words(self) -> list[str]:
        """The words of the ends, in lower case."""
        return _WORD.findall(self.lowered)


def conversation_text(messages: Iterable[Mapping[str, Any]]) -> str:
    """What is said in a conversation, one message after the other; parts of text only."""
    return "\n".join(_content_text(message.get("content")) for message in messages)


def _content_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list | tuple) else ()
    texts = (part.get("text") for part in parts if isinstance(part, Mapping))
    return "\n".join(text for text in texts if isinstance(text, str))
