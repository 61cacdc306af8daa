"""The page of a run, made from its file alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from outpace.bench.arrival import parse_arrival
from outpace.bench.figures import ALL, prompt_speedups
from outpace.bench.policy import PLAIN
from outpace.bench.result import Result
from outpace.bench.words import (
    cautions,
    exactness,
    interval_text,
    main_arrival,
    ratio_text,
    rows_of,
    short,
    shown,
)
from outpace.charts.axis import Axis, number
from outpace.charts.bar import Bars, bar_chart, stacked_chart
from outpace.charts.line import Line, Reference, line_chart
from outpace.charts.page import Section, facts, page, table, warning
from outpace.charts.strip import Strip, strip_chart

_SPEEDUP = Axis("times faster than plain decoding (off)", unit="×")
# A share of fewer trials than this says nothing.
_FEWEST_DRAFTED = 10
Row = dict[str, Any]


def make_page(result: Result) -> str:
    """Return the page: one HTML document without anything to load."""
    requests = f"{len(result.records)} requests"
    prompts = len({record.prompt for record in result.records})
    lead = f"{requests} for {prompts} prompts of the workload {result.settings.get('workload')}"
    sections = [
        _holds(result),
        _speed(result),
        _acceptance(result),
        _load(result),
        _time(result),
        _numbers(result),
        _setting(result),
    ]
    made = f"Measured {result.made_at} by outpace {result.versions.get('outpace')}."
    title = f"Outpace bench: {result.target.get('model')}"
    return page(title, lead, [s for s in sections if s.blocks], made)


def _holds(result: Result) -> Section:
    blocks = [warning(text) for text in cautions(result)]
    return Section("What holds", blocks=(*blocks, facts([("Tokens", exactness(result))])))


def _of(result: Result, policy: str, task: str, arrival: str) -> Row:
    found = rows_of(result, policy=policy, task=task, arrival=arrival)
    return found[0] if found else {}


def _tasks(result: Result) -> list[str]:
    tasks = list(dict.fromkeys(row["task"] for row in result.figures))
    return [task for task in tasks if task != ALL] + [ALL]


def _others(result: Result) -> list[str]:
    return [policy for policy in result.policies if policy != PLAIN]


def _bars(result: Result, field: str) -> list[Bars]:
    arrival = main_arrival(result)
    bars = []
    for policy in _others(result):
        ratios = [_of(result, policy, task, arrival).get(field) for task in _tasks(result)]
        values = tuple(ratio["value"] if ratio else None for ratio in ratios)
        intervals = tuple(
            (ratio["low"], ratio["high"]) if ratio and ratio["low"] is not None else None
            for ratio in ratios
        )
        bars.append(Bars(short(policy), values, intervals))
    return bars


def _speed(result: Result) -> Section:
    arrival = main_arrival(result)
    note = f"Arrival: {arrival}. Lines on the bars: 95 % intervals."
    tasks = _tasks(result)
    charts = [
        bar_chart(title, tasks, _bars(result, field), _SPEEDUP, reference=1, note=note)
        for title, field in (
            ("Speed-up of whole answers", "speedup"),
            ("Speed-up after the first token", "decode_speedup"),
        )
    ]
    single = prompt_speedups(result.records)
    strips = [
        Strip(short(policy), tuple(found.values()), tuple(found))
        for policy in _others(result)
        if (found := single.get((arrival, policy)))
    ]
    charts.append(
        strip_chart("Speed-up of single prompts", strips, _SPEEDUP, reference=1) if strips else ""
    )
    charts.append(_prediction(result))
    text = (
        "Ratios of times on the same work: prompts that were answered with the same tokens both "
        "ways, each with the median of its repeats. Whole answers include reading the prompt."
    )
    return Section("Speed", text, tuple(chart for chart in charts if chart))


def _prediction(result: Result) -> str:
    arrival = main_arrival(result)
    lines = []
    for policy in _others(result):
        points, names = [], []
        for task in _tasks(result):
            row = _of(result, policy, task, arrival)
            measured = row.get("decode_speedup")
            if row.get("predicted_decode_speedup") and measured:
                points.append((row["predicted_decode_speedup"], measured["value"]))
                names.append(f"{task}, {short(policy)}")
        lines.append(Line(short(policy), tuple(points), joined=False, labels=tuple(names)))
    return line_chart(
        "Predicted against measured speed-up",
        lines if any(line.points for line in lines) else [],
        Axis("predicted from alpha and the cost table", unit="×"),
        Axis("measured after the first token", unit="×"),
        references=[Reference("as predicted")],
        note="One point for each task and one over all.",
    )


def _acceptance(result: Result) -> Section:
    arrival = main_arrival(result)
    lines = []
    for policy in _others(result):
        row = _of(result, policy, ALL, arrival)
        shares = row.get("accepted_share_per_position") or []
        drafted = row.get("drafted_per_position") or []
        points = tuple(
            (at, share)
            for at, (share, trials) in enumerate(zip(shares, drafted, strict=True), 1)
            if share is not None and trials >= _FEWEST_DRAFTED
        )
        lines.append(Line(short(policy), points))
    if not any(line.points for line in lines):
        return Section("Acceptance")
    lengths = [
        Bars(
            short(policy),
            tuple(
                _of(result, policy, task, arrival).get("acceptance_length")
                for task in _tasks(result)
            ),
        )
        for policy in _others(result)
    ]
    charts = (
        line_chart(
            "Acceptance by position",
            lines,
            Axis("position in the draft", zero=False),
            Axis("share of the tokens drafted there that were accepted"),
            note=f"Positions that were drafted fewer than {_FEWEST_DRAFTED} times are left out.",
        ),
        bar_chart(
            "Tokens a target step",
            _tasks(result),
            lengths,
            Axis("acceptance length (plain decoding: 1)"),
            reference=1,
        ),
    )
    text = (
        "A token counts as accepted only with all before it. The acceptance length counts the "
        "target's own token of each step."
    )
    return Section("Acceptance", text, charts)


def _load(result: Result) -> Section:
    """Latency and throughput over the load, for each kind of arrival with two loads or more."""
    charts: list[str] = []
    arrivals = [parse_arrival(name) for name in dict.fromkeys(r.arrival for r in result.records)]
    kinds = (("at-once", "requests at once", True), ("poisson", "requests a second", False))
    for kind, words, log in kinds:
        loads = sorted((a for a in arrivals if a.kind == kind), key=lambda a: a.amount)
        if len(loads) < 2:
            continue

        def lines(pick: Callable[[Row], float | None], loads: Sequence[Any] = loads) -> list[Line]:
            drawn = []
            for policy in result.policies:
                points = []
                for load in loads:
                    value = pick(_of(result, policy, ALL, load.name))
                    if value is not None:
                        points.append((load.amount, value))
                drawn.append(Line(short(policy), tuple(points), muted=policy == PLAIN))
            return drawn

        x = Axis(words, log=log)
        for title, field, y in (
            ("Latency against load", "total_seconds_median", "median seconds of a whole answer"),
            ("Slowest answers against load", "total_seconds_p95", "seconds, 95th percentile"),
            ("Throughput against load", "tokens_per_second", "tokens a second, all together"),
        ):
            picked = lines(lambda row, field=field: row.get(field))  # type: ignore[misc]
            charts.append(line_chart(f"{title} ({kind})", picked, x, Axis(y)))
    return Section("Load", blocks=tuple(charts))


def _time(result: Result) -> Section:
    arrival = main_arrival(result)
    names = (("draft", "draft_seconds"), ("verify", "verify_seconds"), ("rest", "rest_seconds"))
    rows = [_of(result, policy, ALL, arrival) for policy in result.policies]
    if not any(row.get("verify_seconds") for row in rows):
        return Section("Where the time went")
    parts = [Bars(name, tuple(row.get(field) for row in rows)) for name, field in names]
    groups = [short(policy) for policy in result.policies]
    chart = stacked_chart(
        "Seconds an answer", groups, parts, Axis("mean seconds an answer", unit=" s")
    )
    text = (
        "Draft: proposing. Verify: the target's forward passes, those over the prompt included. "
        "Rest: choosing tokens, moving the cache, and everything else on the host."
    )
    return Section("Where the time went", text, (chart,))


def _numbers(result: Result) -> Section:
    headings = (
        "task",
        "policy",
        "prompts",
        "seconds",
        "tokens/s",
        "speed-up (95 %)",
        "after 1st token (95 %)",
        "predicted",
        "alpha (95 %)",
        "tokens/step",
        "other tokens",
    )
    tables = []
    for arrival in dict.fromkeys(record.arrival for record in result.records):
        rows = [_cells(row) for row in rows_of(result, arrival=arrival)]
        tables.append(table(headings, rows, text_columns=2, caption=f"Arrival: {arrival}"))
    text = (
        "Seconds: the median of a whole answer. Predicted: the speed-up after the first token, "
        "from alpha and the cost table. Other tokens: answers that differ from plain decoding."
    )
    return Section("All figures", text, tuple(tables))


def _cells(row: Row) -> list[str]:
    return [
        row["task"],
        short(row["policy"]),
        str(row["prompts"]),
        number(row["total_seconds_median"]),
        shown(row["tokens_per_second"]),
        ratio_text(row["speedup"]),
        ratio_text(row["decode_speedup"]),
        shown(row["predicted_decode_speedup"]),
        interval_text(row["alpha"], row["alpha_low"], row["alpha_high"]),
        shown(row["acceptance_length"]),
        str(row["requests_with_other_tokens"]),
    ]


def _setting(result: Result) -> Section:
    pairs = [*result.target.items(), *result.settings.items(), *result.machine.items()]
    pairs += [(f"version of {name}", text) for name, text in result.versions.items()]
    shown = [(str(name).replace("_", " "), _words(value)) for name, value in pairs]
    costs = [[str(rows), number(s * 1000)] for rows, s in result.seconds_by_rows.items()]
    blocks = [facts([(name, text) for name, text in shown if text])]
    if costs:
        headings = ("rows of a target step", "milliseconds (the cost table)")
        blocks.append(table(headings, costs, text_columns=0))
    return Section("Setting", blocks=tuple(blocks))


def _words(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)
