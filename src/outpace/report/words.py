"""How a report's figures are written."""

from __future__ import annotations

from typing import Any

from outpace.charts.axis import number

_MOST_GROUPS = 8


def shown(value: float | None, unit: str = "") -> str:
    """A value, or a dash where there is none."""
    return "-" if value is None else f"{number(value)}{unit}"


def percent(value: float | None) -> str:
    """A share in percent."""
    return "-" if value is None else f"{100 * value:.0f} %"


def milliseconds(value: float | None) -> str:
    """A time in milliseconds."""
    return "-" if value is None else number(1000 * value)


def interval(share: dict[str, Any]) -> str:
    """A share with its interval."""
    if share["value"] is None:
        return "-"
    return f"{number(share['value'])} ({number(share['low'])}-{number(share['high'])})"


def name_of(group: dict[str, Any]) -> str:
    """A group in words: its type and drafter."""
    return f"{group['type']}, {group['drafter']}"


def largest(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The groups with most guesses, as many as a chart can tell apart; those without none."""
    drafting = [group for group in groups if group["alpha"]["tried"]]
    most = sorted(drafting, key=lambda group: -group["alpha"]["tried"])[:_MOST_GROUPS]
    return [group for group in drafting if group in most]


def speedup_of(figures: dict[str, Any]) -> str:
    """A group's speed-up, or ``plain`` where nothing was drafted in it."""
    plain = figures["plain_requests"] == figures["requests"]
    return "plain" if plain and figures["requests"] else shown(figures["speedup"], "×")


def about_plain(figures: dict[str, Any]) -> list[tuple[str, str]]:
    """The plain requests of a group and what they say of the cost table; nothing of none."""
    count = figures["plain_requests"]
    if not count:
        return []
    text = f"{count} of {figures['requests']} drafted nothing and are left out"
    if (off := figures["plain_over_table"]) is not None:
        text += (
            f"; they took {number(off)} times what the cost table says, which is the table's error "
            "and no loss"
        )
    return [("plain requests", text)]
