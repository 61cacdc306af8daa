"""What a drafter is predicted to bring a request, at the load of the moment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from outpace.control.acceptance import reach
from outpace.control.choice import Costs, Others, laid_to_each
from outpace.control.controller import LARGEST_AUTOMATIC_K
from outpace.control.draft_cost import DraftCost, work
from outpace.control.estimate import Estimate

_LEAST_GAIN = 0.01


class Gain(NamedTuple):
    """Times faster than plain decoding, for one request.

    Attributes:
        mean: by the mean of the acceptance.
        low, high: by the ends of its interval.
        tokens: the draft length at which ``mean`` is reached; 0: plain is the fastest.
        trials: effective guesses behind the acceptance of the first place.
    """

    mean: float
    low: float
    high: float
    tokens: int
    trials: float


NOBODY = Others()
PLAIN = Gain(1.0, 1.0, 1.0, 0, 0.0)


@dataclass(frozen=True, slots=True)
class Prospect:
    """One source's drafts for one request.

    Attributes:
        source: its name.
        curve: conditional acceptance by place.
        found: how often it has a draft.
        behind: tokens that it has not computed yet.
    """

    source: str
    curve: Sequence[Estimate]
    found: float
    behind: int = 1


@dataclass(frozen=True, slots=True)
class Load:
    """The step that the request takes part in.

    Attributes:
        context: tokens of the request so far.
        room: tokens that it may still emit.
        others: everybody else in the step, as they are.
        more: tokens that it is expected to emit yet.
    """

    context: int
    room: int
    others: Others = NOBODY
    more: float = math.inf


def predicted(prospects: Sequence[Prospect], costs: Costs, load: Load) -> Gain:
    """The gain of a drafter that asks its sources in this order."""
    return in_a_row([(prospect, alone(prospect, costs, load)) for prospect in prospects])


def in_a_row(sources: Sequence[tuple[Prospect, Gain]]) -> Gain:
    """The gain of asking sources in this order, each where those before it have no draft.

    Args:
        sources: with the gain of each `alone`.
    """
    mean = low = high = 1.0
    tokens, trials = 0, 0.0
    for prospect, one in reversed(sources):
        share = prospect.found
        if one.mean >= mean:  # else those behind it do better, and it is not asked
            tokens = one.tokens
        mean = max(share * one.mean + (1 - share) * mean, mean)
        low = max(share * one.low + (1 - share) * low, low)
        high = max(share * one.high + (1 - share) * high, high)
        trials = max(trials, one.trials)
    return Gain(mean, low, high, tokens, trials)


def alone(prospect: Prospect, costs: Costs, load: Load) -> Gain:
    """The gain of one source in the steps in which it has a draft.

    With T the seconds of the step without this request's draft, N the sequences in it, and
    T + t the seconds with a draft that brings g tokens more, all sequences together come
    (N + g) / N · T / (T + t) times as far in the same time. What that is worth is laid to this
    request alone: gain = 1 + N·(that - 1), so for N = 1 it is its speed-up, and under load it
    counts what the others lose by waiting.
    """
    most = min(len(prospect.curve), load.room, LARGEST_AUTOMATIC_K)
    if most < 1:
        return PLAIN
    seconds = _step_seconds(prospect, costs, load, most)
    curve = prospect.curve[:most]
    mean, tokens = _best([one.mean for one in curve], seconds, load)
    low, _ = _best([one.low for one in curve], seconds, load)
    high, _ = _best([one.high for one in curve], seconds, load)
    return Gain(mean, low, high, tokens, curve[0].trials)


def _best(curve: Sequence[float], seconds: Sequence[float], load: Load) -> tuple[float, int]:
    """The best gain and its draft length; ``seconds`` of steps by draft length, from 0."""
    sequences = 1 + load.others.sequences
    best, at, gained = 1.0, 0, 0.0
    for length, one in enumerate(reach(curve), start=1):
        if one < _LEAST_GAIN:
            break
        gained += one
        together = (sequences + gained) / sequences * seconds[0] / seconds[length]
        gain = 1 + sequences * (together - 1)
        if gain > best:
            best, at = gain, length
    return best, at


def _step_seconds(prospect: Prospect, costs: Costs, load: Load, most: int) -> list[float]:
    """Seconds of a step by the length of this request's draft, from 0 to ``most``.

    A draft model's pass is counted with the part that falls to one of the step's sequences: if
    each were asked whether it alone would pay for a pass, none would ever begin. Whether enough of
    them take part is decided for the batch, by `allocation.allocate`.
    """
    rows = 1 + load.others.rows
    target, host = costs.target, costs.host
    cost = costs.draft(prospect.source)
    attention, further = target.attention(1, load.context), target.further_row(load.context)
    reading = cost.catching_up(prospect.behind, load.context)
    once = laid_to_each(reading, min(load.room, load.more))
    result = [target(rows) + host.at(rows) + attention]
    for length in range(1, most + 1):
        now = target(rows + length) + host.at(rows + length) + attention + length * further
        result.append(now + once + _draft_share(cost, prospect, load, length))
    return result


def _draft_share(cost: DraftCost, prospect: Prospect, load: Load, length: int) -> float:
    """One sequence's part of the seconds that drafts of this length take for all."""
    sequences = 1 + load.others.sequences
    if cost.table is None:
        return cost.line.at(work(length, length * sequences)) / sequences
    first = min(prospect.behind, 2)
    passes = cost.table(first * sequences) + (length - 1) * cost.table(sequences)
    seen = cost.table.attention(first + length - 1, load.context)
    return cost.factor * (passes / sequences + seen)
