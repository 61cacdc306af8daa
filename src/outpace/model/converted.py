"""A cache of folders that are expensive to make: atomic, checked on every use, self-repairing."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from outpace.errors import CheckpointError

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows: no lock, conversions may be done twice
    fcntl = None  # type: ignore[assignment]

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
STALE_SECONDS = 6 * 3600.0


def cache_folder() -> Path:
    """Return the folder for what Outpace keeps: $OUTPACE_CACHE, else the user's cache folder."""
    from platformdirs import user_cache_path

    chosen = os.environ.get("OUTPACE_CACHE")
    return Path(chosen).expanduser() if chosen else user_cache_path("outpace")


def converted(
    source: Path, cache: Path, *, make: Callable[[Path], None], identity: str | None = None
) -> Path:
    """Return the intact folder that `make` writes for a source file, making it when needed.

    A folder counts only when its manifest names this source (content hash `identity`, else size
    and modification time), this format version, and the size and sha256 of every file in it. It is
    written beside its final place and renamed, so an interrupted conversion leaves nothing that
    could be taken for a result.

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
    stem = re.sub(r"[^A-Za-z0-9._-]+", "_", source.stem).lstrip(".")[:80]
    final = cache / "converted" / f"{stem}-{key}"
    if is_intact(final, origin):
        return final
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        with _locked(final.with_name(f".{final.name}.lock")) as alone:
            if is_intact(final, origin):  # another process made it while this one waited
                return final
            _sweep(final, alone=alone)
            _make(final, origin, make)
    except OSError as error:
        raise CheckpointError(
            f"{final.parent}: cannot write the converted model ({error.strerror or error}); free "
            "some space, or set OUTPACE_CACHE to another folder"
        ) from error
    return final


def is_intact(folder: Path, origin: dict[str, Any]) -> bool:
    """Whether a converted folder is complete, undamaged and made from this origin."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text("utf-8"))
        if manifest["origin"] != origin:
            return False
        files: dict[str, dict[str, Any]] = manifest["files"]
        # All sizes first: cheap, and they catch most damage.
        if any((folder / n).stat().st_size != f["size"] for n, f in files.items()):
            return False
        return all(_sha256(folder / n) == f["sha256"] for n, f in files.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _make(final: Path, origin: dict[str, Any], make: Callable[[Path], None]) -> None:
    temporary = Path(tempfile.mkdtemp(prefix=f".{final.name}.tmp-", dir=final.parent))
    try:
        make(temporary)
        files = {}
        for file in sorted(temporary.iterdir()):
            _sync(file)
            files[file.name] = {"size": file.stat().st_size, "sha256": _sha256(file)}
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
            if is_intact(final, origin):  # without a lock another process can have been faster
                return
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


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


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
    """Remove what killed conversions left behind.

    With the lock held nobody else works on this folder, so every temporary of it is a leftover.
    """
    horizon = time.time() - STALE_SECONDS
    for folder in final.parent.glob(".*.tmp-*"):
        mine = folder.name.startswith(f".{final.name}.tmp-")
        with contextlib.suppress(OSError):
            newest = max(p.stat().st_mtime for p in (folder, *folder.iterdir()))
            if (alone and mine) or newest < horizon:
                shutil.rmtree(folder, ignore_errors=True)
