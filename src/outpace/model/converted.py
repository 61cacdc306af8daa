"""Checkpoint folders that were made from a file in another format, kept in the cache."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from outpace.errors import CheckpointError
from outpace.model.keeping import keep

FORMAT_VERSION = 2  # 2: with the integers of block-quantized tensors


def cache_folder() -> Path:
    """Return the folder for what Outpace keeps: $OUTPACE_CACHE, else the user's cache folder."""
    from platformdirs import user_cache_path

    chosen = os.environ.get("OUTPACE_CACHE")
    return Path(chosen).expanduser() if chosen else user_cache_path("outpace")


def converted(
    source: Path, cache: Path, *, make: Callable[[Path], None], identity: str | None = None
) -> Path:
    """Return the intact folder that `make` writes for a source file, making it when needed.

    The folder belongs to this source (content hash `identity`, else size and modification time)
    and this format version; see `outpace.model.keeping.keep`.

    Raises:
        CheckpointError: from `make`, or because the cache cannot be written.
    """
    stat = source.stat()
    origin: dict[str, Any] = {"format": FORMAT_VERSION}
    if identity is None:
        origin |= {"path": str(source), "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    else:
        origin |= {"sha256": identity}
    key = hashlib.sha256((identity or str(source)).encode()).hexdigest()[:12]
    final = cache / "converted" / f"{short_stem(source.stem)}-{key}"
    try:
        return keep(final, origin, make)
    except OSError as error:
        raise CheckpointError(
            f"{final.parent}: cannot write the converted model ({error.strerror or error}); free "
            "some space, or set OUTPACE_CACHE to another folder"
        ) from error


def short_stem(name: str) -> str:
    """A name as a part of a folder's name, whatever is in it."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).lstrip(".")[:80]
