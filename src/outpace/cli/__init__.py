"""The command line: one small file per command."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence

from outpace.cli.failures import check_arguments, report, silence_stdout


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the ``outpace`` command and leave the process with its exit status."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run a command line; whatever goes wrong becomes one line and an exit status."""
    # Text of any script must reach any terminal, and a path may hold bytes that are no text.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if "--debug" not in arguments:
        # Warnings of libraries concern their callers, not the person at the terminal.
        warnings.simplefilter("ignore")
    try:
        check_arguments(arguments)
        from outpace.cli.app import app

        status = app(args=list(arguments), prog_name="outpace", standalone_mode=False)
        sys.stdout.flush()
    except BaseException as error:
        return report(error, debug="--debug" in arguments)
    if status == 130:
        silence_stdout()
    return status if isinstance(status, int) else 0
