"""The offline API: a model, prompts in, texts out."""

from __future__ import annotations

import hashlib
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from operator import index
from typing import Any, Self

import torch

from outpace.asking import Message, Prompt, Said, as_prompts, for_each
from outpace.assembly import assemble
from outpace.cache.plan import MemoryPlan
from outpace.config import DrafterConfig, EngineConfig, check_type, parse_drafter
from outpace.control.features import Features
from outpace.control.types import RequestTypes
from outpace.engine.ticket import Ticket
from outpace.errors import InvalidValueError
from outpace.model.heads.target import TargetMismatch
from outpace.record.capture import Capture, open_capture
from outpace.record.recorder import Recorder, open_recorder
from outpace.record.taken import take_row
from outpace.request import (
    Request,
    RequestOutput,
    SamplingParams,
    StreamChunk,
)


class LLM:
    """A target model with a drafter, ready to generate.

    Args:
        model: a folder in Hugging Face layout, a GGUF file, a hub name, or ``"demo"``.
        drafter: a configuration, or its spelling: ``none``, ``auto``, ``ngram``,
            ``suffix``, ``datastore:FILE``, ``model:PATH``, ``prediction:FILE``, ``early_exit``,
            or several joined by ``+`` (the first that proposes) or ``|`` (the surest).
        record: a file, or a recorder, that gets a row for each request; see docs/record.md.
        record_text: keep prompts and answers in it too.
        capture: a file, or a capture, that keeps the token ids of prompts and answers to train and
            judge drafts by.
        options: fields of `EngineConfig`: ``num_speculative_tokens`` (a number or ``"auto"``),
            ``verification``, ``dtype`` (``"bf16"``, ``"fp32"``, ``"auto"``), ``max_model_len``,
            ``max_num_seqs``, ``max_num_batched_tokens``, ``block_size``, ``kv_cache_tokens``,
            ``prefix_caching``, ``tree_attention``, ``device``, ``threads``, ``drafter_policy`` and
            ``request_types`` (TOML files, see docs/control.md), ``keep_learned``.

    Raises:
        OutpaceError: an option, the model or the draft cannot be used; the text says which
            and what would work.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] = "demo",
        drafter: str | DrafterConfig = "auto",
        *,
        record: str | os.PathLike[str] | Recorder | None = None,
        record_text: bool = False,
        capture: str | os.PathLike[str] | Capture | None = None,
        **options: Any,
    ) -> None:
        check_type("model", model, str | os.PathLike, "a text or a path")
        model = os.fspath(model)
        chosen = parse_drafter(drafter) if isinstance(drafter, str) else drafter
        unknown = set(options) - set(EngineConfig.__dataclass_fields__)
        if unknown:
            fields = ", ".join(sorted(EngineConfig.__dataclass_fields__))
            raise InvalidValueError("option", sorted(unknown)[0], f"choose one of {fields}")
        config = EngineConfig(drafter=chosen, **options)
        self.recorder = open_recorder(record, keep_text=record_text)
        self.capture = open_capture(capture)
        made = ((self.recorder, record), (self.capture, capture))
        self._own = [one for one, given in made if one is not None and one is not given]
        self._assembly = assemble(model, config)
        self.engine = self._assembly.engine
        self.drafters = self._assembly.loaded
        self.tokenizer = self._assembly.tokenizer
        self._request_ids = count()
        self.model = model
        keeper = self._assembly.keeper
        # Also where nobody closes it: at the latest when the process ends.
        self._save = weakref.finalize(self, keeper.save if keeper else _keep_nothing)

    def __repr__(self) -> str:
        return f"LLM({self.model!r}, {self.setting})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Keep what was learned, and end record and capture; a second call does nothing.

        A recorder or a capture that was handed over ready made is its maker's to close.

        What is not closed is kept all the same when the process ends, unless it is killed.
        """
        self._save()
        for writer in self._own:
            writer.close()

    @property
    def setting(self) -> str:
        """Precision, device and threads in words, for people."""
        decoder = self.engine.runner.decoder
        where = str(decoder.device)
        if where == "cpu":
            threads = torch.get_num_threads()
            where = f"{threads} thread{'s' * (threads != 1)}"
        return f"{str(decoder.dtype).removeprefix('torch.')}, {where}"

    @property
    def guarantee(self) -> str:
        """What was found to hold on this machine: ``bit-exact`` or ``near-tie``."""
        return self._assembly.guarantee

    @property
    def mismatches(self) -> tuple[TargetMismatch, ...]:
        """Heads that were trained for other weights than this model's: train them again."""
        return self._assembly.mismatches

    @property
    def types(self) -> RequestTypes:
        """Tells the types of requests; those that bring a label or are told by rules."""
        return self._assembly.types

    @property
    def fingerprint(self) -> str:
        """Tells checkpoints and precisions apart: where it differs, so may the tokens."""
        decoder = self.engine.runner.decoder
        parts = f"{self._assembly.fingerprint} {decoder.dtype} {decoder.weight_bytes}"
        return hashlib.sha256(parts.encode()).hexdigest()[:12]

    @property
    def plan(self) -> MemoryPlan:
        """What the memory is used for."""
        return self._assembly.plan

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
        request_type: str | Sequence[str | None] | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> list[RequestOutput]:
        """Complete one or many prompts, all in one batch.

        Args:
            prompts: a text, a list of token ids, or a list of either.
            params: for all, or one for each prompt.
            prediction: the expected answer, for all or one for each prompt.
            drafter: one of the loaded drafters, for all or one for each prompt: ``none``,
                ``auto``, ``ngram``, ``prediction`` and the configured one are there.
            request_type: what kind of request it is, in a word of yours, for all or one for each
                prompt; None: as the rules say. What is learned and reported is told apart by it.
            on_progress: called with (finished, all) whenever a request ends.

        Returns:
            A result for each prompt, in their order.

        Raises:
            InvalidValueError: a prompt or parameter cannot be honoured; nothing was started.
        """
        many = as_prompts(prompts)
        more = (params, prediction, drafter, request_type)
        requests = self._requests(many, [Said.text(one) for one in many], *more)
        return self._run(requests, on_progress)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        prediction: str | Sequence[str | None] | None = None,
        drafter: str | Sequence[str | None] | None = None,
        request_type: str | Sequence[str | None] | None = None,
    ) -> list[RequestOutput]:
        """Answer one conversation or many.

        Args:
            messages: a list of messages, each with a ``role`` and a ``content``, or a list of
                such lists.
            params: for all, or one for each conversation.
            prediction: the expected answer, as in `generate`.
            drafter: one of the loaded drafters, as in `generate`.
            request_type: as in `generate`.

        Raises:
            InvalidValueError: something cannot be honoured, or the model has no chat template.
        """
        if isinstance(messages, str) or not isinstance(messages, Sequence):
            wanted = 'give a list of messages: [{"role": "user", "content": "…"}]'
            raise InvalidValueError("messages", messages, wanted)
        one = not messages or isinstance(messages[0], Mapping)
        conversations: Any = [messages] if one else messages
        for conversation in conversations:
            check_type("messages", conversation, list | tuple, "a list of messages")
        prompts = [self.tokenizer.encode_chat(conversation) for conversation in conversations]
        said = [Said.conversation(conversation) for conversation in conversations]
        more = (params, prediction, drafter, request_type)
        return self._run(self._requests(prompts, said, *more), None)

    def stream(
        self,
        prompt: Prompt | Sequence[Message],
        params: SamplingParams | None = None,
        *,
        prediction: str | None = None,
        drafter: str | None = None,
        request_type: str | None = None,
    ) -> Iterator[StreamChunk]:
        """Yield text as it becomes certain; the last chunk carries the whole result.

        The pieces joined are the text of the whole result. Closing the iterator early ends the
        request and frees what it held.
        """
        check_type("prompt", prompt, Sequence, "a text, a list of token ids or of messages")
        said = Said.text(prompt)
        if not isinstance(prompt, str) and prompt and isinstance(prompt[0], Mapping):
            said = Said.conversation(prompt)  # type: ignore[arg-type]
            prompt = self.tokenizer.encode_chat(prompt)  # type: ignore[arg-type]
        more = (params, prediction, drafter, request_type)
        [request] = self._requests([prompt], [said], *more)  # type: ignore[list-item]
        self.engine.admission.check(request)  # now, not when the first chunk is asked for
        return self._stream(request)

    def _stream(self, request: Request) -> Iterator[StreamChunk]:
        ticket = self._admit(request)
        try:
            while not ticket.told:
                self.engine.step()
                yield from ticket.news()
        finally:
            self.engine.abort(request.request_id)
            self._record(ticket)

    def _run(
        self, requests: Sequence[Request], on_progress: Callable[[int, int], None] | None
    ) -> list[RequestOutput]:
        tickets: list[Ticket] = []
        finished = 0
        try:
            tickets.extend(self._admit(request) for request in requests)
            while finished < len(tickets):  # others may be in the engine, and stay
                self.engine.step()
                done = sum(ticket.finished for ticket in tickets)
                if on_progress is not None and done > finished:
                    on_progress(done, len(tickets))
                finished = done
        finally:
            for request in requests:
                self.engine.abort(request.request_id)
            for ticket in tickets:
                self._record(ticket)
        return [ticket.result() for ticket in tickets]

    def _admit(self, request: Request) -> Ticket:
        return Ticket(request, self.engine.add(request), self.guarantee)

    def _record(self, ticket: Ticket) -> None:
        """Hand a request that has ended to record and capture, if there are any."""
        if self.capture is not None:
            answer = ticket.sequences[0].output.token_ids
            self.capture.add_request(ticket.request, answer, self.model)
        if self.recorder is None:
            return
        text = None
        if self.recorder.keep_text:
            prompt = ticket.request.prompt_token_ids
            text = self.tokenizer.decode(prompt, skip_special_tokens=False)
        controller = self.engine.controller
        self.recorder.add(
            take_row(ticket.request, ticket.sequences, controller, self.model, self.guarantee, text)
        )

    def _requests(
        self,
        prompts: Sequence[Prompt],
        said: Sequence[Said],
        params: SamplingParams | Sequence[SamplingParams] | None,
        prediction: str | Sequence[str | None] | None,
        drafter: str | Sequence[str | None] | None,
        request_type: str | Sequence[str | None] | None,
    ) -> list[Request]:
        """A request for each prompt; ``said`` is what rules may look at."""
        return [
            self._request(*one)
            for one in zip(
                prompts,
                said,
                for_each("params", params, len(prompts), SamplingParams),
                for_each("prediction", prediction, len(prompts), str),
                for_each("drafter", drafter, len(prompts), str),
                for_each("request_type", request_type, len(prompts), str),
                strict=True,
            )
        ]

    def _request(
        self,
        prompt: Prompt,
        said: Said,
        params: SamplingParams,
        prediction: str | None,
        drafter: str | None,
        request_type: str | None,
    ) -> Request:
        token_ids = self._token_ids(prompt)
        expected = self.tokenizer.encode(prediction, special=False) if prediction else ()
        features = Features(
            prompt=said.words,
            prompt_tokens=len(token_ids),
            label=request_type,
            structured=params.grammar is not None,
            prediction_tokens=len(expected),
            messages=said.messages,
            greedy=params.greedy,
        )
        return Request(
            request_id=f"request-{next(self._request_ids)}",
            prompt_token_ids=token_ids,
            params=params,
            prediction=tuple(expected),
            drafter=drafter,
            request_type=self.types.of(features).name,
        )

    def _token_ids(self, prompt: Prompt) -> tuple[int, ...]:
        if isinstance(prompt, str):
            return tuple(self.tokenizer.encode(prompt))
        try:
            check_type("prompt", prompt, Sequence | Iterable, "a text or a list of token ids")
            if isinstance(prompt, bytes) or any(isinstance(token, bool) for token in prompt):
                raise TypeError
            return tuple(index(token) for token in prompt)
        except TypeError as error:
            raise InvalidValueError("prompt", prompt, "give a text or a list of ids") from error


def _keep_nothing() -> None:
    """Nothing is learned, or it is not to be kept."""
