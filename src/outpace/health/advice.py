"""A record in a few sentences: what speculation brought, and what would be better."""

from __future__ import annotations

from collections.abc import Sequence

from outpace.health.groups import (
    PLAIN,
    Group,
    by_type,
    by_type_and_drafter,
    plain_factor,
    whole,
)
from outpace.record.row import Row

_FEWEST = 10
# A type whose best drafter is ahead by less than this is not worth a sentence.
_AHEAD = 1.03


def advice(rows: Sequence[Row]) -> list[str]:
    """Sentences for people, the most general first; every number is a figure of the groups."""
    if not rows:
        return ["The record is empty: nothing can be said yet."]
    factor = plain_factor(rows)
    sentences = [_overall(whole(rows), factor)]
    groups = by_type_and_drafter(rows)
    for kind in by_type(rows):
        own = [group for group in groups if group.request_type == kind.request_type]
        sentences += _best(kind.request_type, own, factor)
    return sentences


def _overall(group: Group, factor: float) -> str:
    seconds, speedups = group.seconds, group.speedups
    length = group.acceptance_length or 0.0
    text = f"{group.requests} requests came out at {length:.2f} tokens a target step"
    if group.requests and group.plain_requests == group.requests:
        return f"{text}. Nothing was drafted: all of it is plain decoding{_table_error(group)}."
    if seconds is None:
        return (
            f"{text}. What that means in time is not known: no cost table was at hand "
            "(num_speculative_tokens = auto measures one), or no request that drafted came to "
            "its end."
        )
    slower = sum(factor * one < 1 for one in speedups)
    by = "by the cost table"
    if factor != 1.0:
        by += f", which plain requests here say to be off {factor:.2f} times"
    others = ""
    if plain := group.plain_requests:
        others = (
            f" {plain} drafted nothing and {'is' if plain == 1 else 'are'} not counted: plain "
            f"decoding{_table_error(group)}."
        )
    return (
        f"{text}. Those that drafted were {factor * seconds[1] / seconds[0]:.2f} times as fast as "
        f"plain decoding {by}; {slower} of {len(speedups)} were slower than plain decoding.{others}"
    )


def _table_error(group: Group) -> str:
    """What plain requests say of the cost table, as the end of a sentence."""
    off = group.plain_over_table
    if off is None:
        return ""
    return f", which took {off:.2f} times what the cost table says (the error of the table)"


def _best(kind: str, groups: Sequence[Group], factor: float) -> list[str]:
    """What is best for a type, where several drafters were seen, or that none pays."""
    known = [
        (factor * seconds[1] / seconds[0], group)
        for group in groups
        if (seconds := group.seconds) is not None
        and len(group.speedups) >= _FEWEST
        and group.drafter != PLAIN
    ]
    if not known:
        return []
    known.sort(key=lambda one: -one[0])
    speed, best = known[0]
    if speed < 1:
        return [
            f"For {kind}, nothing pays here: the best, {best.drafter}, is {speed:.2f} times as "
            "fast as plain decoding. Plain decoding (none) would be better."
        ]
    if len(known) > 1 and speed > _AHEAD * known[1][0]:
        return [
            f"For {kind}, {best.drafter} is best at {speed:.2f} times plain decoding, before "
            f"{known[1][1].drafter} at {known[1][0]:.2f}."
        ]
    return []
