"""What the doctor found: on one screen, or as JSON."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from outpace.cli.drafter_named import drafter_named
from outpace.cli.show import printable
from outpace.config import spelled
from outpace.control.kept import MeasuredCost
from outpace.doctor.checkup import ALPHAS, LENGTHS, Prospect, Report

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
    host = report.host_seconds
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
    if report.choices or not report.prospects:
        return []
    one = report.prospects[0]
    return [
        f"drafter {one.drafter}: no model; 4 tokens cost {1e3 * one.four_tokens_seconds:.2f} ms"
    ]


def _prediction_lines(report: Report) -> list[str]:
    if not report.prospects:
        return []
    if report.choices:
        return _choice_lines(report)
    one = report.prospects[0]
    lines = [
        f"predicted times faster than plain, drafter {one.drafter} "
        "(alpha: how often a guess is right)",
        "alpha  " + "".join(f"{f'k={k}':>7}" for k in LENGTHS if k) + "   best",
    ]
    for alpha, gains in one.speedups.items():
        best = _best(gains)
        cells = "".join(f"{gain:>7.2f}" for k, gain in zip(LENGTHS, gains, strict=True) if k)
        lines.append(f"  {alpha:.1f}  {cells}   k={best}" + ("" if best else ", plain"))
    return lines


def _choice_lines(report: Report) -> list[str]:
    """A line for each drafter that was tried, at its best k."""
    wide = max(len(one.drafter) for one in report.prospects) + 2
    lines = [
        f"drafter {drafter_named(report.drafter, report.choices)}",
        "predicted times faster than plain at the best k, by alpha (how often a guess is right)",
        f"{'':<{wide}}{'4 tokens cost':>13}" + "".join(f"{alpha:>12.1f}" for alpha in ALPHAS),
    ]
    for one in report.prospects:
        cells = ""
        for gains in one.speedups.values():
            best = _best(gains)
            cells += f"{f'{gains[best]:.2f} (k={best})' if best else 'plain':>12}"
        cost = f"{1e3 * one.four_tokens_seconds:.2f} ms"
        lines.append(f"{one.drafter:<{wide}}{cost:>13}{cells}")
    return lines


def _best(gains: Sequence[float]) -> int:
    """The k of `LENGTHS` that gains most."""
    return max(LENGTHS, key=lambda k: gains[k])


def _threads(number: int) -> str:
    return f"{number} thread{'s' * (number != 1)}"


def _gib(num_bytes: float) -> str:
    return f"{num_bytes / 2**30:.2f} GiB"


def as_dict(report: Report) -> dict[str, Any]:
    """Everything as plain values: times in seconds, sizes in bytes."""
    target = report.target
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
            "host_seconds": report.host_seconds,
            "cost": _cost(target.cost),
        },
        "drafter": {
            "name": spelled(report.drafter) if report.choices else report.drafter.name,
            "choices": list(report.choices),
            "cost": None if report.draft_cost is None else _cost(report.draft_cost),
        },
        "guarantee": report.guarantee,
        "predicted": {one.drafter: _predicted(one) for one in report.prospects},
        "verdict": report.verdict,
    }


def _predicted(one: Prospect) -> dict[str, Any]:
    return {
        "four_tokens_seconds": one.four_tokens_seconds,
        "speedup_by_alpha_and_k": {
            str(alpha): dict(zip(map(str, LENGTHS), gains, strict=True))
            for alpha, gains in one.speedups.items()
        },
        "break_even_alpha": one.break_even,
    }


def _cost(cost: MeasuredCost) -> dict[str, Any]:
    return {
        "origin": cost.origin,
        "seconds_by_rows": {str(rows): seconds for rows, seconds in cost.table.points.items()},
        "attention": asdict(cost.table.attention_cost),
    }
