"""A plan as a page of its own, with plots."""

from __future__ import annotations

from pathlib import Path

from outpace.charts.axis import Axis
from outpace.charts.bar import Bars, stacked_chart
from outpace.charts.line import Line, Reference, line_chart
from outpace.charts.page import Section, facts, page, table
from outpace.errors import InvalidValueError
from outpace.plan.hardware import GIB
from outpace.plan.report import Report

_LINES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # more lines than colours cannot be told apart
_PARTS = (
    *("target_weights", "draft_weights", "target_cache", "draft_cache", "logits"),
    *("reserve", "free"),
)


def write_page(report: Report, file: Path) -> None:
    """Write the page.

    Raises:
        InvalidValueError: the file cannot be written.
    """
    try:
        file.write_text(render(report), "utf-8")
    except OSError as error:
        raise InvalidValueError(
            "html", str(file), f"cannot be written: {error.strerror}"
        ) from error


def render(report: Report) -> str:
    """Return the page as HTML."""
    lead = " ".join(report.findings())
    sections = [
        Section(
            "Speed against batch",
            "Tokens a second with speculation over tokens a second of plain decoding at the same "
            "batch; below 1 it loses. A line ends where memory does.",
            (_speedups(report), _throughput(report), _best_k(report)),
        ),
        Section("Memory", "Where the memory goes at the largest batch.", (_memory(report),)),
        Section(
            "Replicas",
            "One replica within the latency target: its largest batch, prompts included.",
            (_replicas(report),),
        ),
        Section("Kinds of request", "Each alone, at batch 1.", (_types(report),)),
        Section("What this rests on", "", (_facts(report),)),
    ]
    return page(f"Plan: {report.title}", lead, sections, "Made by outpace plan.")


def _ks(report: Report) -> list[int]:
    return [k for k in _LINES if k <= report.setting.max_k]


def _speedups(report: Report) -> str:
    rows = report.forecast.at_batches
    lines = []
    for k in _ks(report):
        points = [(float(r.batch), r.speedups[k]) for r in rows]
        held = tuple((x, y) for x, y in points if y is not None)
        lines.append(Line(f"k = {k}", held))
    references = [Reference("as fast as plain", y=1.0)]
    crossing = report.forecast.paying_by_k[0].crossing
    if crossing is not None and 1 < crossing <= rows[-1].batch:
        references.append(Reference(f"stops paying at {crossing}", x=float(crossing)))
    return line_chart(
        "Speed-up by k",
        lines,
        Axis("sequences at once (batch)", log=True),
        Axis("times plain decoding", unit="×"),
        references=references,
    )


def _throughput(report: Report) -> str:
    rows = report.forecast.at_batches
    plain = tuple((float(r.batch), r.tokens_per_second[0] or 0.0) for r in rows)
    best = tuple((float(r.batch), r.tokens_per_second[r.best_k] or 0.0) for r in rows)
    lines = [Line("best k", best), Line("plain", plain, muted=True)]
    return line_chart(
        "Tokens a second",
        lines,
        Axis("sequences at once (batch)", log=True),
        Axis("tokens a second", log=True),
        note="With the draft loaded where it fits; beyond that only plain decoding is left.",
    )


def _best_k(report: Report) -> str:
    points = tuple((float(r.batch), float(r.best_k)) for r in report.forecast.at_batches)
    axis = Axis("sequences at once (batch)", log=True)
    return line_chart("Best k by load", [Line("best k", points)], axis, Axis("draft tokens"))


def _memory(report: Report) -> str:
    plan = report.forecast
    k = max(plan.at_batches[0].best_k, 1)
    groups = (
        f"without a draft: batch {plan.largest_without}",
        f"with the draft, k = {k}: batch {plan.largest_with[k]}",
    )
    parts = [
        Bars(
            name.replace("_", " "),
            tuple(getattr(one, name) / GIB for one in (plan.memory_without, plan.memory_with)),
            muted=name == "free",
        )
        for name in _PARTS
    ]
    return stacked_chart("Memory of a replica", groups, parts, Axis("GiB"))


def _replicas(report: Report) -> str:
    plan, load = report.forecast, report.setting.load
    headings = ["", "batch", "requests/s", "tokens/s", "ms a token", "prompts take", "replicas"]
    rows = []
    named = [("plain, no draft loaded", plan.plain)]
    named += [(f"k = {k}", one) for k, one in enumerate(plan.drafted, start=1)]
    for name, one in named:
        if one is None:
            rows.append([name, "out of reach", *[""] * 5])
            continue
        needed = "-"
        if load.rate is not None:
            needed = f"{load.rate / (one.requests_per_second * load.utilization):.2f}"
        rows.append(
            [
                name,
                str(one.batch),
                f"{one.requests_per_second:.3g}",
                f"{one.tokens_per_second:.4g}",
                f"{one.seconds_per_token * 1e3:.1f}",
                f"{one.prefill_share:.0%}",
                needed,
            ]
        )
    return table(headings, rows)


def _types(report: Report) -> str:
    headings = ["kind", "share", "alpha", "best k", "acceptance length", "speed-up"]
    rows = [
        [
            one.name,
            f"{one.share:.0%}",
            "/".join(f"{value:g}" for value in one.alpha),
            str(one.best_k),
            f"{one.acceptance_length:.2f}",
            f"{one.speedup:.2f}",
        ]
        for one in report.forecast.types
    ]
    return table(headings, rows)


def _facts(report: Report) -> str:
    load = report.setting.load
    target = "none" if load.latency_target is None else f"{load.latency_target * 1e3:g} ms a token"
    pairs = [
        ("step times", f"{report.where['step_times']}: {report.where['source']}"),
        ("context", f"{report.setting.pair.context} tokens a sequence"),
        ("arrivals", "none given" if load.rate is None else f"{load.rate:g} requests a second"),
        ("latency target", target),
        *report.assumed(),
    ]
    return facts(pairs)
