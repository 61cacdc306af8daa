"""Making an index file: whole or not at all, in bounded memory."""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from outpace.errors import InvalidValueError
from outpace.spec.index.layout import BORDER, MARGIN, PAGE, SUMMED, Header
from outpace.spec.index.sorting import SORTED_DEPTH, num_rounds, sorted_places

# Tokens that are sorted together; takes about 2 GB at the largest.
SHARD = 2**26


@dataclass(frozen=True, slots=True)
class Document:
    """The tokens of a text and its length in bytes."""

    tokens: list[int]
    num_bytes: int


class _SummedWriter:
    """Writes to a file and keeps a checksum of each MiB."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._filled = 0
        self._sum = 0
        self.sums: list[int] = []
        self.written = 0

    def write(self, data: bytes | memoryview) -> None:
        """Append bytes."""
        self._stream.write(data)
        self.written += len(data)
        view = memoryview(data)
        while len(view):
            part = view[: SUMMED - self._filled]
            self._sum = zlib.crc32(part, self._sum)
            self._filled += len(part)
            view = view[len(part) :]
            if self._filled == SUMMED:
                self.finish()

    def fill_page(self) -> None:
        """Append zeros up to the next page."""
        self.write(bytes(-self.written % PAGE))

    def finish(self) -> None:
        """Close the last, perhaps shorter, piece."""
        if self._filled:
            self.sums.append(self._sum)
        self._filled = self._sum = 0


def build_index(
    documents: Iterable[Document],
    path: str,
    header: Header,
    on_sorting: Callable[[int, int], None] = lambda done, all: None,
) -> Header:
    """Write an index; a file of that name is replaced when the new one is whole.

    Args:
        documents: their tokens; consumed one at a time.
        path: the file.
        header: with everything but the counts.
        on_sorting: called with rounds of sorting that are done, and all.

    Returns:
        The header with the counts.

    Raises:
        InvalidValueError: the file cannot be written, or there was no text.
    """
    with _whole_or_nothing(path) as stream:
        stream.write(bytes(PAGE))
        writer = _SummedWriter(stream)
        header = _write_tokens(documents, writer, header)
        if header.num_documents == 0:
            raise InvalidValueError("PATHS", "no text", "give files with text in UTF-8")
        _check_space(Path(stream.name).parent, 4 * header.num_tokens + header.num_sums * 4)
        _write_places(stream, writer, header, on_sorting)
        writer.finish()
        stream.write(np.array(writer.sums, dtype="<u4").tobytes())
        stream.seek(0)
        stream.write(header.encoded())
    return header


def _write_tokens(documents: Iterable[Document], writer: _SummedWriter, header: Header) -> Header:
    kind, margin = header.token_type, np.full(MARGIN, BORDER, dtype=header.token_type).tobytes()
    writer.write(margin)
    num_tokens = num_documents = num_bytes = 0
    for document in documents:
        if not document.tokens:
            continue
        numbers = np.empty(len(document.tokens) + 1, dtype=kind)
        numbers[:-1] = np.array(document.tokens, dtype=np.int64) + 1
        numbers[-1] = BORDER
        writer.write(numbers.tobytes())
        num_tokens += len(numbers)
        num_documents += 1
        num_bytes += document.num_bytes
    writer.write(margin)
    writer.fill_page()
    return replace(header, num_tokens=num_tokens, num_documents=num_documents, num_bytes=num_bytes)


def _write_places(
    stream: BinaryIO,
    writer: _SummedWriter,
    header: Header,
    on_sorting: Callable[[int, int], None],
) -> None:
    stream.flush()
    rounds = num_rounds(header.vocab_size)
    shards, done = header.shards(), 0

    def on_round() -> None:
        nonlocal done
        done += 1
        on_sorting(done, rounds * len(shards))

    for start, end in shards:
        # A shard's first places are sorted by what really stands before them.
        before = min(start, SORTED_DEPTH)
        numbers = np.fromfile(
            stream.name,
            dtype=header.token_type,
            count=end - start + before,
            offset=PAGE + (MARGIN + start - before) * header.token_type.itemsize,
        )
        places = sorted_places(numbers, header.vocab_size, on_round)
        del numbers
        own = places[places >= before] - np.int32(before) if before else places
        writer.write(np.ascontiguousarray(own, dtype="<i4").data.cast("B"))
    writer.fill_page()


def _check_space(folder: Path, needed: int) -> None:
    """Refuse to sort for minutes what cannot be written."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OSError(f"{needed >> 20} MiB more are needed, and {free >> 20} MiB are free")


@contextmanager
def _whole_or_nothing(path: str) -> Iterator[BinaryIO]:
    """A new file beside ``path`` that takes its place when the block ends well.

    Raises:
        InvalidValueError: the file cannot be written.
    """
    target = Path(path).expanduser()
    if not target.name or os.path.isdir(target):
        raise InvalidValueError("output", path, "is a folder; give the name of a file")
    part = target.with_name(f".{target.name[:80]}.{os.getpid()}.part")
    try:
        target.exists()  # fails on a name that no file can have, before the work is done
        with part.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(target)
    except BaseException as error:
        with suppress(OSError, ValueError):
            part.unlink()
        if isinstance(error, OSError | ValueError) and not isinstance(error, InvalidValueError):
            reason = getattr(error, "strerror", None) or str(error)
            raise InvalidValueError("output", path, f"cannot be written: {reason}") from error
        raise
