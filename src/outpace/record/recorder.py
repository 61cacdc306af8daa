"""Rows on their way to disk, beside the work: whoever adds one never waits."""

from __future__ import annotations

import atexit
import logging
import os
import queue
import threading
from contextlib import suppress

from outpace.errors import InvalidValueError
from outpace.record.bounded import BoundedTable, Bounds, Layout, RecordError, read_rows
from outpace.record.row import COLUMNS, Row, column_definitions, from_cells

LAYOUT = Layout(
    kind="record",
    application_id=0x4F505243,
    version=1,
    table="requests",
    columns=column_definitions(),
    names=COLUMNS,
)
DEFAULT_BOUNDS = Bounds(rows=100_000, bytes=256 * 2**20)
_LOG = logging.getLogger("outpace")
_MOST_AT_ONCE = 256


class Recorder:
    """Writes rows into a file from a thread of its own.

    A full queue drops rows and counts them, because a slow disk must not slow answers down.

    Args:
        path: the file, made with mode 0600.
        bounds: how many rows and bytes are kept.
        keep_text: whether prompts and answers may be kept; whoever makes rows asks.
        queue_size: rows that may wait to be written.

    Raises:
        InvalidValueError: the file cannot be written or is one of another kind.
        RecordError: it was written by another version.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        bounds: Bounds = DEFAULT_BOUNDS,
        *,
        keep_text: bool = False,
        queue_size: int = 4096,
    ) -> None:
        self.keep_text = keep_text
        self.dropped = 0
        self.written = 0
        self.failure = ""
        self._table = BoundedTable(path, LAYOUT, bounds)
        self._report_damage()
        self._queue: queue.Queue[Row | threading.Event | None] = queue.Queue(queue_size)
        self._closed = threading.Lock()
        self._open = True
        self._thread = threading.Thread(target=self._write, name="outpace-record", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    @property
    def path(self) -> str:
        """The file."""
        return str(self._table.path)

    def add(self, row: Row) -> bool:
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
            rows: list[Row] = []
            waiting: list[threading.Event] = []
            item = self._queue.get()
            while True:
                if item is None:
                    going_on = False
                elif isinstance(item, Row):
                    rows.append(item)
                else:
                    waiting.append(item)
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

    def _append(self, rows: list[Row]) -> None:
        if not rows:
            return
        aside = self._table.moved_aside
        try:
            self._table.append([row.as_cells() for row in rows])
        except Exception as error:  # the thread must live on: the next rows may fit again
            self.dropped += len(rows)
            if not self.failure:  # once, not for each request
                _LOG.warning("%s", error)
            self.failure = str(error)
            return
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


def open_recorder(
    record: str | os.PathLike[str] | Recorder | None, *, keep_text: bool = False
) -> Recorder | None:
    """A recorder as it is, one for a path, or none.

    Raises:
        OutpaceError: see `Recorder`.
        InvalidValueError: texts are to be kept, but there is no record to keep them in.
    """
    if isinstance(record, Recorder):
        return record
    if record is None:
        if keep_text:
            raise InvalidValueError("record_text", True, "say where to: record=PATH")
        return None
    if not isinstance(record, str | os.PathLike) or not os.fspath(record):
        raise InvalidValueError("record", record, "must be the path of a file")
    return Recorder(record, keep_text=keep_text)


def load(path: str | os.PathLike[str], last: int | None = None) -> list[Row]:
    """The rows of a record, oldest first.

    Raises:
        RecordError: it cannot be read, or is none.
    """
    try:
        return [from_cells(cells) for cells in read_rows(path, LAYOUT, last)]
    except ValueError as error:
        raise RecordError(f"{path}: is damaged ({error})") from error
