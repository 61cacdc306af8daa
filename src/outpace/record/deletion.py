"""Deleting a table's file, and nothing else."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from outpace.record.bounded import (
    APPLICATION_AT,
    BESIDE,
    Layout,
    RecordError,
    check_layout,
    read_only,
    require_file,
)

_NOTHING = "nothing was deleted"


def check_deletable(path: str | os.PathLike[str], layout: Layout) -> Path:
    """Check that a file shows that it is one of these; a damaged one shows it in its header.

    Raises:
        RecordError: there is no such file, or it does not show that it is one of these, or
            nobody can say at the moment.
    """
    file = Path(path)
    require_file(file, _NOTHING)
    try:
        with closing(read_only(file)) as connection:
            check_layout(connection, file, layout, fresh_too=False)
    except RecordError as error:
        raise RecordError(f"{error}; {_NOTHING}") from error
    except sqlite3.OperationalError as error:  # locked, or not to be opened: nothing is known
        raise RecordError(f"{file}: cannot be looked into: {error}; {_NOTHING}") from error
    except sqlite3.DatabaseError as error:
        if not _has_our_number(file, layout):
            raise RecordError(f"{file}: is no {layout.kind}; {_NOTHING}") from error
    return file


def delete_file(path: str | os.PathLike[str], layout: Layout) -> int:
    """Delete a table's file and what belongs to it; returns the bytes that it had.

    Raises:
        RecordError: as of `check_deletable`, or it cannot be deleted.
    """
    file = check_deletable(path, layout)
    size = 0
    for one in (file, *(file.with_name(file.name + ending) for ending in BESIDE)):
        with suppress(FileNotFoundError):
            try:
                bytes_there = one.stat().st_size
                one.unlink()
            except PermissionError as error:
                raise RecordError(f"{one}: cannot be deleted: {error.strerror}") from error
            size += bytes_there
    return size


def _has_our_number(file: Path, layout: Layout) -> bool:
    try:
        with file.open("rb") as stream:
            head = stream.read(100)
    except OSError as error:
        raise RecordError(f"{file}: cannot be read: {error.strerror}; {_NOTHING}") from error
    number = layout.application_id.to_bytes(4, "big")
    return head[APPLICATION_AT : APPLICATION_AT + 4] == number
