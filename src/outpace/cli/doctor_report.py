"""What the doctor found: on one screen, or as JSON."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from outpace.cli.show import printable
from outpace.control.kept import MeasuredCost
from outpace.doctor.checkup import LENGTHS, Report

_WIDTH = 100
_LABEL = 11
_BAR = "█"
_LONGEST_BAR = 40


def print_report(report: Report) -> None:
    """Print one screen to stdout."""
    width = min(shutil.get_terminal_size((_WIDTH, 24)).columns, 120)
    lines = [
        *_machine_lines(report),
        *_model_lines(report),
        "",
        *_plot("one step of the target", report.target.cost, width),
        *_draft_lines(report, width),
        "",
        *_prediction_lines(report),
        "",
        report.verdict,
    ]
    sys.stdout.write("\n".join(printable(line) for line in lines) + "\n")


def _row(label: str, text: str) -> str:
    return f"{label:<{_LABEL}}{text}"


def _machine_lines(report: Report) -> list[str]:
    machine = report.machine
    features = ", ".join(machine.features) or "none of those that matter"
    bandwidth = "not measured"
    if report.bandwidth is not None:
        bandwidth = f"{report.bandwidth / 1e9:.1f} GB/s read by {_threads(report.threads)}"
    return [
        _row("processor", f"{machine.cpu}, {machine.cores} cores; {features}"),
        _row("GPU", report.gpu or "none"),
        _row(
            "memory",
            f"{_gib(report.memory_total)}, {_gib(report.memory_free)} free; {bandwidth}",
        ),
        _row("kernels", f"{report.target.kernels}; compiled ones: {report.compiled}"),
        _row("versions", f"outpace {machine.package}, torch {machine.torch}"),
    ]


def _model_lines(report: Report) -> list[str]:
    target, plan = report.target, report.plan
    lines = [
        "",
        _row(
            "target",
            f"{target.name} in {target.precision} on {report.device}, "
            f"{_threads(report.threads)}, {report.guarantee}",
        ),
        _row(
            "plan",
            f"weights {_gib(plan.weights)} + cache {_gib(plan.cache)} ({plan.cache_tokens} tokens) "
            f"+ logits {_gib(plan.logits)} = {_gib(plan.total)}; context {plan.max_model_len}",
        ),
    ]
    step = f"{1e3 * report.step_seconds:.2f} ms measured"
    if report.floor_seconds is not None:
        step += (
            f"; reading {_gib(target.weight_bytes)} of weights alone takes "
            f"{1e3 * report.floor_seconds:.2f} ms: {report.step_seconds / report.floor_seconds:.2f}"
            " times that"
        )
    host = report.outlook.costs.host.at(1)
    lines.append(_row("one row", step))
    lines.append(_row("beside it", f"{1e3 * host:.2f} ms a step outside the model"))
    return lines


def _plot(title: str, cost: MeasuredCost, width: int) -> list[str]:
    """Rows against milliseconds, a bar each."""
    points = cost.table.points
    longest = max(points.values())
    room = max(10, min(_LONGEST_BAR, width - 30))
    lines = [f"{title} by rows ({cost.origin})"]
    first = next(iter(points.values()))
    for rows, seconds in points.items():
        bar = _BAR * max(1, round(room * seconds / longest))
        lines.append(f"{rows:>4} {1e3 * seconds:>9.2f} ms {seconds / first:>6.2f}x  {bar}")
    attention = cost.table.attention_cost
    if attention.per_key or attention.per_pair:
        more = 1e3 * attention.seconds(1, attention.base_context + 1000)
        lines.append(f"and {more:.2f} ms more for each 1000 tokens of context")
    return lines


def _draft_lines(report: Report, width: int) -> list[str]:
    cost = report.draft_cost
    if cost is not None:
        points = cost.table.points
        shown = ", ".join(f"{rows}: {1e3 * s:.2f}" for rows, s in points.items() if rows <= 8)
        text = f"one step of the draft, ms by rows: {shown} ({cost.origin})"
        return [text if len(text) <= width else text.replace(f" ({cost.origin})", "")]
    if report.drafter == "none":
        return []
    seconds = report.outlook.step_seconds(4) - report.outlook.step_seconds(0)
    target = report.outlook.costs.target
    seconds -= target(5) - target(1)
    return [f"drafter {report.drafter}: no model; 4 tokens cost {1e3 * seconds:.2f} ms"]


def _prediction_lines(report: Report) -> list[str]:
    if report.drafter == "none":
        return []
    lines = [
        f"predicted times faster than plain, drafter {report.drafter} "
        "(alpha: how often a guess is right)",
        "alpha  " + "".join(f"{f'k={k}':>7}" for k in LENGTHS if k) + "   best",
    ]
    for alpha, gains in report.predictions.items():
        best = max(LENGTHS, key=lambda k: gains[k])
        cells = "".join(f"{gain:>7.2f}" for k, gain in zip(LENGTHS, gains, strict=True) if k)
        lines.append(f"  {alpha:.1f}  {cells}   k={best}" + ("" if best else ", plain"))
    return lines


def _threads(number: int) -> str:
    return f"{number} thread{'s' * (number != 1)}"


def _gib(num_bytes: float) -> str:
    return f"{num_bytes / 2**30:.2f} GiB"


def as_dict(report: Report) -> dict[str, Any]:
    """Everything as plain values: times in seconds, sizes in bytes."""
    target, outlook = report.target, report.outlook
    return {
        "machine": asdict(report.machine) | {"gpu": report.gpu},
        "device": report.device,
        "threads": report.threads,
        "memory": {
            "total": report.memory_total,
            "free": report.memory_free,
            "read_bytes_per_second": report.bandwidth,
        },
        "kernels": {"used": target.kernels, "compiled": report.compiled},
        "plan": asdict(report.plan) | {"total": report.plan.total},
        "target": {
            "model": target.name,
            "precision": target.precision,
            "weight_bytes": target.weight_bytes,
            "floor_seconds": report.floor_seconds,
            "one_row_seconds": report.step_seconds,
            "host_seconds": outlook.costs.host.at(1),
            "cost": _cost(target.cost),
        },
        "drafter": {
            "name": report.drafter,
            "cost": None if report.draft_cost is None else _cost(report.draft_cost),
        },
        "guarantee": report.guarantee,
        "speedup_by_alpha_and_k": {
            str(alpha): dict(zip(map(str, LENGTHS), gains, strict=True))
            for alpha, gains in _predictions(report).items()
        },
        "break_even_alpha": None if report.drafter == "none" else outlook.break_even(LENGTHS),
        "verdict": report.verdict,
    }


def _predictions(report: Report) -> Mapping[float, list[float]]:
    return {} if report.drafter == "none" else report.predictions


def _cost(cost: MeasuredCost) -> dict[str, Any]:
    return {
        "origin": cost.origin,
        "seconds_by_rows": {str(rows): seconds for rows, seconds in cost.table.points.items()},
        "attention": asdict(cost.table.attention_cost),
    }
