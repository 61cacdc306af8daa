"""What is wrong with speculation, by name, with the evidence and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from outpace.control.drift import MIX, Alarm
from outpace.health.groups import (
    ALL,
    PLAIN,
    Group,
    Part,
    by_drafter,
    by_type_and_drafter,
    plain_factor,
)
from outpace.health.intervals import Share, share
from outpace.health.load import by_load
from outpace.record.row import Row

WARNING, NOTE = "warning", "note"
# With fewer requests, steps or guesses nothing is said.
FEWEST_REQUESTS, _FEWEST_STEPS, _FEWEST_GUESSES = 10, 200, 100
# A difference that is sure is not yet one that matters.
_STEEP, _BY_LOAD, _LOST, _TAIL = 0.2, 0.1, 0.02, 0.1
_LATER = 1.05
_TABLE_OFF = 1.05


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that should be looked at.

    Attributes:
        name: one word or two for programs.
        severity: ``warning`` where something is lost or broken, ``note`` where it may be meant.
        subject: the type, drafter or both that it is about.
        text: what was found, with its numbers.
        advice: what to do.
        evidence: the numbers, by name.
    """

    name: str
    severity: str
    subject: str
    text: str
    advice: str
    evidence: dict[str, Any] = field(default_factory=dict)

    def as_plain(self) -> dict[str, Any]:
        """A plain structure for JSON."""
        names = ("name", "severity", "subject", "text", "advice", "evidence")
        return {name: getattr(self, name) for name in names}


def find(rows: Sequence[Row], alarms: Iterable[Alarm] = ()) -> list[Finding]:
    """All findings of a record, those that lose most first; empty if nothing is wrong."""
    found: list[Finding] = []
    for drafter in by_drafter(rows):
        if drafter.drafter == PLAIN:
            continue
        found += never_engages(drafter)
        found += nothing_accepted(drafter)
        found += context_exceeded(drafter)
    groups, factor = by_type_and_drafter(rows), plain_factor(rows)
    for group in groups:
        found += falls_with_position(group)
    found += time_lost(groups, factor)
    found += slow_tail(groups, factor)
    found += table_off(factor)
    found += falls_with_load(rows)
    found += preempted(rows)
    found += _drift(alarms)
    return sorted(found, key=lambda one: one.severity != WARNING)


def never_engages(group: Group) -> list[Finding]:
    """A drafter that was there for many steps and never drafted anything."""
    steps, drafted = group.total("steps"), group.total("drafted")
    if drafted or steps < _FEWEST_STEPS:
        return []
    reasons = group.reasons.most_common(2)
    why = "; ".join(f"{text} ({count} steps)" for text, count in reasons) or "no reason was given"
    asked = group.total("asked")
    if asked == 0:
        severity, advice = NOTE, (
            "the controller never asked it: if the reason is that drafting does not pay, this is "
            "right, and the drafter only takes memory; otherwise set num_speculative_tokens"
        )  # fmt: skip
    else:
        severity, advice = WARNING, (
            "it was asked and proposed nothing: choose a drafter that fits these requests, or "
            "none; a draft model must have the target's vocabulary and room for the context"
        )  # fmt: skip
    return [
        Finding(
            "never-engages",
            severity,
            group.drafter,
            f"{group.drafter} drafted nothing in {steps} steps of {group.requests} requests: {why}",
            advice,
            {"steps": steps, "asked": asked, "reasons": dict(reasons)},
        )
    ]


def nothing_accepted(group: Group) -> list[Finding]:
    """Drafts, and an acceptance length of exactly 1.00: not a single guess was right."""
    drafted, accepted = group.total("drafted"), group.total("accepted")
    if accepted or drafted < _FEWEST_GUESSES:
        return []
    return [
        Finding(
            "nothing-accepted",
            WARNING,
            group.drafter,
            f"acceptance length is exactly 1.00: none of {drafted} guesses of {group.drafter} in "
            f"{group.requests} requests was right",
            "chance alone would be right now and then: look for a draft of another model or "
            "tokenizer, a damaged checkpoint, or a wrong template; outpace prove checks the target",
            {"drafted": drafted, "accepted": 0, "steps": group.total("steps")},
        )
    ]


def context_exceeded(group: Group) -> list[Finding]:
    """A draft model whose context is shorter than what it is asked about."""
    steps = sum(count for text, count in group.reasons.items() if "context of" in text)
    total = group.total("steps")
    if steps == 0:
        return []
    longest = max(part.row.prompt_tokens + part.row.completion_tokens for part in group.parts)
    return [
        Finding(
            "draft-context-exceeded",
            WARNING if steps > 0.05 * total else NOTE,
            group.drafter,
            f"the context of {group.drafter} was exceeded in {steps} of {total} steps; the longest "
            f"request has {longest} tokens",
            "use a draft with a longer context, or put ngram in front of it: ngram+model:PATH",
            {"steps": steps, "of_steps": total, "longest_request_tokens": longest},
        )
    ]


def falls_with_position(group: Group) -> list[Finding]:
    """Later guesses are right much less often than first ones."""
    positions = group.positions
    if not positions or positions[0].tried < _FEWEST_GUESSES:
        return []
    first = positions[0]
    for number, here in enumerate(positions[1:], 2):
        if here.tried < _FEWEST_GUESSES or not here.below(first):
            continue
        if (first.value or 0) - (here.value or 0) < _STEEP:
            continue
        return [
            Finding(
                "falls-with-position",
                NOTE,
                _subject(group),
                f"for {_subject(group)}, guesses at position {number} are right in {_of(here)} of "
                f"cases, at position 1 in {_of(first)}",
                f"drafts longer than {number - 1} bring little here: num_speculative_tokens = "
                f"{number - 1}, or auto; a head that was trained for one step falls off like this",
                {"position": number, "first": first.as_plain(), "here": here.as_plain()},
            )
        ]
    return []


def _losing(group: Group, factor: float) -> tuple[float, float] | None:
    """(spent, plain) seconds of a group that took longer than plain decoding, else None."""
    seconds = group.seconds
    if seconds is None or not group.total("drafted") or len(group.speedups) < FEWEST_REQUESTS:
        return None
    spent, plain = seconds[0], factor * seconds[1]
    return (spent, plain) if spent > (1 + _LOST) * plain else None


def _told_by_drafter(told: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for drafter, text in told:
        found.setdefault(drafter, []).append(text)
    return found


def time_lost(groups: Sequence[Group], factor: float = 1.0) -> list[Finding]:
    """Types that took longer than plain decoding would have; one finding for each drafter.

    Args:
        groups: by type and drafter.
        factor: what plain requests took over what the cost table says.
    """
    lost = [(group, pair) for group in groups if (pair := _losing(group, factor)) is not None]
    told = _told_by_drafter(
        (group.drafter, f"{group.request_type} ({spent:.1f} s instead of {plain:.1f} s)")
        for group, (spent, plain) in lost
    )
    return [
        Finding(
            "time-lost",
            WARNING,
            drafter,
            f"{drafter} took longer than plain decoding would have, by the cost table"
            f"{_corrected(factor)}: {', '.join(texts)}",
            "use none for these types"
            + (", or num_speculative_tokens = auto" if ":k=" in drafter else ""),
            {
                group.request_type: {"spent_seconds": spent, "plain_seconds": plain}
                for group, (spent, plain) in lost
                if group.drafter == drafter
            },
        )
        for drafter, texts in told.items()
    ]


def slow_tail(groups: Sequence[Group], factor: float = 1.0) -> list[Finding]:
    """Types that gain together, but with many single requests that are slower."""
    told = []
    counts: dict[str, dict[str, Any]] = {}
    for group in groups:
        speedups = group.speedups
        if len(speedups) < 2 * FEWEST_REQUESTS or not group.total("drafted"):
            continue
        slower = sum(factor * one < 1 / _LATER for one in speedups)
        if slower <= _TAIL * len(speedups) or _losing(group, factor) is not None:
            continue
        told.append((group.drafter, f"{slower} of {len(speedups)} of {group.request_type}"))
        one = counts.setdefault(group.drafter, {})
        one[group.request_type] = {"slower": slower, "requests": len(speedups)}
    return [
        Finding(
            "slow-tail",
            NOTE,
            drafter,
            f"with {drafter} single requests ended more than 5 % later than plain decoding by the "
            f"cost table{_corrected(factor)}, although their types gain: {', '.join(texts)}",
            "look at the distribution of speed-ups"
            + ("; num_speculative_tokens = auto drafts less" if ":k=" in drafter else ""),
            counts[drafter],
        )
        for drafter, texts in _told_by_drafter(told).items()
    ]


def table_off(factor: float) -> list[Finding]:
    """Plain requests do not take what the cost table says."""
    if 1 / _TABLE_OFF <= factor <= _TABLE_OFF:
        return []
    return [
        Finding(
            "cost-table-off",
            NOTE,
            ALL,
            f"plain requests took {factor:.2f} times what the cost table says, so every speed-up "
            f"by the table is {1 / factor:.2f} times what it should be",
            "was the machine busy with something else? Findings and advice are corrected by it",
            {"factor": factor},
        )
    ]


def _corrected(factor: float) -> str:
    return "" if factor == 1.0 else f" times {factor:.2f} (what plain requests here took)"


def falls_with_load(rows: Sequence[Row]) -> list[Finding]:
    """Guesses of one type and drafter are right less often when more requests run at once."""
    found = []
    for group in by_type_and_drafter(rows):
        inside = {id(part.draft) for part in group.parts}
        levels = [
            (level, Group(group.request_type, group.drafter, kept))
            for level, one in by_load(part.row for part in group.parts)
            if (kept := tuple(p for p in one.parts if id(p.draft) in inside))
        ]
        firsts = [(level, _first_position(one.parts)) for level, one in levels]
        known = [(level, seen) for level, seen in firsts if seen.tried >= _FEWEST_GUESSES]
        if len(known) < 2:
            continue
        (light, before), (heavy, after) = known[0], known[-1]
        if not after.below(before) or (before.value or 0) - (after.value or 0) < _BY_LOAD:
            continue
        found.append(
            Finding(
                "falls-with-load",
                WARNING,
                _subject(group),
                f"first guesses of {_subject(group)} are right in {_of(before)} of cases with "
                f"{_level(light)} at once, in {_of(after)} with {_level(heavy)}",
                "load does not change what the target says: look for other requests under load, "
                "for a draft cache that is lost or shared wrongly, or for another k",
                {
                    "light": [*light, before.as_plain()],
                    "heavy": [*heavy, after.as_plain()],
                },
            )
        )
    return found


def preempted(rows: Sequence[Row]) -> list[Finding]:
    """Sequences lose their cache and are computed again."""
    hit = sum(row.preemptions > 0 for row in rows)
    if len(rows) < FEWEST_REQUESTS or hit <= 0.05 * len(rows):
        return []
    times = sum(row.preemptions for row in rows)
    return [
        Finding(
            "preempted",
            WARNING,
            ALL,
            f"{hit} of {len(rows)} requests lost their cache blocks, {times} times in all, and "
            "were computed again",
            "raise kv_cache_tokens, lower max_num_seqs, or use a drafter without a model",
            {"requests": hit, "of": len(rows), "times": times},
        )
    ]


def fingerprint_mismatch(drafter: str, trained_for: str, target: str) -> Finding:
    """A head or draft that was trained for other weights of the target; found at start-up."""
    return Finding(
        "fingerprint-mismatch",
        WARNING,
        drafter,
        f"{drafter} was trained for a target with the fingerprint {trained_for[:16]}, this one has "
        f"{target[:16]}",
        "answers stay right, but guesses are right less often: train it again for these weights",
        {"trained_for": trained_for, "target": target},
    )


def not_recorded(kind: str, lost: int, written: int, reason: str) -> Finding:
    """Rows of a record, or captured prompts, that could not be kept; found while serving."""
    why = reason or "more came than the disk takes"
    return Finding(
        "not-kept",
        WARNING,
        kind,
        f"{lost} requests are missing in the {kind}, {written} were written: {why}",
        "make room, or let the server write there; answers are not affected",
        {"lost": lost, "written": written, "reason": reason},
    )


def _drift(alarms: Iterable[Alarm]) -> list[Finding]:
    """One finding for each type and drafter: the last alarm, one about all positions if any."""
    in_order = sorted(alarms, key=lambda a: (a.position is None, a.at))
    last = {(a.kind, a.request_type, a.drafter): a for a in in_order}
    found = []
    for alarm in last.values():
        mix = alarm.kind == MIX
        found.append(
            Finding(
                "mix-shift" if mix else "drift",
                NOTE if mix else WARNING,
                alarm.request_type if mix else f"{alarm.request_type}, {alarm.drafter}",
                f"{alarm.text} (request {alarm.at} of the record)",
                "nothing to repair; look at figures by type rather than at averages"
                if mix
                else "find out whether the target was replaced or fine-tuned, or other prompts "
                "come under this type; outpace align compares drafts on captured prompts",
                alarm.as_plain(),
            )
        )
    return found


def _first_position(parts: Iterable[Part]) -> Share:
    return share([part.tried(0) for part in parts])


def _subject(group: Group) -> str:
    return f"{group.request_type}, {group.drafter}"


def _of(seen: Share) -> str:
    return f"{100 * (seen.value or 0):.0f} % ({100 * seen.low:.0f}-{100 * seen.high:.0f} %)"


def _level(level: tuple[int, int]) -> str:
    low, high = level
    return f"{low} request{'s' * (low != 1)}" if low == high else f"{low} to {high} requests"
