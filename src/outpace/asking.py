"""What callers of `LLM` hand over: one prompt or many, and a value for all or for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from outpace.control.features import conversation_text
from outpace.errors import InvalidValueError
from outpace.request import SamplingParams

Prompt = str | Sequence[int]
Message = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Said:
    """A prompt as far as the rules for types look at it.

    Attributes:
        words: its text; "" where it came as token ids.
        messages: of a conversation; 0 of a bare text.
    """

    words: str
    messages: int

    @classmethod
    def text(cls, prompt: Any) -> Said:
        """Of a bare prompt."""
        return cls(prompt if isinstance(prompt, str) else "", 0)

    @classmethod
    def conversation(cls, messages: Sequence[Message]) -> Said:
        """Of a conversation."""
        return cls(conversation_text(messages), len(messages))


def as_prompts(prompts: Prompt | Sequence[Prompt]) -> Sequence[Prompt]:
    """A list of prompts, also of a single one."""
    if isinstance(prompts, str):
        return [prompts]
    if not isinstance(prompts, Sequence):
        raise InvalidValueError("prompts", prompts, "give a text, a list of ids, or a list of both")
    if isinstance(prompts, bytes):
        raise InvalidValueError("prompts", prompts, "decode it to a text first")
    if len(prompts) > 0 and not isinstance(prompts[0], str | Sequence):
        return [prompts]  # type: ignore[list-item]
    return prompts  # type: ignore[return-value]


def for_each(name: str, value: Any, length: int, kind: type) -> list[Any]:
    """One value for each prompt, from none, one for all, or one for each."""
    default = SamplingParams() if kind is SamplingParams else None
    if value is None or isinstance(value, kind):
        return [default if value is None else value] * length
    if not isinstance(value, list | tuple):
        raise InvalidValueError(name, value, f"give a {kind.__name__}, or one for each prompt")
    if len(value) != length:
        wanted = f"there are {length} prompts; give one for all or one for each"
        raise InvalidValueError(name, f"{len(value)} of them", wanted)
    for one in value:
        if one is not None and not isinstance(one, kind):
            raise InvalidValueError(name, one, f"must be a {kind.__name__}")
    return [default if one is None else one for one in value]
