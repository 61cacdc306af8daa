"""The tables for people, and the file for programs."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from peers.figures import ALL, Figures, figures
from peers.measure import Crowd, Session
from peers.pool import GIB
from peers.systems import System


def all_figures(session: Session, systems: Sequence[System], baseline: str) -> dict[str, Figures]:
    """The figures of every system that answered anything."""
    found = {s.spec: figures(session.runs, s.spec, s.plain, baseline) for s in systems}
    return {spec: value for spec, value in found.items() if value.rates}


def show(console: Console, session: Session, systems: Sequence[System], baseline: str) -> None:
    """Print the tables."""
    found = all_figures(session, systems, baseline)
    tasks = list(dict.fromkeys(prompt.task for prompt in session.prompts))
    if found:
        console.print(_rates(session, systems, found, tasks))
        console.print(_ratios(systems, found, tasks, baseline))
    if session.crowds:
        console.print(_throughput(session.crowds, baseline))
    for spec, reason in session.failures.items():
        console.print(f"[bold]{spec}[/bold] is not in the figures: {reason}", highlight=False)


def _rates(
    session: Session, systems: Sequence[System], found: dict[str, Figures], tasks: Sequence[str]
) -> Table:
    table = Table(title="Tokens a second while decoding (median over rounds)")
    for column in ("system", "weights", ALL, *tasks, "text as its own plain", "GiB"):
        left = column in ("system", "weights")
        table.add_column(column, justify="left" if left else "right", no_wrap=column == "system")
    for system in systems:
        if system.spec not in found:
            continue
        one = found[system.spec]
        rates = [f"{one.rates[t]:.1f}" if t in one.rates else "-" for t in (ALL, *tasks)]
        same = f"{one.same[0]} of {one.same[1]}" if one.same else "-"
        if one.unsteady:
            same += f" ({one.unsteady} unsteady)"
        held = session.pool.memory.get(system.process, 0) / GIB
        # A program that is started anew for each prompt holds nothing in between.
        shown = f"{held:.1f}" if held > 0.1 else "-"
        table.add_row(system.spec, system.precision, *rates, same, shown)
    return table


def _ratios(
    systems: Sequence[System], found: dict[str, Figures], tasks: Sequence[str], baseline: str
) -> Table:
    table = Table(title=f"Times as fast as {baseline} (median over rounds of the ratio)")
    table.add_column("system", no_wrap=True)
    for column in (ALL, *tasks):
        table.add_column(column, justify="right")
    for system in systems:
        if system.spec in found:
            ratios = found[system.spec].ratios
            shown = [f"{ratios[t]:.2f}" if t in ratios else "-" for t in (ALL, *tasks)]
            table.add_row(system.spec, *shown)
    return table


def throughput(crowds: Sequence[Crowd], baseline: str) -> dict[str, dict[str, float]]:
    """Tokens a second of each system, and the ratio to the baseline's in the same round."""
    by_system: dict[str, dict[int, float]] = {}
    for crowd in crowds:
        by_system.setdefault(crowd.system, {})[crowd.round] = crowd.tokens / crowd.seconds
    other = by_system[crowd_baseline(crowds, baseline)] if crowds else {}
    result: dict[str, dict[str, float]] = {}
    for spec, rates in by_system.items():
        result[spec] = {"tokens_per_second": median(rates.values())}
        both = rates.keys() & other.keys()
        if both:
            result[spec]["ratio"] = median(rates[number] / other[number] for number in both)
    return result


def crowd_baseline(crowds: Sequence[Crowd], baseline: str) -> str:
    """The baseline if it batches, else the first system that does."""
    there = [crowd.system for crowd in crowds]
    return baseline if baseline in there else there[0]


def _throughput(crowds: Sequence[Crowd], baseline: str) -> Table:
    table = Table(title="New tokens a second, many requests at once, prompts included")
    table.add_column("system", no_wrap=True)
    for column in ("tokens/s", f"times {crowd_baseline(crowds, baseline)}"):
        table.add_column(column, justify="right")
    for spec, one in throughput(crowds, baseline).items():
        ratio = f"{one['ratio']:.2f}" if "ratio" in one else "-"
        table.add_row(spec, f"{one['tokens_per_second']:.1f}", ratio)
    return table


def as_json(
    session: Session, systems: Sequence[System], baseline: str, about: dict[str, Any]
) -> dict[str, Any]:
    """Everything measured, with what was asked for and what it was measured on."""
    found = all_figures(session, systems, baseline)
    return {
        "machine": machine(),
        "about": {**about, "baseline": baseline, "tokens": session.limit},
        "prompts": [{"name": p.name, "task": p.task, "ids": p.ids} for p in session.prompts],
        "systems": [
            {
                "system": system.spec,
                "version": session.pool.versions.get(system.environment),
                "weights": system.precision,
                "plain": system.plain,
                "memory_bytes": session.pool.memory.get(system.process),
                "failure": session.failures.get(system.spec),
                "figures": asdict(found[system.spec]) if system.spec in found else None,
            }
            for system in systems
        ],
        "throughput": throughput(session.crowds, baseline),
        "runs": [asdict(run) for run in session.runs],
        "crowds": [asdict(crowd) for crowd in session.crowds],
    }


def machine() -> dict[str, Any]:
    """The processor and memory."""
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text().splitlines()
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        name = names[0] if names else name
    return {
        "processor": name,
        "cores": psutil.cpu_count(logical=False) or psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / GIB, 1),
        "system": platform.platform(),
    }
