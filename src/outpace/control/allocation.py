"""The choice of draft lengths for a whole step at once, in arrays: it must cost next to nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from outpace.control.choice import Contender, Costs, Others, laid_to_each
from outpace.control.cost import CostTable
from outpace.control.draft_cost import work

# A guess that is emitted less often than this is not worth looking at.
_LEAST_GAIN = 0.01
# Once so much is lost, more rows do not bring it back.
_HOPELESS = 0.5
# Longest drafts to which a search with a draft model is also confined.
_SHARED_LENGTHS = (1, 2, 3)

_Floats = NDArray[np.float64]
_Integers = NDArray[np.int64]


class Allocation(NamedTuple):
    """The best draft lengths with at least one guess, and what they promise.

    Attributes:
        lengths: one for each contender; all 0 if nobody has a guess to make.
        ratio: expected tokens per second over those without any draft; 0 if there is none.
    """

    lengths: list[int]
    ratio: float


def allocate(
    contenders: Sequence[Contender], costs: Costs, others: Others | None = None
) -> Allocation:
    """The draft lengths with the most expected tokens per second.

    Gains of further guesses only fall, so the best allocation of any number of rows takes the
    largest gains: guesses are taken in their order, and the best of all stages wins. Costs are
    stairs rather than slopes, so the search does not stop at the first stage that loses.

    A draft model makes a pass for each place in the draft, whoever takes part in it: a second
    guess for one sequence may cost as much as for all. So the search is repeated with drafts of
    at most 1, 2 and 3 guesses.

    Args:
        contenders: whose lengths are chosen.
        costs: of a step.
        others: who else is in the step.
    """
    who, depth, gain = _in_order(contenders)
    if not len(who):
        return Allocation([0] * len(contenders), 0.0)
    search = _Search(contenders, costs, others or Others())
    best = search.best(who, depth, gain)
    shared = any(costs.draft(one.drafter).table is not None for one in contenders)
    if shared and len(contenders) > 1:
        for longest in _SHARED_LENGTHS:
            some = depth < longest
            if not some.all():
                best = max(
                    best, search.best(who[some], depth[some], gain[some]), key=lambda a: a.ratio
                )
    return best


class _Search:
    """What the stages of allocations to the same contenders have in common."""

    def __init__(self, contenders: Sequence[Contender], costs: Costs, others: Others) -> None:
        contexts = [one.context for one in contenders]
        self._contenders = contenders
        self._costs = costs
        self._rows = len(contenders) + others.rows
        self._sequences = len(contenders) + others.sequences
        self._plain = costs.plain(contexts, others)
        self._found = np.array([one.found for one in contenders])
        self._attention = np.array([costs.target.further_row(context) for context in contexts])
        self._once = _once(contenders, costs)

    def best(self, who: _Integers, depth: _Integers, gain: _Floats) -> Allocation:
        """The best stage when guesses are taken in this order.

        The time of a stage is that of the full batch, as often as the drafts are found, and else
        that of the plain one: exact for one sequence. What is paid once is laid to the sequence's
        tokens to come.
        """
        costs = self._costs
        stages = np.arange(1, len(who) + 1)
        rows = self._rows + stages
        extra = over(costs.target, rows) - costs.target(self._rows)
        extra += np.cumsum(self._attention[who])
        extra += costs.host.over(rows) - costs.host.at(self._rows)
        seconds = self._plain + np.cumsum(self._found[who]) / stages * extra
        seconds += _draft_seconds(self._contenders, costs, who, depth)
        # A sequence that catches up pays for it with each token of its own.
        own = gain + (depth == 0)
        seconds += np.cumsum(self._once[who] * own)
        rate = (self._sequences + np.cumsum(gain)) / seconds
        plainly = self._sequences / self._plain
        lost = rate < _HOPELESS * np.maximum(np.maximum.accumulate(rate), plainly)
        if lost.any():
            rate = rate[: max(int(np.argmax(lost)), 1)]
        at = int(np.argmax(rate))
        lengths = np.bincount(who[: at + 1], minlength=len(self._contenders))
        return Allocation(lengths.tolist(), float(rate[at] / plainly))


def _in_order(contenders: Sequence[Contender]) -> tuple[_Integers, _Integers, _Floats]:
    """All guesses by falling gain: whose, at which place, and what each brings."""
    gains = [
        np.asarray(one.reach, np.float64) * one.found if one.found > 0 else np.empty(0)
        for one in contenders
    ]
    sizes = [len(one) for one in gains]
    if not sum(sizes):
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    gain = np.concatenate(gains)
    who = np.repeat(np.arange(len(contenders)), sizes)
    depth = np.concatenate([np.arange(size) for size in sizes])
    order = np.argsort(-gain, kind="stable")
    order = order[: int(np.searchsorted(-gain[order], -_LEAST_GAIN, side="right"))]
    return who[order], depth[order], gain[order]


def _once(contenders: Sequence[Contender], costs: Costs) -> _Floats:
    """Seconds a token to come, for a drafter's catching up with each sequence."""
    return np.array(
        [
            laid_to_each(costs.draft(one.drafter).catching_up(one.behind, one.context), one.more)
            for one in contenders
        ]
    )


def _draft_seconds(
    contenders: Sequence[Contender], costs: Costs, who: _Integers, depth: _Integers
) -> _Floats:
    """Seconds to make the drafts of each stage."""
    total = np.zeros(len(who))
    names = [one.drafter for one in contenders]
    for name in dict.fromkeys(names):
        mine = np.array([one == name for one in names])[who]
        if not mine.any():
            continue
        cost = costs.draft(name)
        if cost.table is None:
            made = np.cumsum(mine, dtype=np.float64)
            passes = np.maximum.accumulate(np.where(mine, depth + 1.0, 0.0))
            total += np.where(made > 0, cost.line.over(work(passes, made)), 0.0)
            continue
        more = np.zeros(len(who))
        more[mine] = _passes(cost.table, contenders, who[mine], depth[mine])
        total += cost.factor * np.cumsum(more)
    return total


def _passes(
    table: CostTable, contenders: Sequence[Contender], who: _Integers, depth: _Integers
) -> _Floats:
    """What each further guess adds to a draft model's passes, one for each place in the draft."""
    first = depth == 0
    behind = np.array([min(one.behind, 2) for one in contenders])
    row = np.array([table.attention(1, one.context) for one in contenders])
    many = [table.attention(int(b), one.context) for b, one in zip(behind, contenders, strict=True)]
    seconds = np.where(first, np.array(many)[who], row[who])
    # The first pass computes what was not seen yet, the later ones a row for each sequence.
    seconds[first] += np.diff(over(table, np.cumsum(behind[who[first]])), prepend=0.0)
    step = np.diff(over(table, np.arange(1, len(contenders) + 1)), prepend=0.0)
    seconds[~first] += step[_ranks(depth[~first])]
    return seconds


def _ranks(values: _Integers) -> _Integers:
    """For each place how many equal values stand before it."""
    order = np.argsort(values, kind="stable")
    in_order = values[order]
    ranks = np.empty(len(values), np.int64)
    ranks[order] = np.arange(len(values)) - np.searchsorted(in_order, in_order)
    return ranks


def over(table: CostTable, rows: _Integers) -> _Floats:
    """Seconds of the linear part of a pass for many numbers of rows."""
    points = table.points
    known, seconds = list(points), list(points.values())
    last = known[-1]
    result = np.interp(rows, known, seconds)
    slope = table(last + 1) - seconds[-1]
    return np.where(rows > last, seconds[-1] + slope * (rows - last), result)
