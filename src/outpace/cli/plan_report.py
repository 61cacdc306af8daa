"""A plan in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from outpace.plan.capacity import Replica
from outpace.plan.find import find_architecture, model_names
from outpace.plan.hardware import GIB, find_hardware, hardware_names
from outpace.plan.memory import MemoryParts
from outpace.plan.report import Report

_WIDTH_WITHOUT_TERMINAL = 110
_MOST_KS = 9


def print_report(report: Report) -> None:
    """Print what was assumed, the tables, and the findings."""
    console = _console()
    console.print(report.title, style="bold", markup=False)
    console.print(_assumed(report), style="dim", markup=False)
    console.print()
    for table in (_memory(report), _speedups(report), _types(report), _replicas(report)):
        console.print(table)
    for finding in report.findings():
        console.print(f"• {finding}", markup=False)


def print_names() -> None:
    """Print the tables of models and hardware."""
    console = _console()
    models = _table("models", "weights (10^9)", "read by one row (10^9)", "cache KiB/token in bf16")
    for name in model_names():
        model = find_architecture(name)
        once = model.weights_read(1) + model.head_weights
        models.add_row(
            name,
            f"{model.weights / 1e9:.2f}",
            f"{once / 1e9:.2f}",
            f"{model.layers * model.cache_per_position * 2 / 1024:.0f}",
        )
    console.print(models)
    parts = _table("hardware", "GB/s", "bf16 TFLOP/s", "fp8", "int8", "GiB")
    parts.add_column("source")
    for name in hardware_names():
        part = find_hardware(name)
        rates = [part.compute.get(kind) for kind in ("bf16", "fp8", "int8")]
        shown = ["-" if rate is None else f"{rate / 1e12:.0f}" for rate in rates]
        memory = "-" if part.memory is None else f"{part.memory / GIB:.0f}"
        parts.add_row(name, f"{part.bandwidth / 1e9:.0f}", *shown, memory, part.source)
    console.print(parts)


def _console() -> Console:
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH_WITHOUT_TERMINAL)
    return console


def _table(*columns: str) -> Table:
    table = Table(box=SIMPLE_HEAD)
    table.add_column(columns[0], no_wrap=True)
    for name in columns[1:]:
        table.add_column(name, justify="right")
    return table


def _assumed(report: Report) -> str:
    mix = ", ".join(
        f"{one.name} {one.share:.0%} alpha {'/'.join(f'{a:g}' for a in one.alpha)}"
        + (f" coverage {one.coverage:g}" if one.coverage < 1 else "")
        for one in report.setting.pair.mix.types
    )
    assumed = ", ".join(f"{name} {value}" for name, value in report.assumed())
    return (
        f"Step times: {report.where['step_times']} ({report.where['source']}). "
        f"Context {report.setting.pair.context} tokens. Mix: {mix}. Assumed: {assumed}."
    )


def _memory(report: Report) -> Table:
    plan = report.forecast
    k = max(plan.at_batches[0].best_k, 1)
    table = _table("memory in GiB", "without draft", f"with draft, k = {k}")
    names = (
        *("target_weights", "draft_weights", "target_cache", "draft_cache", "logits"),
        *("reserve", "free", "total"),
    )
    for name in names:
        cells = [_gib(parts, name) for parts in (plan.memory_without, plan.memory_with)]
        table.add_row(name.replace("_", " "), *cells)
    table.add_row("largest batch", str(plan.largest_without), str(plan.largest_with[k]))
    return table


def _gib(parts: MemoryParts, name: str) -> str:
    return f"{getattr(parts, name) / GIB:.2f}"


def _speedups(report: Report) -> Table:
    ks = list(report.setting.ks)[:_MOST_KS]
    table = _table(
        "speed-up at batch", "plain tok/s", *(f"k={k}" for k in ks[1:]), "best k", "best tok/s"
    )
    for row in report.forecast.at_batches:
        plain, best = row.tokens_per_second[0], row.tokens_per_second[row.best_k]
        table.add_row(
            str(row.batch),
            _number(plain),
            *(_ratio(row.speedups[k], k == row.best_k) for k in ks[1:]),
            str(row.best_k),
            _number(best),
        )
    ends: list[str | Text] = []
    for k in ks[1:]:
        found = report.forecast.paying_by_k[k]
        if not found.runs:
            ends.append("never")
        else:
            ends.append("-" if found.crossing is None else str(found.crossing))
    table.caption = "-: memory does not hold it; the last line looks beyond the memory"
    table.caption_justify = "left"
    table.add_section()
    table.add_row("stops paying at", "", *ends, "", "")
    return table


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}" if value < 1000 else f"{value:,.0f}"


def _ratio(value: float | None, best: bool) -> Text:
    if value is None:
        return Text("-", style="dim")
    style = "green" if value > 1 else "red"
    return Text(f"{value:.2f}", style=f"bold {style}" if best else style)


def _types(report: Report) -> Table:
    table = _table("alone, at batch 1", "share", "alpha", "best k", "acceptance length", "speed-up")
    for one in report.forecast.types:
        alpha = "/".join(f"{value:g}" for value in one.alpha)
        length, gain = f"{one.acceptance_length:.2f}", _ratio(one.speedup, False)
        table.add_row(one.name, f"{one.share:.0%}", alpha, str(one.best_k), length, gain)
    return table


def _replicas(report: Report) -> Table:
    plan, load = report.forecast, report.setting.load
    columns = ["batch", "requests/s", "tok/s", "ms/token", "prompts take"]
    if load.rate is not None:
        columns.append(f"replicas for {load.rate:g}/s")
    table = _table("one replica", *columns)
    rows: Sequence[tuple[str, Replica | None]] = [
        ("plain, no draft loaded", plan.plain),
        *((f"k = {k}", one) for k, one in enumerate(plan.drafted, start=1)),
    ]
    for name, one in rows:
        if one is None:
            table.add_row(name, *["out of reach"], *[""] * (len(columns) - 1))
            continue
        cells = [
            str(one.batch),
            f"{one.requests_per_second:.3g}",
            _number(one.tokens_per_second),
            f"{one.seconds_per_token * 1e3:.1f}",
            f"{one.prefill_share:.0%}",
        ]
        if load.rate is not None:
            cells.append(f"{load.rate / (one.requests_per_second * load.utilization):.2f}")
        table.add_row(name, *cells)
    return table
