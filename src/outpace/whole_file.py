"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def appearing(file: Path) -> Iterator[Path]:
    """A path beside ``file`` to write to; what is there at the end becomes ``file``.

    Nobody ever reads half a file, and several may write one at once. Whatever goes wrong, nothing
    is left beside it, and what was there before is whole.

    Raises:
        OSError: it cannot be put in its place.
    """
    beside = file.with_name(f".{file.name}-{secrets.token_hex(4)}.partial")
    try:
        yield beside
        os.replace(beside, file)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def write_whole(file: Path, text: str) -> None:
    """Write a text that only its owner may read; folders are made.

    Raises:
        OSError: it cannot be written; what was there before is whole.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with appearing(file) as beside:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
