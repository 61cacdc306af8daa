"""From an exception to one line on stderr and an exit status."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

from outpace.errors import InvalidValueError, OutpaceError

FAILED = 1
USAGE = 2
INTERRUPTED = 130
BROKEN_PIPE = 141
_LONGEST = 600


def check_arguments(arguments: Sequence[str]) -> None:
    """Refuse arguments that are not UTF-8, by name.

    Python hands over such bytes as halves of surrogate pairs, which no tokenizer takes and which
    would fail much later, somewhere in the middle.

    Raises:
        InvalidValueError: naming the argument.
    """
    for index, argument in enumerate(arguments):
        if _is_unicode(argument):
            continue
        before = arguments[index - 1] if index else ""
        if argument.startswith("--"):
            name = argument.partition("=")[0]
        elif before.startswith("-") and "=" not in before:
            name = before
        else:
            name = f"argument {index + 1}"
        if not _is_unicode(name):
            name = f"argument {index + 1}"
        raise InvalidValueError(name, argument, "is not valid UTF-8; give it in UTF-8")


def report(error: BaseException, *, debug: bool) -> int:
    """Say what went wrong in one line on stderr; returns the exit status."""
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else FAILED
    if isinstance(error, BrokenPipeError):
        # Whoever read our output has had enough: no news to anyone.
        silence_stdout()
        return BROKEN_PIPE
    if debug:
        traceback.print_exception(error)
    if isinstance(error, KeyboardInterrupt):
        silence_stdout()
        return INTERRUPTED
    text, status = _describe(error)
    print(f"error: {text}", file=sys.stderr)
    return status


def _describe(error: BaseException) -> tuple[str, int]:
    if isinstance(error, OutpaceError):
        return one_line(str(error)), FAILED
    # The classes of typer's usage errors have moved between its versions; their shape has not.
    format_message = getattr(error, "format_message", None)
    if format_message is not None:
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "outpace"
        return one_line(f"{format_message()} (see {command} --help)"), USAGE
    if isinstance(error, OSError) and error.filename is None and error.strerror:
        # Files of ours are named by whoever opens them; what is left is what we write to.
        return one_line(f"output: cannot be written: {error.strerror}"), FAILED
    text = one_line(f"{type(error).__name__}: {error}".removesuffix(": "))
    hint = "this is a defect, please report it; rerun with --debug for the traceback"
    return f"{text} ({hint})", FAILED


def one_line(text: str) -> str:
    """Return the text without line breaks or other control characters, and not endless."""
    words = " ".join(text.split())
    safe = "".join(character if character.isprintable() else "?" for character in words)
    return safe if len(safe) <= _LONGEST else f"{safe[:_LONGEST]}…"


def silence_stdout() -> None:
    """Let what is still buffered go nowhere, so that leaving the process does not fail on it."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except (OSError, ValueError):  # not a real file: nothing to leave behind
            return


def _is_unicode(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
