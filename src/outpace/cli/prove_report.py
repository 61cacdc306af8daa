"""A proof's checks for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from outpace.cli.show import printable

if TYPE_CHECKING:
    from outpace.prove.verdict import Report

_WIDTH_WITHOUT_TERMINAL = 110
_STYLES = {"passed": "green", "failed": "bold red", "inconclusive": "yellow"}


def print_report(report: Report) -> None:
    """Print what was tested, each check, what cannot be known, and the verdict."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH_WITHOUT_TERMINAL)
    table = Table(box=SIMPLE_HEAD, title=_title(report), title_justify="left", title_style="bold")
    table.add_column("check", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    table.add_column("what was found", overflow="fold")
    for check in report.checks:
        outcome = Text(str(check.status), style=_STYLES[check.status])
        table.add_row(Text(check.name), outcome, Text(printable(check.summary)))
    console.print(table)
    for key, value in report.subject.items():
        console.print(f"{key.replace('_', ' ')}: {_shown(value)}", markup=False)
    if report.limits:
        console.print("\nWhat this cannot know:")
        for limit in report.limits:
            console.print(f"- {printable(limit)}", markup=False)
    console.print()
    console.print(report.verdict, style=_STYLES[report.status], markup=False)


def _title(report: Report) -> str:
    return f"outpace prove, {report.method}"


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return str(value)
