"""From single requests to figures: by arrival, policy and task."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from statistics import median
from typing import Any

import numpy as np

from outpace.bench.arrival import parse_arrival
from outpace.bench.intervals import time_ratio
from outpace.bench.policy import PLAIN
from outpace.bench.predict import predicted_speedup
from outpace.bench.record import Record, SpeculationRecord
from outpace.spec.statistics import wilson_interval

ALL = "all"


def figures(
    records: Sequence[Record], seconds_by_rows: Mapping[int, float]
) -> list[dict[str, Any]]:
    """Return a row for each arrival, policy and task, and one over all tasks.

    Ratios are taken on the prompts for which both the policy and plain decoding have a time
    and every answer is the plain one: the same work. Requests whose answer differs are counted
    in ``requests_with_other_tokens`` and are part of everything but the ratios.
    """
    if not records:
        return []
    groups: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for record in records:
        for task in (record.task, ALL):
            groups[record.arrival, record.policy, task].append(record)
    arrivals, policies, tasks = (
        list(dict.fromkeys(column)) for column in zip(*groups, strict=True)
    )
    tasks = [*(task for task in tasks if task != ALL), ALL]
    return [
        _row(where, groups[where], groups.get((arrival, PLAIN, task), []), seconds_by_rows)
        for arrival in arrivals
        for task in tasks
        for policy in policies
        if (where := (arrival, policy, task)) in groups
    ]


def _row(
    where: tuple[str, str, str],
    members: Sequence[Record],
    plain: Sequence[Record],
    seconds_by_rows: Mapping[int, float],
) -> dict[str, Any]:
    arrival, policy, task = where
    totals = [record.total_seconds for record in members]
    firsts = [record.first_token_seconds for record in members]
    same = [r for r in members if r.identical and policy != PLAIN]
    whole = time_ratio(times(plain), times(same))
    decoding = time_ratio(decode_times(plain), decode_times(same))
    row: dict[str, Any] = {
        "arrival": arrival,
        "policy": policy,
        "task": task,
        "prompts": len({record.prompt for record in members}),
        "requests": len(members),
        "requests_with_other_tokens": sum(record.identical is False for record in members),
        "tokens": _total([record.tokens for record in members]),
        "total_seconds_median": median(totals),
        "total_seconds_p95": float(np.quantile(totals, 0.95)),
        "first_token_seconds_median": median(firsts),
        "seconds_per_token_median": _seconds_per_token(members),
        "tokens_per_second": tokens_per_second(members) if task == ALL else None,
        "speedup": whole.as_dict() if whole else None,
        "decode_speedup": decoding.as_dict() if decoding else None,
        "repeat_spread": repeat_spread(members),
    }
    at_once = parse_arrival(arrival).at_once
    predicted = None
    if at_once is not None and policy != PLAIN:
        predicted = predicted_speedup(_decoding(members, plain), seconds_by_rows, at_once)
    row["predicted_decode_speedup"] = predicted
    return row | _acceptance(members) | _time_parts(members)


def _decoding(members: Sequence[Record], plain: Sequence[Record]) -> list[SpeculationRecord]:
    """What speculation did, with only the drafting after the first token.

    A draft model reads the prompt too, and that delays the first token: by as much as it comes
    later than with plain decoding, drafting is taken to have been before it.
    """
    usual: dict[str, list[float]] = defaultdict(list)
    for record in plain:
        usual[record.prompt].append(record.first_token_seconds)
    result = []
    for record in members:
        told = record.speculation
        if told is None:
            continue
        if told.draft_seconds is not None and record.prompt in usual:
            late = max(0.0, record.first_token_seconds - median(usual[record.prompt]))
            told = replace(told, draft_seconds=max(0.0, told.draft_seconds - late))
        result.append(told)
    return result


def _acceptance(members: Sequence[Record]) -> dict[str, Any]:
    told = [record.speculation for record in members if record.speculation is not None]
    steps = sum(record.target_steps for record in told)
    drafted = sum(record.drafted for record in told)
    accepted = sum(record.accepted for record in told)
    known = [record.rejections for record in told if record.rejections is not None]
    trials = accepted + sum(known) if told and len(known) == len(told) else 0
    tokens = _total([r.tokens for r in members if r.speculation is not None])
    drafted_at = _by_position([record.drafted_per_position for record in told])
    accepted_at = _by_position([record.accepted_per_position for record in told])
    interval = wilson_interval(accepted, trials) if trials else (None, None)
    return {
        "target_steps": steps if told else None,
        "drafted": drafted if told else None,
        "accepted": accepted if told else None,
        "acceptance_length": tokens / steps if steps and tokens is not None else None,
        "draft_acceptance_rate": accepted / drafted if drafted else None,
        "alpha": accepted / trials if trials else None,
        "alpha_low": interval[0],
        "alpha_high": interval[1],
        "drafted_per_position": drafted_at,
        "accepted_per_position": accepted_at,
        "accepted_share_per_position": [
            a / d if d else None for a, d in zip(accepted_at, drafted_at, strict=True)
        ],
    }


def _time_parts(members: Sequence[Record]) -> dict[str, float | None]:
    """Where the time went, as shares of the requests in their common steps, per answer."""
    parts: dict[str, float | None] = {}
    for name in ("draft_seconds", "verify_seconds", "rest_seconds"):
        values = [getattr(r.speculation, name) for r in members if r.speculation is not None]
        whole = _total(values)
        parts[name] = whole / len(values) if values and whole is not None else None
    return parts


def times(records: Sequence[Record]) -> dict[Hashable, list[float]]:
    """Seconds of whole answers, by prompt."""
    result: dict[Hashable, list[float]] = defaultdict(list)
    for record in records:
        result[record.prompt].append(record.total_seconds)
    return result


def decode_times(records: Sequence[Record]) -> dict[Hashable, list[float]]:
    """Seconds from the first token to the last, by prompt; answers of one token have none."""
    result: dict[Hashable, list[float]] = defaultdict(list)
    for record in records:
        if record.tokens != 1:
            result[record.prompt].append(record.total_seconds - record.first_token_seconds)
    return result


def prompt_speedups(records: Sequence[Record]) -> dict[tuple[str, str], dict[str, float]]:
    """Speed-up of each prompt against plain decoding, by (arrival, policy)."""
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        if record.identical:
            groups[record.arrival, record.policy].append(record)
    result: dict[tuple[str, str], dict[str, float]] = {}
    for (arrival, policy), members in groups.items():
        plain = times(groups.get((arrival, PLAIN), []))
        own = times(members)
        result[arrival, policy] = {
            str(prompt): median(plain[prompt]) / median(own[prompt])
            for prompt in own
            if prompt in plain and median(own[prompt]) > 0
        }
    return result


def tokens_per_second(records: Sequence[Record]) -> float | None:
    """Tokens of all requests over the time in which any was under way."""
    tokens = _total([record.tokens for record in records])
    ends: dict[tuple[int, int], float] = defaultdict(float)
    for record in records:
        where = record.repeat, record.group
        ends[where] = max(ends[where], record.due_seconds + record.total_seconds)
    seconds = sum(ends.values())
    return tokens / seconds if tokens is not None and seconds > 0 else None


def repeat_spread(records: Sequence[Record]) -> float | None:
    """The slowest repeat's time as a multiple of the fastest's, on prompts that all have.

    It says how steady the machine was. None with a single repeat.
    """
    passes: dict[int, dict[tuple[str, int], float]] = defaultdict(dict)
    for record in records:
        passes[record.repeat][record.prompt, record.group] = record.total_seconds
    if len(passes) < 2:
        return None
    common = set.intersection(*(set(one) for one in passes.values()))
    sums = [sum(one[key] for key in common) for one in passes.values()]
    return max(sums) / min(sums) if common and min(sums) > 0 else None


def _seconds_per_token(records: Sequence[Record]) -> float | None:
    values = [
        (record.total_seconds - record.first_token_seconds) / (record.tokens - 1)
        for record in records
        if record.tokens is not None and record.tokens > 1
    ]
    return median(values) if values else None


def _by_position(rows: Sequence[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip_longest(*rows, fillvalue=0)]


def _total(values: Sequence[Any]) -> Any:
    """The sum, or None if any part of it is not known."""
    return None if any(value is None for value in values) else sum(values)
