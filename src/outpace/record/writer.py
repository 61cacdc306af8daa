"""Rows on their way to disk, beside the work: whoever adds one never waits."""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar

from outpace.record.bounded import BoundedTable, Bounds, Layout

_LOG = logging.getLogger("outpace")
_MOST_AT_ONCE = 256


class Cells(Protocol):
    """A row of some table."""

    def as_cells(self) -> list[Any]:
        """Its values, in the order of the table's columns."""
        ...


R = TypeVar("R", bound=Cells)


class Writer(Generic[R]):
    """Writes rows into a file from a thread of its own.

    A full queue drops rows and counts them, because a slow disk must not slow answers down.

    Args:
        path: the file, made with mode 0600.
        layout: of its table.
        bounds: how many rows and bytes are kept.
        queue_size: rows that may wait to be written.

    Raises:
        InvalidValueError: the file cannot be written or is one of another kind.
        RecordError: it was written by another version.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        layout: Layout,
        bounds: Bounds,
        queue_size: int = 4096,
    ) -> None:
        self.dropped = 0
        self.written = 0
        self.failure = ""
        self._table = BoundedTable(path, layout, bounds)
        self._report_damage()
        self._queue: queue.Queue[R | threading.Event | None] = queue.Queue(queue_size)
        self._closed = threading.Lock()
        self._open = True
        self._thread = threading.Thread(target=self._write, name="outpace-record", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    @property
    def path(self) -> str:
        """The file."""
        return str(self._table.path)

    def add(self, row: R) -> bool:
        """Hand a row over; returns whether it was taken. Never waits, never fails."""
        if self._open:
            try:
                self._queue.put_nowait(row)
            except queue.Full:
                pass
            else:
                return True
        self.dropped += 1
        return False

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until all rows that were added are on disk; returns whether they are."""
        if not self._open:
            return True
        written = threading.Event()
        with suppress(queue.Full):
            self._queue.put(written, timeout=timeout)
            return written.wait(timeout) and not self.failure
        return False

    def close(self, timeout: float = 10.0) -> None:
        """Write what is waiting and let go of the file; a second call does nothing."""
        with self._closed:
            if not self._open:
                return
            self._open = False
        atexit.unregister(self.close)
        with suppress(queue.Full):
            self._queue.put(None, timeout=timeout)
        self._thread.join(timeout)
        if self.dropped:
            _LOG.warning("%s: %d requests were not recorded", self.path, self.dropped)

    def _write(self) -> None:
        going_on = True
        while going_on:
            rows: list[R] = []
            waiting: list[threading.Event] = []
            item = self._queue.get()
            while True:
                if item is None:
                    going_on = False
                elif isinstance(item, threading.Event):
                    waiting.append(item)
                else:
                    rows.append(item)
                if not going_on or len(rows) >= _MOST_AT_ONCE:
                    break
                try:
                    item = self._queue.get_nowait()
                except queue.Empty:
                    break
            self._append(rows)
            for event in waiting:
                event.set()
        self._table.close()

    def _append(self, rows: list[R]) -> None:
        if not rows:
            return
        aside, gone = self._table.moved_aside, self._table.times_gone
        try:
            self._table.append([row.as_cells() for row in rows])
        except Exception as error:  # the thread must live on: the next rows may fit again
            self.dropped += len(rows)
            if not self.failure:  # once, not for each request
                _LOG.warning("%s", error)
            self.failure = str(error)
            return
        finally:
            if self._table.times_gone != gone:
                _LOG.warning(
                    "%s was deleted, moved or replaced while it was written; a new one is begun",
                    self._table.path,
                )
        self.failure = ""
        self.written += len(rows)
        if self._table.moved_aside != aside:
            self._report_damage()

    def _report_damage(self) -> None:
        if self._table.moved_aside is not None:
            _LOG.warning(
                "%s was damaged; it was moved to %s and a new one begun",
                self._table.path,
                self._table.moved_aside,
            )
