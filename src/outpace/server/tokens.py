"""Tokens as clients see them beside a text: spelled out, in bytes, with their log-probability."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from outpace.request import TokenLogprob
from outpace.text.tokenizer import Tokenizer

# What OpenAI writes for a token that is all but impossible; JSON has no infinity.
_LOWEST = -9999.0


class TokenTexts:
    """Shows tokens, also those that are only a part of a character."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._known = tokenizer.token_bytes()

    def bytes(self, token_id: int) -> builtins.bytes:
        """What a token stands for; nothing for one that the vocabulary lacks."""
        return self._known.get(token_id, b"")

    def chat(self, logprobs: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
        """Entries of ``logprobs.content`` of a chat completion."""
        return [
            self._entry(one.token_id, one.logprob)
            | {"top_logprobs": [self._entry(*pair) for pair in one.top.items()]}
            for one in logprobs
        ]

    def _entry(self, token_id: int, logprob: float) -> dict[str, Any]:
        data = self.bytes(token_id)
        return {"token": _text(data), "logprob": finite(logprob), "bytes": list(data)}

    def shown(self, token_id: int) -> str:
        """A token as completions spell it: ``bytes:…`` where it is a part of a character."""
        data = self.bytes(token_id)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return f"bytes:{_text(data)}"

    def top(self, one: TokenLogprob) -> dict[str, float]:
        """The likeliest tokens and the token itself, by text."""
        pairs = {**one.top, one.token_id: one.logprob}
        return {self.shown(token): finite(logprob) for token, logprob in pairs.items()}


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return "".join(f"\\x{byte:02x}" for byte in data)


def finite(logprob: float) -> float:
    """A log-probability that JSON can write."""
    return max(logprob, _LOWEST)
