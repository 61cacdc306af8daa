"""Writing results to files, and knowing early that it will work."""

from __future__ import annotations

from pathlib import Path

from outpace.errors import InvalidValueError


def write_text(path: str, text: str) -> None:
    """Write a text file.

    Raises:
        InvalidValueError: it cannot be written.
    """
    try:
        Path(path).write_text(text, "utf-8")
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from error


def check_writable(path: str) -> None:
    """Refuse a file that could not be written, before anything is measured for it.

    Raises:
        InvalidValueError: naming the path.
    """
    try:
        with Path(path).open("a", encoding="utf-8"):
            pass
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from error


def _unwritable(path: str, error: Exception) -> InvalidValueError:
    reason = getattr(error, "strerror", None) or "its name is not one of a file"
    return InvalidValueError("output", path, f"cannot be written: {reason}")
