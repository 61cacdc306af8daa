"""The offline API: a model, prompts in, texts out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from operator import index
from time import perf_counter
from typing import Any

from outpace.assembly import assemble
from outpace.config import DrafterConfig, EngineConfig, parse_drafter
from outpace.engine.sequence import Sequence as EngineSequence
from outpace.errors import InvalidValueError
from outpace.request import (
    CompletionOutput,
    Request,
    RequestOutput,
    SamplingParams,
    StreamChunk,
    Timing,
    Usage,
)

Prompt = str | Sequence[int]
Message = Mapping[str, str]


@dataclass(slots=True)
class _Seen:
    """How much of a sequence has been streamed."""

    tokens: int = 0
    pieces: int = 0


class LLM:
    """A target model with a drafter, ready to generate.

    Args:
        model: a folder in Hugging Face layout, a GGUF file, a hub name, or ``"demo"``.
        drafter: a configuration, or its spelling: ``none``, ``auto``, ``ngram``,
            ``model:PATH``, ``prediction:FILE``, or several joined by ``+``.
        options: fields of `EngineConfig`, such as ``num_speculative_tokens=4`` or
            ``dtype="float32"``.

    Raises:
        OutpaceError: an option, the model or the draft cannot be used; the text says which
            and what would work.
    """

    def __init__(
        self, model: str = "demo", drafter: str | DrafterConfig = "auto", **options: Any
    ) -> None:
        chosen = parse_drafter(drafter) if isinstance(drafter, str) else drafter
        unknown = set(options) - set(EngineConfig.__dataclass_fields__)
        if unknown:
            fields = ", ".join(sorted(EngineConfig.__dataclass_fields__))
            raise InvalidValueError("option", sorted(unknown)[0], f"choose one of {fields}")
        self._assembly = assemble(model, EngineConfig(drafter=chosen, **options))
        self.engine = self._assembly.engine
        self.tokenizer = self._assembly.tokenizer
        self._request_ids = count()

    @property
    def guarantee(self) -> str:
        """What was found to hold on this machine: ``bit-exact`` or ``near-tie``."""
        return self._assembly.guarantee

    @property
    def max_model_len(self) -> int:
        """Longest context in tokens."""
        return self._assembly.plan.max_model_len

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        prediction: str | Sequence[str | None] | None = None,
        drafter: str | Sequence[str | None] | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> list[RequestOutput]:
        """Complete one or many prompts, all in one batch.

        Args:
            prompts: a text, a list of token ids, or a list of either.
            params: for all, or one for each prompt.
            prediction: the expected answer, for all or one for each prompt.
            drafter: one of the loaded drafters, for all or one for each prompt: ``none``,
                ``ngram``, ``prediction`` and the configured one are there.
            on_progress: called with (finished, all) whenever a request ends.

        Returns:
            A result for each prompt, in their order.

        Raises:
            InvalidValueError: a prompt or parameter cannot be honoured; nothing was started.
        """
        many = _as_prompts(prompts)
        requests = [
            self._request(prompt, *rest)
            for prompt, *rest in zip(
                many,
                _for_each("params", params, len(many), SamplingParams()),
                _for_each("prediction", prediction, len(many), None),
                _for_each("drafter", drafter, len(many), None),
                strict=True,
            )
        ]
        return self._run(requests, on_progress)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        params: SamplingParams | None = None,
        *,
        prediction: str | None = None,
        drafter: str | None = None,
    ) -> list[RequestOutput]:
        """Answer one conversation or many; a message has a ``role`` and a ``content``."""
        one = bool(messages) and isinstance(messages[0], Mapping)
        conversations: Any = [messages] if one else messages
        prompts = [self.tokenizer.encode_chat(conversation) for conversation in conversations]
        return self.generate(prompts, params, prediction=prediction, drafter=drafter)

    def stream(
        self,
        prompt: Prompt | Sequence[Message],
        params: SamplingParams | None = None,
        *,
        prediction: str | None = None,
        drafter: str | None = None,
    ) -> Iterator[StreamChunk]:
        """Yield text as it becomes certain; the last chunk carries the whole result.

        The pieces joined are the text of the whole result. Closing the iterator early ends the
        request and frees what it held.
        """
        if not isinstance(prompt, str) and prompt and isinstance(prompt[0], Mapping):
            prompt = self.tokenizer.encode_chat(prompt)  # type: ignore[arg-type]
        chosen = params or SamplingParams()
        request = self._request(prompt, chosen, prediction, drafter)  # type: ignore[arg-type]
        return self._stream(request)

    def _stream(self, request: Request) -> Iterator[StreamChunk]:
        sequences = self.engine.add(request)
        seen = [_Seen() for _ in sequences]
        unfinished = len(sequences)
        try:
            while unfinished:
                self.engine.step()
                # All of them, whoever made the step: another caller may have advanced them.
                for sequence, last in zip(sequences, seen, strict=True):
                    output = sequence.output
                    if last.tokens == len(output.token_ids):
                        continue
                    text, tokens = output.pieces[last.pieces :], output.token_ids[last.tokens :]
                    accepted = output.accepted[last.tokens :]
                    last.pieces, last.tokens = len(output.pieces), len(output.token_ids)
                    unfinished -= output.finish_reason is not None
                    yield StreamChunk(
                        sequence.index,
                        "".join(text),
                        tuple(tokens),
                        tuple(accepted),
                        output.finish_reason,
                        None if unfinished else self._result(request, sequences),
                    )
        finally:
            self.engine.abort(request.request_id)

    def _run(
        self, requests: Sequence[Request], on_progress: Callable[[int, int], None] | None
    ) -> list[RequestOutput]:
        groups: list[list[EngineSequence]] = []
        finished = 0
        try:
            groups.extend(self.engine.add(request) for request in requests)
            while self.engine.has_work:
                self.engine.step()
                done = sum(all(s.output.finish_reason for s in group) for group in groups)
                if on_progress is not None and done > finished:
                    on_progress(done, len(groups))
                finished = done
        finally:
            for request in requests:
                self.engine.abort(request.request_id)
        return [self._result(*pair) for pair in zip(requests, groups, strict=True)]

    def _request(
        self,
        prompt: Prompt,
        params: SamplingParams,
        prediction: str | None,
        drafter: str | None,
    ) -> Request:
        token_ids = self._token_ids(prompt)
        expected = self.tokenizer.encode(prediction, special=False) if prediction else ()
        return Request(
            request_id=f"request-{next(self._request_ids)}",
            prompt_token_ids=token_ids,
            params=params,
            prediction=tuple(expected),
            drafter=drafter,
        )

    def _token_ids(self, prompt: Prompt) -> tuple[int, ...]:
        if isinstance(prompt, str):
            return tuple(self.tokenizer.encode(prompt))
        try:
            return tuple(index(token) for token in prompt)
        except TypeError as error:
            raise InvalidValueError("prompt", prompt, "give a text or a list of ids") from error

    def _result(self, request: Request, sequences: Sequence[EngineSequence]) -> RequestOutput:
        now = perf_counter()
        outputs = tuple(self._output(sequence) for sequence in sequences)
        completion = sum(len(output.token_ids) for output in outputs)
        arrived = sequences[0].arrived
        first = min(s.first_token_at or now for s in sequences) - arrived
        ended = max(s.finished_at or now for s in sequences) - arrived
        decoding = max(ended - first, 1e-9)
        rate = (completion - len(sequences)) / decoding if completion > len(sequences) else 0.0
        return RequestOutput(
            request_id=request.request_id,
            prompt_token_ids=request.prompt_token_ids,
            outputs=outputs,
            usage=Usage(len(request.prompt_token_ids), completion, sequences[0].num_cached),
            timing=Timing(first, ended, rate),
        )

    def _output(self, sequence: EngineSequence) -> CompletionOutput:
        output = sequence.output
        assert output.finish_reason is not None
        rule = sequence.verifier.name
        guarantee = "distribution" if rule == "rejection" else self._assembly.guarantee
        return CompletionOutput(
            index=sequence.index,
            text=output.whole_text,
            token_ids=tuple(output.token_ids),
            finish_reason=output.finish_reason,
            stop_reason=output.stop_reason,
            logprobs=tuple(output.logprobs) if output.params.logprobs is not None else None,
            accepted=tuple(output.accepted),
            speculative=sequence.counts.summary(sequence.drafter, rule, guarantee),
        )


def _as_prompts(prompts: Prompt | Sequence[Prompt]) -> Sequence[Prompt]:
    """A list of prompts, also of a single one."""
    if isinstance(prompts, str):
        return [prompts]
    if not isinstance(prompts, Sequence):
        raise InvalidValueError("prompts", prompts, "give a text, a list of ids, or a list of both")
    if len(prompts) > 0 and not isinstance(prompts[0], str | Sequence):
        return [prompts]  # type: ignore[list-item]
    return prompts  # type: ignore[return-value]


def _for_each(name: str, value: Any, length: int, default: Any) -> list[Any]:
    """One value for each prompt, from one for all or one for each."""
    if value is None or isinstance(value, str | SamplingParams):
        return [default if value is None else value] * length
    if len(value) != length:
        raise InvalidValueError(name, f"{len(value)} values", f"give one, or {length}")
    return list(value)
