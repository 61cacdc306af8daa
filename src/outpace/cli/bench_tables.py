"""A run and a comparison in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from outpace.bench.compare import FASTER, SLOWER, Verdict
from outpace.bench.figures import ALL
from outpace.bench.policy import PLAIN
from outpace.bench.result import Result
from outpace.bench.words import (
    cautions,
    exactness,
    interval_text,
    ratio_text,
    rows_of,
    short,
    shown,
)

_WIDTH_WITHOUT_TERMINAL = 130
# From this width on there is room for every column.
_WIDE = 125
_WIDEST_NAME = 20
# Each column's name, and whether only a wide terminal shows it.
_COLUMNS = (
    ("seconds", False),
    ("tok/s", True),
    ("faster (95 %)", False),
    ("after 1st token", False),
    ("predicted", True),
    ("alpha", False),
    ("tok/step", True),
)


def print_result(result: Result) -> None:
    """Print a table for each arrival, what to be careful about, and whether tokens differed."""
    console = _console()
    for arrival in dict.fromkeys(record.arrival for record in result.records):
        console.print(_table(result, arrival, wide=console.width >= _WIDE))
    where = ", ".join(str(result.target[k]) for k in ("model", "setting") if k in result.target)
    setting = f"{where} on {result.machine['processor']} ({result.machine['cores']} cores)"
    repeats = result.settings["repeats"]
    console.print(f"Medians of up to {repeats} repeats; {setting}.", markup=False)
    for text in cautions(result):
        console.print(text, style="yellow", markup=False)
    sentence = exactness(result)
    console.print(f"{sentence[0].upper()}{sentence[1:]}.", style="bold", markup=False)


def _table(result: Result, arrival: str, *, wide: bool) -> Table:
    """A table of one arrival; a narrow terminal gets fewer columns rather than broken ones."""
    table = Table(
        title=f"Arrival: {arrival}",
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    table.add_column("task", no_wrap=True)
    names = [short(policy) for policy in result.policies]
    widest = min(_WIDEST_NAME, max(map(len, names)))
    table.add_column("policy", min_width=widest, max_width=_WIDEST_NAME, overflow="fold")
    for name, only_wide in _COLUMNS:
        if wide or not only_wide:
            table.add_column(name, justify="right", no_wrap=True)
    tasks = dict.fromkeys(row["task"] for row in rows_of(result, arrival=arrival))
    for task in tasks:
        rows = rows_of(result, arrival=arrival, task=task)
        rows.sort(key=lambda row: result.policies.index(row["policy"]))
        for i, row in enumerate(rows):
            pairs = zip(_cells(row), _COLUMNS, strict=True)
            cells = [cell for cell, (_, only_wide) in pairs if wide or not only_wide]
            first = task if i == 0 else ""
            table.add_row(first, short(row["policy"]), *cells, end_section=i == len(rows) - 1)
    return table


def _cells(row: dict[str, Any]) -> list[str | Text]:
    """What stands under `_COLUMNS`."""
    plain = row["policy"] == PLAIN
    return [
        shown(row["total_seconds_median"]),
        shown(row["tokens_per_second"]),
        Text("1") if plain else _coloured(row["speedup"]),
        Text("1") if plain else _coloured(row["decode_speedup"]),
        shown(row["predicted_decode_speedup"]),
        shown(row["alpha"]),
        shown(row["acceptance_length"]),
    ]


def _coloured(ratio: dict[str, Any] | None) -> Text:
    """A ratio, green or red where its interval is wholly on one side of 1."""
    style = ""
    if ratio is not None and ratio["low"] is not None:
        style = "green" if ratio["low"] > 1 else "red" if ratio["high"] < 1 else ""
    return Text(ratio_text(ratio), style=style)


def print_comparison(first: Result, second: Result, verdicts: Sequence[Verdict]) -> None:
    """Print a verdict for each arrival, policy and task."""
    console = _console()
    table = Table(box=SIMPLE_HEAD)
    for name in ("arrival", "policy", "task"):
        table.add_column(name, min_width=9, overflow="fold")
    table.add_column("times faster (95 %)", justify="right", no_wrap=True)
    table.add_column("prompts", justify="right")
    table.add_column("verdict", no_wrap=True)
    for verdict in verdicts:
        style = {FASTER: "green", SLOWER: "bold red"}.get(verdict.verdict, "")
        table.add_row(
            verdict.arrival,
            short(verdict.policy),
            verdict.task,
            interval_text(verdict.ratio.value, verdict.low, verdict.high),
            str(verdict.ratio.prompts),
            Text(verdict.verdict, style=style),
        )
    console.print(table)
    widest = max(verdict.margin for verdict in verdicts)
    console.print(
        "The second run against the first, on prompts that both answered alike. Intervals are "
        f"widened by up to {100 * (widest - 1):.0f} %, what equal repeats or two runs differ by.",
        markup=False,
    )
    left_out = sum(v.other_answers for v in verdicts if v.task == ALL)
    if left_out:
        console.print(
            f"{left_out} prompts were left out: the runs answered them differently.",
            style="yellow",
        )
    for name, result in (("first", first), ("second", second)):
        if result.partial:
            console.print(f"The {name} run is partial.", style="yellow", markup=False)


def _console() -> Console:
    console = Console(highlight=False)
    if console.is_terminal:
        return console
    return Console(highlight=False, width=_WIDTH_WITHOUT_TERMINAL)
