"""The engine in a thread of its own: requests arrive and leave at any time."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from time import perf_counter
from typing import TypeVar

import torch

from outpace.engine.engine import Engine
from outpace.engine.ticket import Ticket
from outpace.errors import OutpaceError
from outpace.request import Request, StreamChunk

Answer = TypeVar("Answer")
_LOG = logging.getLogger("outpace")


class LoopOverError(OutpaceError):
    """The step loop has ended, so that nothing will be computed any more."""


@dataclass(frozen=True, slots=True)
class News:
    """What became of a request: pieces that were made, or the error that ended it.

    ``at`` is when, by `time.perf_counter`.
    """

    request_id: str
    chunks: tuple[StreamChunk, ...] = ()
    error: Exception | None = None
    at: float = field(default_factory=perf_counter)


class StepLoop:
    """Makes steps as long as there is work, and sleeps when there is none.

    All methods may be called from any thread; what they ask for happens between two steps.

    Args:
        engine: nobody else may touch it while the loop runs.
        guarantee: what was found to hold on this machine, for the results.
        tell: is given the news of each step, in the loop's thread. It must hand them on without
            waiting for anybody.
        ended: is given each request that is over, however it ended, in the loop's thread; what
            holds for ``tell`` holds for it.
    """

    def __init__(
        self,
        engine: Engine,
        guarantee: str,
        tell: Callable[[list[News]], None],
        ended: Callable[[Ticket], None] = lambda ticket: None,
    ) -> None:
        self._engine = engine
        self._guarantee = guarantee
        self._tell = tell
        self._ended = ended
        self._errands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._tickets: dict[str, Ticket] = {}
        self._stopping = False
        self._over = False
        self._door = threading.Lock()
        self._threads = torch.get_num_threads()
        self._thread = threading.Thread(target=self._run, name="outpace-steps", daemon=True)
        self.failure: BaseException | None = None

    @property
    def alive(self) -> bool:
        """Whether requests are being worked on."""
        return self._thread.is_alive() and not self._over

    def start(self) -> None:
        """Begin to make steps."""
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Take in a request at the next step; what is wrong with it comes as news.

        Raises:
            LoopOverError: the loop has ended.
        """
        arrived = perf_counter()
        self._send(lambda: self._admit(request, arrived))

    def abort(self, request_id: str) -> None:
        """End a request at the next step, without further news; an unknown one is no error."""
        self._send(lambda: self._drop(request_id), or_else=lambda: None)

    def ask(self, question: Callable[[Engine], Answer]) -> Future[Answer]:
        """Look at the engine between two steps.

        Raises:
            LoopOverError: the loop has ended.
        """
        future: Future[Answer] = Future()

        def answer() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(question(self._engine))
            except BaseException as error:
                future.set_exception(error)

        self._send(answer)
        return future

    def stop(self, timeout: float | None = None) -> None:
        """End all requests that are left, with an error, and the thread."""
        self._send(self._stop, or_else=lambda: None)
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _send(self, errand: Callable[[], None], or_else: Callable[[], None] | None = None) -> None:
        with self._door:
            if not self._over:
                self._errands.put(errand)
                return
        if or_else is None:
            raise LoopOverError(self._last_words())
        or_else()

    def _stop(self) -> None:
        self._stopping = True

    def _run(self) -> None:
        # PyTorch's number of threads belongs to the thread that set it.
        torch.set_num_threads(self._threads)
        try:
            while not self._stopping:
                self._do_errands()
                if self._engine.has_work and not self._stopping:
                    self._engine.step()
                    self._tell_news()
        except BaseException as error:
            self.failure = error
            _LOG.critical("the step loop failed", exc_info=error)
        finally:
            self._close()

    def _do_errands(self) -> None:
        """Everything that was asked for since the last step; waits if there is nothing to do."""
        if not self._engine.has_work:
            self._errands.get()()
        while not self._stopping:
            try:
                errand = self._errands.get_nowait()
            except queue.Empty:
                return
            errand()

    def _admit(self, request: Request, arrived: float) -> None:
        if self._over:
            self._tell([News(request.request_id, error=LoopOverError(self._last_words()))])
            return
        try:
            sequences = self._engine.add(request)
        except Exception as error:
            self._tell([News(request.request_id, error=error)])
            return
        for sequence in sequences:
            sequence.arrived = arrived
        self._tickets[request.request_id] = Ticket(request, sequences, self._guarantee)

    def _drop(self, request_id: str) -> None:
        ticket = self._tickets.pop(request_id, None)
        try:
            self._engine.abort(request_id)
        except Exception as error:  # its text could not be ended; all it held is free
            _LOG.warning("request %s could not be ended well", request_id, exc_info=error)
        if ticket is not None:
            self._ended(ticket)

    def _tell_news(self) -> None:
        news = [self._news(ticket) for ticket in list(self._tickets.values())]
        told = [one for one in news if one.chunks or one.error]
        if told:
            self._tell(told)

    def _news(self, ticket: Ticket) -> News:
        request_id = ticket.request.request_id
        try:
            news = News(request_id, tuple(ticket.news()))
        except Exception as error:
            self._drop(request_id)
            return News(request_id, error=error)
        if ticket.told:
            self._ended(self._tickets.pop(request_id))
        return news

    def _close(self) -> None:
        """Leave nobody waiting."""
        with self._door:
            self._over = True
        left = list(self._tickets)
        for request_id in left:
            self._drop(request_id)
        error = LoopOverError(self._last_words())
        self._tell([News(request_id, error=error) for request_id in left])
        while not self._errands.empty():
            self._errands.get()()

    def _last_words(self) -> str:
        if self.failure is None:
            return "the server is stopping"
        return f"the engine failed ({type(self.failure).__name__}: {self.failure}); restart it"
