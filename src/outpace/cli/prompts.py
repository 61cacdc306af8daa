"""From what was typed to what the model gets."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from outpace.errors import InvalidValueError

if TYPE_CHECKING:
    from outpace.llm import LLM
    from outpace.request import RequestOutput, SamplingParams


def read_prompt(argument: str) -> str:
    """Return the prompt: the argument itself, or for ``-`` all of stdin without its last line feed.

    Raises:
        InvalidValueError: nothing there, or not UTF-8.
    """
    text = argument
    if argument == "-":
        data = sys.stdin.buffer.read()
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InvalidValueError(
                "PROMPT", "-", f"byte {error.start} on stdin is not UTF-8; convert the input"
            ) from None
        text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        where = "; nothing came from stdin" if argument == "-" else ""
        raise InvalidValueError("PROMPT", text, f"must have at least one character{where}")
    return text


def as_messages(prompt: str, system: str | None) -> list[dict[str, str]]:
    """Return a conversation that consists of one question."""
    messages = [{"role": "system", "content": system}] if system is not None else []
    return [*messages, {"role": "user", "content": prompt}]


def wants_chat(llm: LLM, chat: bool | None, system: str | None) -> bool:
    """Whether the prompt goes through the chat template; without a word, if there is one.

    Raises:
        InvalidValueError: a system message without a chat template to put it in.
    """
    if chat is None:
        chat = system is not None or llm.tokenizer.chat_template is not None
    if not chat and system is not None:
        raise InvalidValueError("system", system, "needs a chat: leave out --raw")
    return chat


def generate_whole(
    llm: LLM, prompt: str | Sequence[dict[str, str]], params: SamplingParams
) -> RequestOutput:
    """Return the result of one prompt or conversation, all at once."""
    if isinstance(prompt, str):
        return llm.generate(prompt, params)[0]
    return llm.chat(prompt, params)[0]
