"""A table on disk that stays small, survives a killed process and belongs to its owner alone."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from outpace.errors import InvalidValueError, OutpaceError

_MAGIC = b"SQLite format 3\x00"
APPLICATION_AT = 68  # where the header has the application's number
# A file under such a name is taken for a damaged table rather than for somebody else's file.
_SUFFIXES = {".db", ".record", ".sqlite", ".sqlite3"}
BESIDE = ("-wal", "-shm", "-journal")
# Of the rows, when the file is too large, at least; deleting one at a time would be slow.
_SHARE_TO_DELETE = 0.05
_WAIT_SECONDS = 5.0


class RecordError(OutpaceError):
    """A file of records cannot be read, or is none."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What a table looks like.

    Attributes:
        kind: what the file is called in messages.
        application_id: its number in the header of the file.
        version: of the columns; a file with another one is not read.
        table: its name.
        columns: in SQL.
        names: of the columns, in their order.
    """

    kind: str
    application_id: int
    version: int
    table: str
    columns: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is kept: the oldest rows go first."""

    rows: int
    bytes: int

    def __post_init__(self) -> None:
        for name, value, least in (("rows", self.rows, 1), ("bytes", self.bytes, 65_536)):
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InvalidValueError(f"max_{name}", value, f"must be an integer from {least} up")


class BoundedTable:
    """Appends rows, and deletes the oldest where there are too many of them or too many bytes.

    Every append is one transaction in a write-ahead log: a process that is killed loses at most
    what it had not appended. Not for use from several threads at a time; several processes may
    write the same file.

    Args:
        path: the file; made with mode 0600 where it does not exist.
        layout: of the table.
        bounds: how much is kept.

    Attributes:
        moved_aside: where a damaged file was put; None if there was none.
        times_gone: how often the file was taken away or replaced while it was written; each time
            a new one was begun.

    Raises:
        InvalidValueError: the path cannot be written, or is a file of another kind.
        RecordError: the file was written by another version.
    """

    def __init__(self, path: str | os.PathLike[str], layout: Layout, bounds: Bounds) -> None:
        self.path = Path(path)
        self._layout = layout
        self._bounds = bounds
        self.moved_aside: Path | None = None
        self.times_gone = 0
        self._identity: tuple[int, int] | None = None
        self._connection = self._open()

    def _open(self) -> sqlite3.Connection:
        self._identity = None
        refuse_foreign(self.path, self._layout)
        try:
            connection = self._connect()
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise self._unusable(error) from error
            self.moved_aside = _move_aside(self.path)
            try:
                connection = self._connect()
            except sqlite3.DatabaseError as error:
                raise self._unusable(error) from error
        self._identity = _identity(self.path)
        return connection

    def _unusable(self, error: Exception) -> InvalidValueError:
        reason = getattr(error, "strerror", None) or str(error)
        return InvalidValueError(self._layout.kind, str(self.path), f"cannot be used: {reason}")

    def _connect(self) -> sqlite3.Connection:
        """Open or make the file, check it, and prepare the table."""
        layout = self._layout
        try:
            _make_private(self.path)
        except (OSError, ValueError) as error:
            raise self._unusable(error) from error
        connection = sqlite3.connect(
            self.path, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False
        )
        try:
            with closing(connection.execute("PRAGMA quick_check(1)")) as found:
                [(verdict,)] = found.fetchall()
            if verdict != "ok":
                raise sqlite3.DatabaseError(f"malformed: {verdict}")
            check_layout(connection, self.path, layout, fresh_too=True)
            connection.execute("PRAGMA secure_delete = ON")  # what is deleted is not left behind
            # Before there is a log, so that the file itself says what it is, even when damaged.
            with _transaction(connection):
                connection.execute(f"PRAGMA application_id = {layout.application_id}")
                connection.execute(f"PRAGMA user_version = {layout.version}")
                connection.execute(
                    f"CREATE TABLE IF NOT EXISTS {layout.table} "
                    f"(id INTEGER PRIMARY KEY AUTOINCREMENT, {layout.columns})"
                )
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
        except BaseException:
            connection.close()
            raise
        return connection

    def append(self, rows: Iterable[Sequence[Any]]) -> None:
        """Add rows, and delete the oldest as far as the bounds want it.

        A file that turns out to be damaged is moved aside, and the rows go into a new one; so
        they do if somebody deleted, moved or replaced the file since.

        Raises:
            RecordError: they cannot be written, and why.
        """
        held = [tuple(row) for row in rows]
        self._follow_path()
        try:
            self._append(held)
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise RecordError(f"{self.path}: cannot be written: {error}") from error
            with suppress(sqlite3.Error):
                self._connection.close()
            self.moved_aside = _move_aside(self.path)
            self._connection = self._open()
            self._append(held)

    def _follow_path(self) -> None:
        """Begin anew where the path no longer names the file that is open."""
        if self._identity is not None:
            if _identity(self.path) == self._identity:
                return
            self.times_gone += 1
            self.close()  # before another one is opened, whose log has the same name
        self._connection = self._open()

    def _append(self, rows: Sequence[tuple[Any, ...]]) -> None:
        layout = self._layout
        marks = ", ".join("?" * len(layout.names))
        with _transaction(self._connection):
            self._connection.executemany(
                f"INSERT INTO {layout.table} ({', '.join(layout.names)}) VALUES ({marks})", rows
            )
            self._delete_oldest(self._number("SELECT count(*)") - self._bounds.rows)
            while self._used_bytes() > self._bounds.bytes:
                count = self._number("SELECT count(*)")
                if count <= 1:
                    break
                self._delete_oldest(min(count - 1, max(1, int(_SHARE_TO_DELETE * count))))

    def _delete_oldest(self, count: int) -> None:
        if count > 0:
            table = self._layout.table
            self._connection.execute(
                f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table} ORDER BY id LIMIT ?)",
                (count,),
            )

    def _number(self, select: str) -> int:
        with closing(self._connection.execute(f"{select} FROM {self._layout.table}")) as found:
            return int(found.fetchone()[0])

    def _used_bytes(self) -> int:
        sizes = []
        for name in ("page_count", "freelist_count", "page_size"):
            with closing(self._connection.execute(f"PRAGMA {name}")) as found:
                sizes.append(int(found.fetchone()[0]))
        pages, free, size = sizes
        return (pages - free) * size

    def close(self) -> None:
        """Bring the log into the file and let go of it."""
        with suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._connection.close()


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def read_rows(path: str | os.PathLike[str], layout: Layout, last: int | None = None) -> list[Any]:
    """The rows of a file, oldest first, as tuples in the order of the columns.

    Args:
        path: written by a `BoundedTable`, which may still be writing.
        layout: of the table.
        last: only so many of the newest; None: all.

    Raises:
        RecordError: there is no such file, or it is not one of these, or it is damaged.
    """
    file = Path(path)
    require_file(file, f"give a {layout.kind}")
    try:
        refuse_foreign(file, layout)
    except InvalidValueError as error:
        raise RecordError(f"{file}: {error.way_out}") from error
    query = f"SELECT {', '.join(layout.names)} FROM {layout.table} ORDER BY id DESC LIMIT ?"
    try:
        with closing(read_only(file)) as connection:
            check_layout(connection, file, layout, fresh_too=False)
            found = connection.execute(query, (-1 if last is None else last,)).fetchall()
    except sqlite3.DatabaseError as error:
        way_out = "whoever writes it next moves it aside and begins a new one"
        raise RecordError(
            f"{file}: cannot be read ({error}); if it is damaged, {way_out}"
        ) from error
    return found[::-1]


def require_file(path: Path, way_out: str) -> None:
    """Check that a path is that of an ordinary file.

    Raises:
        RecordError: what it is instead.
    """
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise RecordError(f"{path}: there is no such file; {way_out}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "its name is not one of a file"
        raise RecordError(f"{path}: cannot be used: {reason}; {way_out}") from error
    if stat.S_ISDIR(mode):
        raise RecordError(f"{path}: is a directory; {way_out}")
    if not stat.S_ISREG(mode):
        raise RecordError(f"{path}: is no ordinary file; {way_out}")


def check_layout(
    connection: sqlite3.Connection, path: Path, layout: Layout, *, fresh_too: bool
) -> None:
    """Check a database's numbers; one that has neither numbers nor tables passes if so wanted.

    Raises:
        RecordError: it is of something else, or of another version.
    """
    numbers = []
    for name in ("application_id", "user_version"):
        with closing(connection.execute(f"PRAGMA {name}")) as found:
            numbers.append(int(found.fetchone()[0]))
    if fresh_too and numbers == [0, 0]:
        with closing(connection.execute("SELECT count(*) FROM sqlite_master")) as found:
            if found.fetchone()[0] == 0:
                return
    if numbers[0] != layout.application_id:
        raise RecordError(f"{path}: is a database of something else; give a {layout.kind}")
    if numbers[1] != layout.version:
        raise RecordError(
            f"{path}: has format version {numbers[1]}, and this Outpace knows {layout.version}; "
            "give another path"
        )


def refuse_foreign(path: Path, layout: Layout) -> None:
    """Refuse a file that is plainly not one of ours, so that it is neither moved nor changed."""
    if path.exists() and not path.is_file():  # a pipe has no end, and a device is not to be changed
        raise InvalidValueError(layout.kind, str(path), "cannot be used: it is no ordinary file")
    try:
        with path.open("rb") as stream:
            head = stream.read(100)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "its name is not one of a file"
        raise InvalidValueError(layout.kind, str(path), f"cannot be used: {reason}") from error
    ours = layout.application_id.to_bytes(4, "big")
    number = head[APPLICATION_AT : APPLICATION_AT + 4]
    if not head or head.startswith(_MAGIC) or number == ours or path.suffix in _SUFFIXES:
        return
    raise InvalidValueError(
        layout.kind, str(path), f"is no {layout.kind} but another file; give another path"
    )


def read_only(path: Path) -> sqlite3.Connection:
    """Open a file that is not to be changed."""
    uri = f"{path.resolve().as_uri()}?mode=ro"
    return sqlite3.connect(uri, uri=True, timeout=_WAIT_SECONDS)


def _make_private(path: Path) -> None:
    """Make the file if it is not there, and take it away from everybody but its owner."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    for one in (path, *(path.with_name(path.name + ending) for ending in BESIDE)):
        with suppress(FileNotFoundError):
            if stat.S_IMODE(one.stat().st_mode) & 0o077:
                one.chmod(0o600)


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file a path names now; None if none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_damage(error: sqlite3.DatabaseError) -> bool:
    """Whether the file itself is broken, rather than busy, full or not ours to write."""
    text = str(error)
    return any(word in text for word in ("malformed", "not a database", "no such table"))


def _move_aside(path: Path) -> Path:
    """Rename a damaged file and its log, so that nothing is lost and a new one can begin."""
    when = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    aside = path.with_name(f"{path.name}.damaged-{when}")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.damaged-{when}-{number}")
    path.rename(aside)
    for ending in BESIDE:
        with suppress(FileNotFoundError):
            path.with_name(path.name + ending).rename(aside.with_name(aside.name + ending))
    return aside
