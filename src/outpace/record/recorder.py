"""The record: a row for each request, written beside the work."""

from __future__ import annotations

import os

from outpace.errors import InvalidValueError
from outpace.record.bounded import Bounds, Layout, RecordError, read_rows
from outpace.record.row import COLUMNS, Row, column_definitions, from_cells
from outpace.record.writer import Writer

LAYOUT = Layout(
    kind="record",
    application_id=0x4F505243,
    version=1,
    table="requests",
    columns=column_definitions(),
    names=COLUMNS,
)
DEFAULT_BOUNDS = Bounds(rows=100_000, bytes=256 * 2**20)


class Recorder(Writer[Row]):
    """Writes rows of requests into a file.

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
        super().__init__(path, LAYOUT, bounds, queue_size)
        self.keep_text = keep_text


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
