"""Answering an order: whole, or as a stream of events."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from outpace.request import RequestOutput, StreamChunk
from outpace.server.desk import Job
from outpace.server.errors import as_api_error
from outpace.server.fields import StreamOptions
from outpace.server.replies import Choice, Piece, speculation, usage


@dataclass(frozen=True, slots=True)
class Reply:
    """What stays the same in all parts of a reply.

    Attributes:
        name: of a whole reply, ``chat.completion`` or ``text_completion``.
        piece_name: of an event of a stream.
        model: as the client calls it.
        fingerprint: of model and settings; equal ones give equal answers to equal seeds.
        new_choice: makes the choice of an index, over all prompts and samples.
    """

    name: str
    piece_name: str
    model: str
    fingerprint: str
    new_choice: Callable[[int], Choice]

    def head(self, job: Job, name: str) -> dict[str, Any]:
        """The fields that every part begins with."""
        return {
            "id": job.order.order_id,
            "object": name,
            "created": int(time.time()),
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }


def _tail(job: Job) -> dict[str, Any]:
    outputs = _outputs(job)
    return {
        "usage": usage(outputs, job.order.predicted),
        "metrics": {"speculative_decoding": speculation(outputs, job.order.typed)},
    }


def _outputs(job: Job) -> list[RequestOutput]:
    return [output for output in job.outputs if output is not None]


async def answer_whole(http: HttpRequest, job: Job, reply: Reply) -> Response:
    """The reply when it is complete; a client that goes away ends the job."""
    making = asyncio.ensure_future(_whole(job, reply))
    leaving = asyncio.ensure_future(_disconnected(http))
    try:
        await asyncio.wait({making, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if making.done():
            return JSONResponse(making.result())
        return Response(status_code=499)  # for the log: nobody reads it
    finally:
        making.cancel()
        leaving.cancel()
        job.close()


async def _disconnected(http: HttpRequest) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass


async def _whole(job: Job, reply: Reply) -> dict[str, Any]:
    choices = _Choices(job, reply)
    for _ in choices.begin():
        pass  # a choice keeps its pieces
    async for place, chunk in job.chunks():
        for _ in choices.take(place, chunk):
            pass
    whole = [{"index": i, **choice.whole()} for i, choice in enumerate(choices.all)]
    return {**reply.head(job, reply.name), "choices": whole, **_tail(job)}


class EventStream(StreamingResponse):
    """Server-sent events of a job, which ends with the response, however that ends."""

    def __init__(self, job: Job, reply: Reply, options: StreamOptions) -> None:
        super().__init__(
            _events(job, reply, options),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
        )
        self._job = job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._job.close()


async def _events(job: Job, reply: Reply, options: StreamOptions) -> AsyncIterator[bytes]:
    head = reply.head(job, reply.piece_name)
    choices = _Choices(job, reply)
    extra: dict[str, Any] = {"usage": None} if options.include_usage else {}
    try:
        for index, piece in choices.begin():
            yield _event({**head, "choices": [_piece(index, piece)], **extra})
        async for place, chunk in job.chunks():
            for index, piece in choices.take(place, chunk):
                if options.continuous_usage_stats:
                    extra = {"usage": choices.usage_so_far()}
                yield _event({**head, "choices": [_piece(index, piece)], **extra})
        if options.include_usage:
            yield _event({**head, "choices": [], **_tail(job)})
    except Exception as error:
        yield _event(as_api_error(error).body)
        return
    yield b"data: [DONE]\n\n"


def _piece(index: int, piece: Piece) -> Piece:
    return {"index": index, "finish_reason": None, **piece}


def _event(value: dict[str, Any]) -> bytes:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return b"data: " + text.encode("utf-8") + b"\n\n"


class _Choices:
    """All choices of a job, by prompt and sample."""

    def __init__(self, job: Job, reply: Reply) -> None:
        self._requests = job.order.requests
        self._samples = self._requests[0].params.n
        self._made = 0
        self.all: Sequence[Choice] = [
            reply.new_choice(i) for i in range(self._samples * len(self._requests))
        ]

    def begin(self) -> Iterator[tuple[int, Piece]]:
        """The pieces before the first token."""
        for index, choice in enumerate(self.all):
            for piece in choice.begin():
                yield index, piece

    def take(self, place: int, chunk: StreamChunk) -> Iterator[tuple[int, Piece]]:
        """The pieces that a chunk makes."""
        self._made += len(chunk.token_ids)
        index = place * self._samples + chunk.index
        for piece in self.all[index].take(chunk):
            yield index, piece

    def usage_so_far(self) -> dict[str, int]:
        """Token counts up to here."""
        prompt = sum(len(request.prompt_token_ids) for request in self._requests)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": self._made,
            "total_tokens": prompt + self._made,
        }
