"""Between the event loop and the step loop: who may come in, and whose news it is."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import TypeVar

from outpace.engine.engine import Engine
from outpace.engine.loop import News, StepLoop
from outpace.llm import LLM
from outpace.request import FinishReason, RequestOutput, StreamChunk
from outpace.server.books import Books
from outpace.server.errors import ApiError
from outpace.server.journal import Journal
from outpace.server.keys import Caller
from outpace.server.metrics import Meter
from outpace.server.order import Order
from outpace.server.settings import ServerSettings

Answer = TypeVar("Answer")
_DRAINING = "this server is going down; ask another one, or again in a moment"


class Job:
    """An order that is being worked on, as the event loop sees it."""

    def __init__(self, order: Order, release: Callable[[Job], None]) -> None:
        self.order = order
        self.arrived = perf_counter()
        self.places = {request.request_id: i for i, request in enumerate(order.requests)}
        self.outputs: list[RequestOutput | None] = [None] * len(order.requests)
        self.failed = ""
        self._news: asyncio.Queue[News] = asyncio.Queue()
        self._release = release
        self._closed = False

    @property
    def finished(self) -> bool:
        """Whether all results are there."""
        return all(output is not None for output in self.outputs)

    def hear(self, news: News) -> None:
        """Take in what became of one of the requests."""
        self._news.put_nowait(news)

    def fail(self, error: Exception) -> None:
        """End the job for those who wait for it."""
        self._news.put_nowait(News("", error=error))

    async def chunks(self) -> AsyncIterator[tuple[int, StreamChunk]]:
        """What is made, with the number of the prompt it belongs to.

        Raises:
            Exception: what ended one of the requests.
        """
        while not self.finished:
            news = await self._news.get()
            if news.error is not None:
                self.failed = getattr(news.error, "code", "error")
                raise news.error
            place = self.places[news.request_id]
            for chunk in news.chunks:
                if chunk.finish_reason in (FinishReason.ABORT, FinishReason.ERROR):
                    self.failed = "error"
                    reason = str(chunk.stop_reason or "the request was ended")
                    raise ApiError(500, reason, "generation_failed", retry=False)
                self.outputs[place] = chunk.output
                yield place, chunk

    def close(self) -> None:
        """Nobody waits any more: what is unfinished is aborted and its blocks are freed."""
        if not self._closed:
            self._closed = True
            self._release(self)


class Desk:
    """Takes orders in, up to the limits, and brings their news to whoever waits.

    All methods but `tell` belong to the event loop.
    """

    def __init__(self, llm: LLM, settings: ServerSettings, meter: Meter, books: Books) -> None:
        self._settings = settings
        self._meter = meter
        self._journal = Journal(settings.log, llm.tokenizer)
        self._seats = llm.engine.config.max_num_seqs
        self._jobs: dict[str, Job] = {}  # by request id
        self._by_caller: Counter[str] = Counter()
        self._samples = 0
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._seconds = 1.0  # of a request, roughly and lately
        self._books = books
        self.steps = StepLoop(llm.engine, llm.guarantee, self.tell, books.ended)
        self.draining = False

    def open(self) -> None:
        """Begin to work, in the running event loop."""
        self._event_loop = asyncio.get_running_loop()
        self._books.open()
        self.steps.start()

    def tell(self, news: list[News]) -> None:
        """Hand news from the step loop's thread to the event loop."""
        assert self._event_loop is not None
        if not self._event_loop.is_closed():
            self._event_loop.call_soon_threadsafe(self._hear, news)

    def _hear(self, news: list[News]) -> None:
        for one in news:
            job = self._jobs.get(one.request_id)
            if job is not None:
                self._meter.news(job.order, job.places[one.request_id], one)
                job.hear(one)

    @contextmanager
    def seat(self, caller: Caller, samples: int) -> Iterator[None]:
        """A place in the queue while an order is read; see `take`.

        Raises:
            ApiError: there is none, or nobody works here any more.
        """
        self._check(caller, samples)
        self._count(caller, samples)
        try:
            yield
        except BaseException:
            self._count(caller, -samples)
            raise

    def take(self, order: Order, caller: Caller, samples: int, seconds: float) -> Job:
        """Begin with an order that has its place in the queue.

        Args:
            order: what is asked for.
            caller: by whom.
            samples: as many as the seat was taken for.
            seconds: after which it is over, whatever was made of it.
        """
        assert self._event_loop is not None
        late = ApiError(
            408, f"took longer than {seconds:g} s; ask for less", "deadline_exceeded", retry=False
        )

        def release(job: Job) -> None:
            alarm.cancel()
            for request_id in job.places:
                self._jobs.pop(request_id, None)
                if not job.finished:
                    self.steps.abort(request_id)
            self._count(caller, -samples)
            self._meter.closed(job.order, job.outputs, job.failed or "abort")
            self._journal.closed(job.order, job.outputs, job.arrived, job.failed or "abort")
            self._seconds += 0.2 * (perf_counter() - job.arrived - self._seconds)

        job = Job(order, release)
        alarm = self._event_loop.call_later(seconds, job.fail, late)
        self._jobs |= dict.fromkeys(job.places, job)
        try:
            for request in order.requests:
                self.steps.submit(request)
        except BaseException:
            alarm.cancel()
            for request_id in job.places:
                self._jobs.pop(request_id, None)
                self.steps.abort(request_id)
            raise  # the seat is given back by who took it
        return job

    def _check(self, caller: Caller, samples: int) -> None:
        if self.draining:
            raise ApiError(503, _DRAINING, "draining", retry_after=5)
        if not self.steps.alive:
            raise ApiError(503, "the engine is not running; see /health", "engine_unavailable")
        wait = max(1, round(self._seconds))
        if self._samples + samples > self._seats + self._settings.max_queue:
            message = f"{self._samples} answers are being made or wait; try again in {wait} s"
            raise ApiError(429, message, "queue_full", retry_after=wait)
        most = self._settings.max_requests_per_key
        if caller.name and self._by_caller[caller.name] >= most:
            message = f"{most} requests of this key are unfinished; wait for one of them"
            raise ApiError(429, message, "too_many_requests", retry_after=wait)

    def _count(self, caller: Caller, samples: int) -> None:
        self._samples += samples
        self._by_caller[caller.name] += 1 if samples > 0 else -1
        if not self._by_caller[caller.name]:
            del self._by_caller[caller.name]
        if self._by_caller:
            self._idle.clear()
        else:
            self._idle.set()

    @property
    def unfinished(self) -> int:
        """Requests that somebody waits for."""
        return self._by_caller.total()

    async def ask(self, question: Callable[[Engine], Answer]) -> Answer:
        """Look at the engine between two steps."""
        return await asyncio.wrap_future(self.steps.ask(question))

    async def drain(self, seconds: float) -> bool:
        """Take nothing more in and let what is there finish; returns whether all did in time."""
        self.draining = True
        try:
            await asyncio.wait_for(self._idle.wait(), seconds)
        except TimeoutError:
            error = ApiError(503, "the server went down before this was finished", "stopped")
            for job in set(self._jobs.values()):
                job.fail(error)
            return False
        return True

    async def close(self) -> None:
        """End the step loop, and write down what is left to write."""
        self.draining = True
        await asyncio.to_thread(self.steps.stop, 30.0)
        await asyncio.to_thread(self._books.close)
