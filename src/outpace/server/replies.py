"""Replies: every piece of an answer in OpenAI's shape, and whole answers made of these pieces.

A whole reply is put together from the very pieces that a stream sends, so that the two cannot
differ.
"""

from __future__ import annotations

import codecs
import copy
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from outpace.control.types import Typed
from outpace.request import FinishReason, RequestOutput, StreamChunk
from outpace.server.tokens import TokenTexts, finite
from outpace.text.tools.parser import ArgumentsDelta, CallStart, Delta, TextDelta
from outpace.text.tools.setup import ToolSetup

Piece = dict[str, Any]


class Choice(Protocol):
    """One answer of several, on its way."""

    def begin(self) -> Iterator[Piece]:
        """The pieces before the first token."""
        ...

    def take(self, chunk: StreamChunk) -> Iterator[Piece]:
        """The pieces that a chunk makes; the last has a ``finish_reason``."""
        ...

    def whole(self) -> Piece:
        """The choice of a reply that is not streamed."""
        ...


class ChatChoice:
    """An answer of a chat completion; its calls are read out where there are ``tools``."""

    def __init__(self, texts: TokenTexts, logprobs: bool, tools: ToolSetup | None) -> None:
        self._texts = texts
        self._tools = tools
        self._parser = tools.parser() if tools is not None else None
        self._logprobs: list[dict[str, Any]] | None = [] if logprobs else None
        self._content = ""
        self._calls: list[dict[str, Any]] = []
        self._end: Piece = {}

    def begin(self) -> Iterator[Piece]:
        """The role, which clients expect first."""
        yield {"delta": {"role": "assistant", "content": ""}, "logprobs": None}

    def take(self, chunk: StreamChunk) -> Iterator[Piece]:
        """Pieces with what is new, and one that says why the answer is over."""
        logprobs = None
        if self._logprobs is not None:
            entries = self._texts.chat(chunk.logprobs)
            self._logprobs.extend(entries)
            logprobs = {"content": entries, "refusal": None} if entries else None
        deltas = list(self._deltas(chunk))
        for delta in deltas or ([{"content": ""}] if logprobs else []):
            yield {"delta": delta, "logprobs": logprobs}
            logprobs = None  # they belong to the chunk, which may have several pieces
        if chunk.finish_reason is not None:
            called = self._calls and chunk.finish_reason is FinishReason.STOP
            reason = "tool_calls" if called else chunk.finish_reason.value
            self._end = {"finish_reason": reason, "stop_reason": chunk.stop_reason}
            yield {"delta": {}, "logprobs": None, **self._end}

    def _deltas(self, chunk: StreamChunk) -> Iterator[Piece]:
        if self._parser is None:
            if chunk.text:
                self._content += chunk.text
                yield {"content": chunk.text}
            return
        found = self._parser.push(chunk.text)
        if chunk.finish_reason is not None:
            found += self._parser.flush()
        for delta in found:
            yield self._delta(delta)
        if chunk.finish_reason is not None:
            for i, call in enumerate(self._calls):
                if not call["function"]["arguments"]:
                    yield self._delta(ArgumentsDelta(i, "{}"))

    def _delta(self, delta: Delta) -> Piece:
        """A piece of text or of a call, which is also kept for the whole reply."""
        match delta:
            case TextDelta():
                self._content += delta.text
                return {"content": delta.text}
            case CallStart():
                assert self._tools is not None
                call = {
                    "id": self._tools.new_call_id(),
                    "type": "function",
                    "function": {"name": delta.name, "arguments": ""},
                }
                self._calls.append(copy.deepcopy(call))
                return {"tool_calls": [{"index": delta.index, **call}]}
            case ArgumentsDelta():
                self._calls[delta.index]["function"]["arguments"] += delta.text
                function = {"arguments": delta.text}
                return {"tool_calls": [{"index": delta.index, "function": function}]}

    def whole(self) -> Piece:
        """The message."""
        logprobs = None
        if self._logprobs is not None:
            logprobs = {"content": self._logprobs, "refusal": None}
        message: Piece = {"role": "assistant", "content": self._content, "refusal": None}
        if self._calls:
            message["content"] = self._content or None
            message["tool_calls"] = self._calls
        return {"message": message, "logprobs": logprobs, **self._end}


class CompletionChoice:
    """An answer of a completion; ``echo`` is the prompt that it begins with, or empty."""

    def __init__(self, texts: TokenTexts, logprobs: int | None, echo: str) -> None:
        self._texts = texts
        self._top = logprobs
        self._echo = echo
        self._text: list[str] = []
        self._offset = len(echo)
        self._characters = codecs.getincrementaldecoder("utf-8")("replace")
        self._logprobs: dict[str, list[Any]] = {}
        self._end: Piece = {}

    def begin(self) -> Iterator[Piece]:
        """The prompt, if it is to be repeated."""
        if self._echo:
            self._text.append(self._echo)
            yield {"text": self._echo, "logprobs": None}

    def take(self, chunk: StreamChunk) -> Iterator[Piece]:
        """A piece with what is new and, at the end, why it is over."""
        logprobs = None
        if self._top is not None:
            logprobs = self._shown(chunk)
            for name, values in logprobs.items():
                self._logprobs.setdefault(name, []).extend(values)
        self._text.append(chunk.text)
        if chunk.finish_reason is not None:
            self._end = {
                "finish_reason": chunk.finish_reason.value,
                "stop_reason": chunk.stop_reason,
            }
        if chunk.text or logprobs or self._end:
            yield {"text": chunk.text, "logprobs": logprobs, **self._end}

    def _shown(self, chunk: StreamChunk) -> dict[str, list[Any]]:
        offsets = []
        for one in chunk.logprobs:
            offsets.append(self._offset)
            self._offset += len(self._characters.decode(self._texts.bytes(one.token_id)))
        return {
            "tokens": [self._texts.shown(one.token_id) for one in chunk.logprobs],
            "token_logprobs": [finite(one.logprob) for one in chunk.logprobs],
            "top_logprobs": [self._texts.top(one) for one in chunk.logprobs if self._top],
            "text_offset": offsets,
        }

    def whole(self) -> Piece:
        """The text."""
        logprobs = self._logprobs if self._top is not None else None
        return {"text": "".join(self._text), "logprobs": logprobs, **self._end}


def usage(outputs: Sequence[RequestOutput], predicted: bool) -> dict[str, Any]:
    """Token counts over all prompts and samples.

    Accepted and rejected prediction tokens are those that were drafted from the prediction.
    """
    prompt = sum(output.usage.prompt_tokens for output in outputs)
    completion = sum(output.usage.completion_tokens for output in outputs)
    drafted = accepted = 0
    for output in outputs if predicted else ():
        for sample in output.outputs:
            tried, taken = sample.speculative.by_source.get("prediction", (0, 0))
            drafted, accepted = drafted + tried, accepted + taken
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {
            "cached_tokens": sum(output.usage.cached_tokens for output in outputs)
        },
        "completion_tokens_details": {
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": drafted - accepted,
        },
    }


def speculation(outputs: Sequence[RequestOutput], typed: Typed) -> dict[str, Any]:
    """What speculation did for a request: vLLM's names first, then ours.

    ``num_spec_steps`` are the steps with a draft, and ``mean_acceptance_length`` is over them;
    ``acceptance_length`` is over all steps of the target.
    """
    records = [sample.speculative for output in outputs for sample in output.outputs]
    drafted = sum(record.drafted for record in records)
    accepted = sum(record.accepted for record in records)
    rejections = sum(record.rejections for record in records)
    steps = sum(record.target_steps for record in records)
    emitted = sum(output.usage.completion_tokens for output in outputs)
    depth = max((len(record.drafted_per_position) for record in records), default=0)
    drafts = sum(record.drafted_per_position[0] for record in records if record.drafted)
    # How many drafts had at least so many tokens accepted.
    at_least = [drafts] + [
        sum(r.accepted_per_position[i] for r in records if len(r.accepted_per_position) > i)
        for i in range(depth)
    ]
    histogram = [a - b for a, b in zip(at_least, [*at_least[1:], 0], strict=True)]
    first = records[0]
    return {
        "mean_acceptance_length": 1 + accepted / drafts if drafts else 1.0,
        "draft_acceptance_rate": accepted / drafted if drafted else None,
        "acceptance_histogram": histogram,
        "num_spec_steps": drafts,
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": drafted,
        "num_spec_tokens": depth,
        "drafter": first.drafter,
        "request_type": typed.name,
        "request_type_reason": typed.reason,
        "verification": first.verification,
        "guarantee": first.guarantee,
        "target_steps": steps,
        "acceptance_length": emitted / steps if steps else 0.0,
        "alpha": accepted / (accepted + rejections) if accepted + rejections else None,
        "reason": first.off_reason,
        "decisions": [asdict(choice) for choice in first.choices],
    }
