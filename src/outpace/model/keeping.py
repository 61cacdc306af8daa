"""A cache of folders that are expensive to make: atomic, checked on every use, self-repairing."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows: no lock, work may be done twice
    fcntl = None  # type: ignore[assignment]

MANIFEST = "manifest.json"
STALE_SECONDS = 6 * 3600.0
_CHUNK = 1 << 22
_log = logging.getLogger(__name__)


class State(Enum):
    """What is found where a kept folder should be."""

    INTACT = "intact"
    ABSENT = "absent"  # or made from something else
    DAMAGED = "damaged"


def keep(final: Path, origin: dict[str, Any], make: Callable[[Path], None]) -> Path:
    """Return the intact folder `final`, having it made when it is not there or damaged.

    A folder counts only when its manifest names this origin, and the size and CRC-32 of every
    file in it. It is written beside its final place and renamed, so that work that was interrupted
    leaves nothing that could be taken for a result. The checksum guards against damage, not
    against malice: who can write here can write a manifest too.

    Args:
        final: where the folder is kept; its parents are created.
        origin: what it is made from, as plain JSON values.
        make: writes the files into an empty folder.

    Raises:
        OSError: the folder cannot be written.
    """
    if state_of(final, origin) is State.INTACT:
        return final
    final.parent.mkdir(parents=True, exist_ok=True)
    with _locked(final.with_name(f".{final.name}.lock")) as alone:
        state = state_of(final, origin)
        if state is State.INTACT:  # another process made it while this one waited
            return final
        if state is State.DAMAGED:
            _log.warning("%s is damaged and is made again", final)
        _sweep(final, alone=alone)
        _make(final, origin, make)
    return final


def state_of(folder: Path, origin: dict[str, Any]) -> State:
    """Whether a folder is complete, undamaged and made from this origin; reads all of it."""
    if not folder.exists():
        return State.ABSENT
    try:
        manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
        if manifest["origin"] != origin:
            return State.ABSENT
        files: dict[str, dict[str, Any]] = manifest["files"]
        # All sizes first: cheap, and they catch most damage.
        if all((folder / n).stat().st_size == f["size"] for n, f in files.items()) and all(
            _crc32(folder / n) == f["crc32"] for n, f in files.items()
        ):
            return State.INTACT
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return State.DAMAGED


def _make(final: Path, origin: dict[str, Any], make: Callable[[Path], None]) -> None:
    temporary = Path(tempfile.mkdtemp(prefix=f".{final.name}.tmp-", dir=final.parent))
    try:
        make(temporary)
        files = {}
        for file in sorted(temporary.iterdir()):
            _sync(file)
            files[file.name] = {"size": file.stat().st_size, "crc32": _crc32(file)}
        manifest = {"origin": origin, "files": files}
        (temporary / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", "utf-8")
        _sync(temporary / MANIFEST)
        temporary.chmod(0o755)  # mkdtemp makes it private; a shared cache must be readable
        _publish(temporary, final, origin)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _publish(temporary: Path, final: Path, origin: dict[str, Any]) -> None:
    """Rename into place; a damaged or outdated folder in the way is moved aside and removed."""
    for _ in range(3):
        try:
            temporary.rename(final)
        except OSError:
            if not final.exists():
                raise
            if state_of(final, origin) is State.INTACT:
                return  # without a lock another process can have been faster
            aside = Path(tempfile.mkdtemp(prefix=f".{final.name}.tmp-", dir=final.parent))
            # Whoever still has the old files open or mapped keeps them: only names go away.
            with contextlib.suppress(FileNotFoundError):
                final.rename(aside / "old")
            shutil.rmtree(aside, ignore_errors=True)
        else:
            _sync(final.parent)
            return
    raise OSError(f"{final} is being replaced by other processes again and again")


def _sync(path: Path) -> None:
    if os.name == "nt" and path.is_dir():  # pragma: no cover - Windows cannot open folders
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _crc32(file: Path) -> int:
    """About 4 GB/s where SHA-256 has 2: this is done at every start."""
    value, buffer = 0, bytearray(_CHUNK)
    with file.open("rb", buffering=0) as stream:
        while count := stream.readinto(buffer):
            value = zlib.crc32(memoryview(buffer)[:count], value)
    return value


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Hold an advisory lock; yields False where the system or file system has none.

    The lock saves doing the work twice. Correctness does not rest on it: renames do that.
    """
    with path.open("a") as stream:
        alone = False
        if fcntl is not None:
            with contextlib.suppress(OSError):
                fcntl.flock(stream, fcntl.LOCK_EX)
                alone = True
        yield alone  # closing the file, or the death of the process, releases the lock


def _sweep(final: Path, *, alone: bool) -> None:
    """Remove what killed processes left behind.

    With the lock held nobody else works on this folder, so every temporary of it is a leftover.
    """
    horizon = time.time() - STALE_SECONDS
    for folder in final.parent.glob(".*.tmp-*"):
        mine = folder.name.startswith(f".{final.name}.tmp-")
        with contextlib.suppress(OSError):
            newest = max(p.stat().st_mtime for p in (folder, *folder.iterdir()))
            if (alone and mine) or newest < horizon:
                shutil.rmtree(folder, ignore_errors=True)
