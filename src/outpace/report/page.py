"""The page of a record: one HTML document, drawn from the figures alone."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from outpace.charts.axis import Axis
from outpace.charts.bar import Bars, bar_chart
from outpace.charts.line import Line, Reference, line_chart
from outpace.charts.page import Section, facts, page, table, warning
from outpace.charts.strip import Strip, strip_chart
from outpace.health.calibration import FEWEST_TRIALS
from outpace.health.findings import FEWEST_REQUESTS
from outpace.report.words import (
    about_plain,
    interval,
    largest,
    milliseconds,
    name_of,
    percent,
    shown,
    speedup_of,
)

_SPEEDUP = Axis("times faster than plain decoding, by the cost table", unit="×")
_MOST_DOTS = 300
_FEWEST_TRIED = 20
_MOST_REASONS = 40
_FEWEST_FOR_LINES = 24
Figures = dict[str, Any]


def make_page(figures: Figures) -> str:
    """Return the page of what `outpace.report.figures.report_figures` says."""
    sections = [
        _short(figures),
        _groups(figures),
        _positions(figures),
        _distribution(figures),
        _load(figures),
        _drift(figures),
        _calibration(figures),
        _decisions(figures),
        _numbers(figures),
        _setting(figures),
    ]
    period = f" from {figures['first']} to {figures['last']}" if figures["first"] else ""
    lead = f"{figures['requests']} requests{period}"
    title = f"Outpace report: {', '.join(figures['models']) or 'an empty record'}"
    return page(title, lead, [one for one in sections if one.blocks], f"From {figures['record']}.")


def _short(figures: Figures) -> Section:
    listed = "".join(f"<li>{escape(sentence)}</li>" for sentence in figures["advice"])
    blocks = [f'<ul class="sentences">{listed}</ul>']
    blocks += [
        warning(f"{one['text']}. What to do: {one['advice']}.")
        for one in figures["findings"]
        if one["severity"] == "warning"
    ]
    notes = [one for one in figures["findings"] if one["severity"] != "warning"]
    if notes:
        blocks.append(facts([(one["name"], f"{one['text']}. {_upper(one)}.") for one in notes]))
    if not figures["findings"]:
        blocks.append(facts([("findings", _no_findings(figures))]))
    return Section("In short", blocks=tuple(blocks))


def _no_findings(figures: Figures) -> str:
    """Nothing was found; where nothing could be found, that is said."""
    groups = figures["groups"]
    most = max((one["requests"] - one["plain_requests"] for one in groups), default=0)
    if most >= FEWEST_REQUESTS:
        return "none"
    needed = f"no type and drafter has {FEWEST_REQUESTS} requests that drafted"
    return f"none, but too little data yet: {needed}"


def _upper(finding: Figures) -> str:
    advice = str(finding["advice"])
    return advice[0].upper() + advice[1:]


def _groups(figures: Figures) -> Section:
    types = [group["type"] for group in figures["types"]]
    drafters = [group["drafter"] for group in figures["drafters"]]
    found = {(group["type"], group["drafter"]): group for group in figures["groups"]}
    idle = {group["drafter"] for group in figures["drafters"] if not group["drafted"]}

    def bars(field: str) -> list[Bars]:
        drawn = []
        for name in drafters:
            picked = [found.get((kind, name)) for kind in types]
            values = tuple(group[field] if group else None for group in picked)
            drawn.append(Bars(name, values, muted=name in idle))
        return [one for one in drawn if any(value is not None for value in one.values)]

    charts = (
        bar_chart("Speed-up by type and drafter", types, bars("speedup"), _SPEEDUP, reference=1),
        bar_chart(
            "Tokens a target step",
            types,
            bars("acceptance_length"),
            Axis("acceptance length (plain decoding: 1)"),
            reference=1,
        ),
    )
    text = (
        "Speed-up: what the tokens would have taken by the cost table without drafts, over what "
        "they took, in steps in which no prompt was read. Requests that drafted nothing are plain "
        "decoding and have no speed-up."
    )
    return Section("By type and drafter", text, charts if figures["groups"] else ())


def _positions(figures: Figures) -> Section:
    lines = []
    for group in largest(figures["groups"]):
        known = [
            (at, one)
            for at, one in enumerate(group["positions"], 1)
            if one["tried"] >= _FEWEST_TRIED
        ]
        points = tuple((float(at), one["value"]) for at, one in known)
        bands = tuple((one["low"], one["high"]) for _, one in known)
        if points:
            lines.append(Line(name_of(group), points, bands))
    chart = line_chart(
        "Conditional acceptance by position",
        lines,
        Axis("position in the draft", zero=False, whole=True),
        Axis("share of right guesses, those before being right"),
        note=f"Bands: 95 %. Positions tried fewer than {_FEWEST_TRIED} times are left out, and "
        "groups beyond the eight with most guesses.",
    )
    return Section("Acceptance", blocks=(chart,) if lines else ())


def _distribution(figures: Figures) -> Section:
    speedups = figures["speedups"]
    plain = about_plain(figures["all"])
    if not any(speedups.values()):
        return Section("Distribution of speed-ups", blocks=(facts(plain),) if plain else ())
    strips = [Strip(name, _thinned(values)) for name, values in speedups.items() if values]
    chart = strip_chart(
        "Speed-up of single requests",
        strips,
        _SPEEDUP,
        reference=1,
        note=f"At most {_MOST_DOTS} dots a line, evenly chosen by rank.",
    )
    headings = ("type", "requests", "p5", "p50", "p95", "slower than plain", "by over 5 %")
    rows = [
        [
            group["type"],
            str(group["speedup_requests"]),
            *(shown(group[f"speedup_{p}"], "×") for p in ("p5", "p50", "p95")),
            percent(group["slower_share"]),
            percent(group["slower_by_5_percent_share"]),
        ]
        for group in (*figures["types"], figures["all"])
        if group["speedup_requests"]
    ]
    return Section(
        "Distribution of speed-ups",
        "The mean hides the tail: each dot is a request that drafted and was not aborted.",
        (chart, table(headings, rows), *([facts(plain)] if plain else [])),
    )


def _thinned(values: Sequence[float]) -> tuple[float, ...]:
    ordered = sorted(values)
    if len(ordered) <= _MOST_DOTS:
        return tuple(ordered)
    last = len(ordered) - 1
    return tuple(ordered[round(i * last / (_MOST_DOTS - 1))] for i in range(_MOST_DOTS))


def _load(figures: Figures) -> Section:
    levels = figures["load"]
    headings = (
        "requests at once",
        "requests",
        "k allowed",
        "k drafted",
        "tokens/step",
        "speed-up",
        "slower than plain",
        "ms a step, p99",
    )
    rows = [
        [
            str(one["from"]) if one["from"] == one["to"] else f"{one['from']}-{one['to']}",
            str(one["requests"]),
            shown(one["asked_per_step"]),
            shown(one["drafted_per_step"]),
            shown(one["acceptance_length"]),
            speedup_of(one),
            percent(one["slower_share"]),
            milliseconds(one["step_seconds_p99"]),
        ]
        for one in levels
    ]
    charts = [table(headings, rows, text_columns=1)] if rows else []
    if len(levels) > 1:
        x = Axis("requests at once", log=True)
        allowed = tuple((one["mean"], one["asked_per_step"]) for one in levels)
        drafted = tuple((one["mean"], one["drafted_per_step"]) for one in levels)
        gains = tuple((one["mean"], one["speedup"]) for one in levels if one["speedup"])
        charts.insert(
            0,
            line_chart(
                "Draft length against load",
                [Line("allowed", allowed), Line("drafted", drafted)],
                x,
                Axis("draft tokens a step"),
            ),
        )
        charts.insert(
            1,
            line_chart(
                "Speed-up against load",
                [Line("all requests", gains)],
                x,
                _SPEEDUP,
                references=[Reference("plain decoding", y=1.0)],
            ),
        )
    return Section("Load", blocks=tuple(charts))


def _drift(figures: Figures) -> Section:
    drift = figures["drift"]
    lines = [
        Line(
            name,
            tuple((float(point["request"]), point["share"]["value"]) for point in points),
            tuple((point["share"]["low"], point["share"]["high"]) for point in points),
        )
        for name, points in figures["acceptance_over_time"].items()
    ][:8]
    references = [
        Reference("alarm" if alarm["kind"] == "acceptance" else "mix", x=float(alarm["at"]))
        for alarm in drift["alarms"][:6]
    ]
    chart = line_chart(
        "Right guesses over time, by type",
        lines,
        Axis("requests so far"),
        Axis("share of right guesses"),
        references=references,
        note="Bands: 95 %.",
    )
    told = [(f"request {one['at']}", one["text"]) for one in drift["alarms"]]
    ready = sum(test["evidence"] is not None for test in drift["tests"])
    told = told or [("alarms", f"none; {ready} of {len(drift['tests'])} tests had a baseline")]
    if not ready and not drift["alarms"]:
        most = max((test["learned"] for test in drift["tests"]), default=0)
        told = [
            ("alarms", f"too little data yet: {most} of {drift['learn']} requests for a baseline")
        ]
    text = (
        f"The first {drift['learn']} requests of a type and position give its baseline. While "
        "nothing changes there is at most one false alarm in "
        f"{drift['requests_between_false_alarms']} requests in the mean."
    )
    enough = lines and figures["requests"] >= _FEWEST_FOR_LINES
    blocks = (chart, facts(told)) if enough else (facts(told),)
    return Section("Drift", text, blocks if lines or drift["tests"] else ())


def _calibration(figures: Figures) -> Section:
    found = figures["calibration"]
    if found["curve"] and not found["cells"]:
        text = f"too little data yet: no type and position has {FEWEST_TRIALS} guesses"
        return Section("Calibration", blocks=(facts([("cells", text)]),))
    points = tuple((one["forecast"], one["observed"]["value"]) for one in found["curve"])
    bands = tuple((one["observed"]["low"], one["observed"]["high"]) for one in found["curve"])
    chart = line_chart(
        "Forecast against observed acceptance",
        [Line("all guesses", points, bands)],
        Axis("forecast from earlier requests"),
        Axis("share of right guesses"),
        references=[Reference("as forecast")],
        note="Each request was forecast from those before it. Band: 95 %.",
    )
    pairs = [
        (
            "score",
            f"Brier {shown(found['brier'])}; one forecast for all: {shown(found['base_brier'])}",
        ),
        (
            "cells",
            f"{found['cells_within_interval']} of {len(found['cells'])} types and positions "
            f"with {FEWEST_TRIALS} guesses or more lie within their interval",
        ),
    ]
    return Section("Calibration", blocks=(chart, facts(pairs)) if points else ())


def _decisions(figures: Figures) -> Section:
    chosen = [
        [one["type"], one["drafter"], one["reason"], str(one["requests"])]
        for one in figures["decisions"][:_MOST_REASONS]
    ]
    quiet = sorted(
        (
            (count, group["type"], group["drafter"], reason)
            for group in figures["groups"]
            for reason, count in group["reasons"].items()
        ),
        reverse=True,
    )
    silent = [[kind, name, why, str(count)] for count, kind, name, why in quiet[:_MOST_REASONS]]
    blocks = []
    if chosen:
        headings = ("type", "drafter", "why it was chosen", "requests")
        blocks.append(table(headings, chosen, text_columns=3))
    if silent:
        headings = ("type", "drafter", "why a step had no draft", "steps")
        caption = (
            f"The {len(silent)} most frequent of {len(quiet)}." if len(quiet) > len(silent) else ""
        )
        blocks.append(table(headings, silent, text_columns=3, caption=caption))
    return Section("Decisions", blocks=tuple(blocks))


def _numbers(figures: Figures) -> Section:
    headings = (
        "type",
        "drafter",
        "requests",
        "tokens",
        "steps",
        "drafted",
        "accepted",
        "alpha (95 %)",
        "tokens/step",
        "speed-up",
        "first token ms",
        "answer s",
        "ms a step p99",
        "ms a token p99",
    )
    rows = [
        [
            group["type"],
            group["drafter"],
            *(
                str(group[name])
                for name in ("requests", "tokens", "target_steps", "drafted", "accepted")
            ),
            interval(group["alpha"]),
            shown(group["acceptance_length"]),
            speedup_of(group),
            milliseconds(group["first_token_seconds_p50"]),
            shown(group["total_seconds_p50"]),
            milliseconds(group["step_seconds_p99"]),
            milliseconds(group["token_seconds_p99"]),
        ]
        for group in (*figures["groups"], *figures["types"], figures["all"])
    ]
    text = "First token and answer: medians. A token's time is its share of its step's."
    return Section("All figures", text, (table(headings, rows, text_columns=2),))


def _setting(figures: Figures) -> Section:
    reasons = ", ".join(f"{name} {count}" for name, count in figures["finish_reasons"].items())
    pairs = [
        ("models", ", ".join(figures["models"])),
        ("guarantee", ", ".join(figures["guarantees"])),
        ("ended by", reasons),
        ("preemptions", str(figures["all"]["preemptions"])),
    ]
    return Section("Setting", blocks=(facts([(name, text) for name, text in pairs if text]),))
