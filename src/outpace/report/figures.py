"""Everything that a report says, as plain values: the page draws them, ``--json`` prints them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from outpace.control.drift import DriftSettings
from outpace.health.advice import advice
from outpace.health.calibration import calibration
from outpace.health.findings import find
from outpace.health.groups import by_drafter, by_type, by_type_and_drafter, whole
from outpace.health.history import acceptance_over_time, find_drift
from outpace.health.load import load_figures
from outpace.record.row import Row

FORMAT, FORMAT_VERSION = "outpace-report", 1


def report_figures(
    rows: Sequence[Row], source: str, settings: DriftSettings | None = None
) -> dict[str, Any]:
    """All figures of a report.

    Args:
        rows: the record, oldest first.
        source: where it was read from.
        settings: of the drift tests.
    """
    drift = find_drift(rows, settings)
    used = settings or DriftSettings()
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "record": source,
        "requests": len(rows),
        "first": _when(rows[0].arrived) if rows else None,
        "last": _when(rows[-1].arrived) if rows else None,
        "models": sorted({row.model for row in rows}),
        "guarantees": sorted({row.guarantee for row in rows}),
        "finish_reasons": dict(Counter(row.finish_reason for row in rows).most_common()),
        "advice": advice(rows),
        "findings": [one.as_plain() for one in find(rows, drift.alarms)],
        "all": whole(rows).as_plain(),
        "types": [group.as_plain() for group in by_type(rows)],
        "drafters": [group.as_plain() for group in by_drafter(rows)],
        "groups": [group.as_plain() for group in by_type_and_drafter(rows)],
        "speedups": {group.request_type: group.speedups for group in by_type(rows)},
        "load": load_figures(rows),
        "calibration": calibration(rows).as_plain(),
        "decisions": _decisions(rows),
        "drift": drift.as_plain()
        | {
            "requests_between_false_alarms": used.requests_between_false_alarms,
            "learn": used.learn,
        },
        "acceptance_over_time": {
            name: [{"request": at, "share": seen.as_plain()} for at, seen in points]
            for name, points in acceptance_over_time(rows).items()
        },
    }


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _decisions(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """How often which drafter was chosen for which reason, by type."""
    counts = Counter(
        (row.request_type, one.drafter, one.reason) for row in rows for one in row.decisions
    )
    return [
        {"type": kind, "drafter": drafter, "reason": reason, "requests": count}
        for (kind, drafter, reason), count in counts.most_common()
    ]
