"""What a run's figures mean in words, the same on the page and in the terminal."""

from __future__ import annotations

from typing import Any

from outpace.bench.figures import ALL
from outpace.bench.policy import PLAIN
from outpace.bench.result import Result
from outpace.charts.axis import number

# Equal repeats that differ by more than this say more about the machine than about the ways.
_BUSY = 1.15


def cautions(result: Result) -> list[str]:
    """Return what a reader must know before the figures, most important first."""
    found = []
    if result.partial:
        found.append(
            f"This run is partial: it was stopped ({result.partial}). Only what was measured "
            "before is shown."
        )
    found += [
        f"{row['requests_with_other_tokens']} of {row['requests']} answers of {row['policy']} "
        f"({row['arrival']}) differ from plain decoding. They are left out of every ratio."
        for row in rows_of(result, task=ALL)
        if row["requests_with_other_tokens"]
    ]
    spreads = [row["repeat_spread"] for row in rows_of(result, task=ALL) if row["repeat_spread"]]
    if spreads and max(spreads) > _BUSY:
        found.append(
            f"Equal repeats differed by up to {number(max(spreads))} times: the machine was busy "
            "with something else. Trust the acceptance, not the times."
        )
    return found


def exactness(result: Result) -> str:
    """Say in one sentence whether all answers were those of plain decoding."""
    compared = [r for r in result.records if r.policy != PLAIN and r.identical is not None]
    if not compared:
        return "not compared: there was no plain run, or nothing else"
    what = "texts" if result.target.get("kind") == "server" else "tokens"
    other = sum(record.identical is False for record in compared)
    if other:
        return f"the {what} of {other} of {len(compared)} answers DIFFER from plain decoding"
    return f"the {what} of all {len(compared)} answers are those of plain decoding"


def main_arrival(result: Result) -> str:
    """The arrival whose figures stand first: the first that was run."""
    return result.records[0].arrival if result.records else "one"


def rows_of(result: Result, **wanted: str) -> list[dict[str, Any]]:
    """Return the rows of the figures whose fields have these values."""
    return [
        row for row in result.figures if all(row[name] == value for name, value in wanted.items())
    ]


def short(policy: str) -> str:
    """A policy's name with the folder of a draft model left out."""
    parts = policy.split("model:")
    return "model:".join([parts[0], *(part.rsplit("/", 1)[-1] for part in parts[1:])])


def ratio_text(ratio: dict[str, Any] | None) -> str:
    """Write a ratio with its interval."""
    return "-" if ratio is None else interval_text(ratio["value"], ratio["low"], ratio["high"])


def interval_text(value: float | None, low: float | None, high: float | None) -> str:
    """Write a value with its interval, as far as they are known."""
    if value is None:
        return "-"
    between = "" if low is None or high is None else f" ({number(low)}-{number(high)})"
    return f"{number(value)}{between}"


def shown(value: float | None) -> str:
    """Write a value, or a dash where there is none."""
    return "-" if value is None else number(value)
