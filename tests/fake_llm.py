"""A model that needs no weights: it answers with what it was told to answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from outpace.request import (
    CompletionOutput,
    FinishReason,
    RequestOutput,
    SamplingParams,
    Speculation,
    StreamChunk,
    Timing,
    Usage,
)


class FakeDetokenizer:
    def push(self, token_id: int) -> str:
        return chr(token_id)

    def flush(self) -> str:
        return ""


class FakeTokenizer:
    def __init__(self, chat_template: str | None = "template") -> None:
        self.chat_template = chat_template

    def encode_chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        return [ord(c) for message in messages for c in message["content"]]

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        return "".join(map(chr, ids))

    def detokenizer(self) -> FakeDetokenizer:
        return FakeDetokenizer()


def speculation(drafter: str, tokens: int, accepted: int) -> Speculation:
    steps = tokens - accepted
    return Speculation(
        drafter=drafter,
        verification="coupled",
        guarantee="bit-exact",
        target_steps=steps,
        drafted=accepted,
        accepted=accepted,
        rejections=0,
        drafted_per_position=(accepted,) if accepted else (),
        accepted_per_position=(accepted,) if accepted else (),
        acceptance_length=tokens / steps,
        draft_acceptance_rate=1.0 if accepted else None,
        alpha=1.0 if accepted else None,
        alpha_interval=(0.5, 1.0) if accepted else None,
        draft_seconds=0.0,
        verify_seconds=0.25,
        rest_seconds=0.0,
        off_reason="" if accepted else "no drafter",
    )


def result(text: str, drafter: str = "ngram", n: int = 1, accepted: int = 1) -> RequestOutput:
    tokens = tuple(map(ord, text))
    flags = (False, *(i < accepted for i in range(len(tokens) - 1)))
    outputs = tuple(
        CompletionOutput(
            index=index,
            text=text,
            token_ids=tokens,
            finish_reason=FinishReason.STOP,
            stop_reason=None,
            logprobs=None,
            accepted=flags,
            speculative=speculation(drafter, len(tokens), accepted),
        )
        for index in range(n)
    )
    return RequestOutput(
        "request-0", (1, 2), outputs, Usage(2, n * len(tokens), 0), Timing(0, 1, 4)
    )


class FakeLLM:
    """Answers by drafter; ``failure`` is raised after the first chunk of a stream."""

    guarantee = "bit-exact"
    setting = "float32, 1 thread"

    def __init__(
        self,
        text: str = "hello",
        *,
        by_drafter: dict[str, str] | None = None,
        chat_template: str | None = "template",
        failure: BaseException | None = None,
    ) -> None:
        self.text = text
        self.by_drafter = by_drafter or {}
        self.tokenizer = FakeTokenizer(chat_template)
        self.failure = failure
        self.calls: list[SimpleNamespace] = []
        self.closed = 0

    def generate(
        self,
        prompts: Any,
        params: SamplingParams,
        *,
        prediction: str | None = None,
        drafter: str | None = None,
    ) -> list[RequestOutput]:
        self.calls.append(
            SimpleNamespace(kind="generate", prompt=prompts, params=params, drafter=drafter)
        )
        if self.failure is not None:
            raise self.failure
        name = drafter or "ngram"
        text = self.by_drafter.get(name, self.text)
        return [result(text, name, params.n, accepted=0 if name == "none" else 2)]

    def chat(self, messages: Any, params: SamplingParams) -> list[RequestOutput]:
        answer = self.generate(messages, params)
        self.calls[-1].kind = "chat"
        return answer

    def stream(self, prompt: Any, params: SamplingParams) -> Iterator[StreamChunk]:
        copied = prompt if isinstance(prompt, str) else [dict(m) for m in prompt]
        self.calls.append(SimpleNamespace(kind="stream", prompt=copied, params=params))
        return self._stream()

    def _stream(self) -> Iterator[StreamChunk]:
        whole = result(self.text)
        try:
            for i, character in enumerate(self.text):
                if i == 1 and self.failure is not None:
                    raise self.failure
                last = i == len(self.text) - 1
                yield StreamChunk(
                    0,
                    character,
                    (ord(character),),
                    (False,),
                    FinishReason.STOP if last else None,
                    whole if last else None,
                )
        finally:
            self.closed += 1
