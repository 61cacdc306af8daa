"""What happens as more requests run at once."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from outpace.health.groups import ALL, Group, Part, parts_of
from outpace.record.row import Row

_KEPT = (
    "requests",
    "asked_per_step",
    "drafted_per_step",
    "acceptance_length",
    "alpha",
    "speedup",
    "speedup_p5",
    "speedup_p50",
    "slower_share",
    "plain_requests",
    "step_seconds_p99",
)


def level_of(load: float) -> tuple[int, int]:
    """The level that a load belongs to: (1, 1), (2, 2), (3, 4), (5, 8) and so on, doubling."""
    whole = max(1, math.floor(load + 0.5))
    high = 1 << (whole - 1).bit_length()
    return (high // 2 + 1 if high > 1 else 1), high


def by_load(rows: Iterable[Row]) -> list[tuple[tuple[int, int], Group]]:
    """Groups by how many sequences shared a step in the mean, lightest first.

    Requests without a step that can be compared are left out.
    """
    levels: dict[tuple[int, int], list[Part]] = {}
    for part in parts_of(rows):
        if part.load is not None:
            levels.setdefault(level_of(part.load), []).append(part)
    return [(level, Group(ALL, ALL, tuple(parts))) for level, parts in sorted(levels.items())]


def load_figures(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """A row of figures for each level of load."""
    found = []
    for (low, high), group in by_load(rows):
        loads = [part.load for part in group.parts if part.load is not None]
        plain = group.as_plain()
        mean = sum(loads) / len(loads)
        found.append({"from": low, "to": high, "mean": mean} | {k: plain[k] for k in _KEPT})
    return found
