"""What is kept of requests that are over: the record, the live page, captured prompts, the log.

The step loop only counts: what takes longer (a disk, drift tests, texts of prompts) is done in a
thread of its own, which neither the steps nor the event loop wait for.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

from outpace.engine.ticket import Ticket
from outpace.health.findings import WARNING, Finding, fingerprint_mismatch, not_recorded
from outpace.llm import LLM
from outpace.model.heads.target import TargetMismatch
from outpace.record.bounded import RecordError
from outpace.record.recorder import load
from outpace.record.row import Row
from outpace.record.taken import take_row
from outpace.report.live import WINDOW_REQUESTS, Live

_LOG = logging.getLogger("outpace")
_MOST_WAITING = 4096
# So many requests end between two looks for findings that the log has not told yet.
_LOOK_EVERY = 50
_QUIET_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class _Ended:
    """A request that is over, and the row that was made of it at once."""

    ticket: Ticket
    row: Row


class Books:
    """Keeps books of a server's requests.

    Args:
        llm: whose requests they are; rows go to its recorder and its capture, if it has them.
    """

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self.live = Live(_at_start(llm.mismatches), now_found=self._found_now)
        self.missed = 0
        self._told: dict[tuple[str, str], float] = {}
        self._queue: queue.Queue[_Ended | None] = queue.Queue(_MOST_WAITING)
        self._thread = threading.Thread(target=self._work, name="outpace-books", daemon=True)

    def open(self) -> None:
        """Look at every step from now on, and go on from where the record ends."""
        if self._llm.recorder is not None:
            self.live.remember(_earlier(self._llm.recorder.path))
        self._llm.engine.on_step = self.live.add_step
        self._thread.start()

    def ended(self, ticket: Ticket) -> None:
        """Take down a request that is over; called in the step loop's thread, and never waits."""
        llm = self._llm
        try:
            row = take_row(
                ticket.request, ticket.sequences, llm.engine.controller, llm.model, llm.guarantee
            )
            self._queue.put_nowait(_Ended(ticket, row))
        except queue.Full:
            self.missed += 1
        except Exception as error:  # no reason to stop computing
            _LOG.error("request %s: no row", ticket.request.request_id, exc_info=error)
            self.missed += 1

    def close(self) -> None:
        """Write down what is waiting; the record and the capture stay open."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        for writer in (self._llm.recorder, self._llm.capture):
            if writer is not None:
                writer.flush()

    def _work(self) -> None:
        count = 0
        while (one := self._queue.get()) is not None:
            try:
                self._keep(one)
                count += 1
                if count % _LOOK_EVERY == 0:
                    self._tell(self.live.health()["findings"])
            except Exception as error:  # the next request may be kept again
                _LOG.error("request %s was not kept", one.row.request_id, exc_info=error)
                self.missed += 1

    def _keep(self, one: _Ended) -> None:
        llm, request = self._llm, one.ticket.request
        first = one.ticket.sequences[0].output
        self.live.add_row(one.row)
        if llm.recorder is not None:
            llm.recorder.add(self._with_texts(one) if llm.recorder.keep_text else one.row)
        if llm.capture is not None:
            llm.capture.add_request(request, first.token_ids, llm.model)

    def _with_texts(self, one: _Ended) -> Row:
        decode = self._llm.tokenizer.decode
        prompt = decode(one.ticket.request.prompt_token_ids, skip_special_tokens=False)
        return replace(one.row, prompt=prompt, answer=one.ticket.sequences[0].output.whole_text)

    def _found_now(self) -> Iterator[Finding]:
        """What the rows cannot tell: that some of them are not written."""
        for kind, writer in (("record", self._llm.recorder), ("capture", self._llm.capture)):
            lost = self.missed + (writer.dropped if writer is not None else 0)
            if writer is not None and lost:
                yield not_recorded(kind, lost, writer.written, writer.failure)

    def _tell(self, findings: Sequence[Mapping[str, Any]]) -> None:
        """Log findings that were not there lately; some come and go with every few requests."""
        now = monotonic()
        for one in findings:
            key = (one["name"], one["subject"])
            if now - self._told.get(key, -_QUIET_SECONDS) < _QUIET_SECONDS:
                continue
            self._told[key] = now
            level = logging.WARNING if one["severity"] == WARNING else logging.INFO
            _LOG.log(level, "%s: %s; what to do: %s", one["name"], one["text"], one["advice"])


def _at_start(mismatches: Iterable[TargetMismatch]) -> list[Finding]:
    return [fingerprint_mismatch(one.head, one.trained_for, one.target) for one in mismatches]


def _earlier(path: str) -> list[Row]:
    try:
        return load(path, WINDOW_REQUESTS)
    except RecordError as error:
        _LOG.warning("earlier requests are not remembered: %s", error)
        return []
