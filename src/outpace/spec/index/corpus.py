"""The texts that an index is made of: files of text, trees of code, logs of JSON lines."""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO

from outpace.errors import InvalidValueError
from outpace.spec.index.build import Document
from outpace.text.tokenizer import Tokenizer

_JSON_LINES = {".jsonl", ".ndjson"}
# A text is encoded in pieces that end with a line; so many characters are encoded together.
_PIECE, _BATCH = 1 << 16, 1 << 21
_LONGEST_LINE = 1 << 26


@dataclass(slots=True)
class Tally:
    """What was read, and what was left out."""

    files: int = 0
    not_text: int = 0
    unreadable: int = 0
    bad_lines: int = 0

    def left_out(self) -> str:
        """In words; empty if all was read."""
        parts = [
            (self.not_text, "file that is not UTF-8 text", "files that are not UTF-8 text"),
            (self.unreadable, "file that cannot be read", "files that cannot be read"),
            (self.bad_lines, "line that is not JSON", "lines that are not JSON"),
        ]
        return ", ".join(f"{n} {one if n == 1 else many}" for n, one, many in parts if n)


def find_files(paths: Sequence[str]) -> list[Path]:
    """The files of paths, those of folders in order of their names.

    Hidden files and folders are left out, and links to folders are not followed, unless they
    are named.

    Raises:
        InvalidValueError: a path does not exist.
    """
    found: dict[Path, None] = {}
    for path in paths:
        start = Path(path).expanduser()
        try:
            is_file, is_folder = start.is_file(), start.is_dir()
        except (OSError, ValueError):  # longer than a name can be, or with a zero in it
            is_file = is_folder = False
        if is_file:
            found[start] = None
        elif is_folder:
            found.update(dict.fromkeys(_walk(start)))
        else:
            raise InvalidValueError("PATHS", path, "is no file or folder")
    return list(found)


def _walk(start: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(start):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            file = Path(folder, name)
            if not name.startswith(".") and file.is_file():
                yield file


def read_documents(
    files: Sequence[Path],
    tokenizer: Tokenizer,
    tally: Tally,
    fields: Sequence[str] = (),
    on_read: Callable[[int], None] = lambda size: None,
) -> Iterator[Document]:
    """Tokens of the texts in files, document by document, in bounded memory.

    A file is one document; in a file of JSON lines each text value is one.

    Args:
        files: to read.
        tokenizer: of the target; control tokens that a text spells are ordinary characters.
        tally: counts what is read and what is left out.
        fields: of JSON lines, the names under which texts are taken; none: all texts.
        on_read: called with bytes of files that are done.
    """
    for group in _batches(_texts(files, tally, fields, on_read)):
        pieces = [piece for text in group for piece in text]
        encoded = iter(tokenizer.encode_plain(pieces))
        for text in group:
            tokens = [token for _ in text for token in next(encoded)]
            yield Document(tokens, sum(len(piece.encode()) for piece in text))


def _batches(texts: Iterator[list[str]]) -> Iterator[list[list[str]]]:
    group: list[list[str]] = []
    size = 0
    for text in texts:
        group.append(text)
        size += sum(map(len, text))
        if size >= _BATCH:
            yield group
            group, size = [], 0
    if group:
        yield group


def _texts(
    files: Sequence[Path], tally: Tally, fields: Sequence[str], on_read: Callable[[int], None]
) -> Iterator[list[str]]:
    """Texts in pieces; a text longer than a batch comes in several."""
    for file in files:
        seen = 0
        try:
            if not _is_text(file):
                tally.not_text += 1
                continue
            tally.files += 1
            with (
                file.open("rb") as raw,
                TextIOWrapper(raw, encoding="utf-8", newline="") as stream,
            ):
                is_log = file.suffix.lower() in _JSON_LINES
                for text in _json_texts(stream, tally, fields) if is_log else _plain_texts(stream):
                    here = raw.tell()
                    on_read(here - seen)
                    seen = here
                    yield text
        except (OSError, UnicodeDecodeError):  # unreadable, or changed while it was read
            tally.unreadable += 1
        finally:
            on_read(max(_size(file) - seen, 0))


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def total_size(files: Sequence[Path]) -> int:
    """Bytes of all files."""
    return sum(map(_size, files))


def _is_text(file: Path) -> bool:
    """Whether a file is UTF-8 without zeros."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        with file.open("rb") as stream:
            while data := stream.read(1 << 20):
                if b"\0" in data:
                    return False
                decoder.decode(data)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _plain_texts(stream: TextIO) -> Iterator[list[str]]:
    pieces: list[str] = []
    size = 0
    while piece := stream.read(_PIECE):
        piece += stream.readline(_PIECE)
        pieces.append(piece)
        size += len(piece)
        if size >= _BATCH:
            yield pieces
            pieces, size = [], 0
    if pieces:
        yield pieces


def _json_texts(stream: TextIO, tally: Tally, fields: Sequence[str]) -> Iterator[list[str]]:
    while line := stream.readline(_LONGEST_LINE):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            tally.bad_lines += 1
            continue
        for text in _strings(value, fields, wanted=not fields):
            pieces = [text[i : i + _PIECE] for i in range(0, len(text), _PIECE)]
            yield pieces


def _strings(value: Any, fields: Sequence[str], *, wanted: bool) -> Iterator[str]:
    """Texts in a JSON value, in their order: all, or those under the names of ``fields``."""
    if isinstance(value, str):
        if wanted and value:
            yield value.encode("utf-8", "replace").decode()
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one, fields, wanted=wanted)
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from _strings(one, fields, wanted=wanted or name in fields)
