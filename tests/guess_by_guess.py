"""Draft lengths chosen one guess after the other, written out to hold `allocate` against."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from outpace.control.choice import Contender, Costs, GrowingStep, Others

_LEAST_GAIN = 0.01
_HOPELESS = 0.5


def choose(
    contenders: Sequence[Contender],
    costs: Costs,
    others: Others | None = None,
    margin: float = 1.01,
) -> list[int]:
    """The draft lengths with the most expected tokens per second, one for each contender.

    Gains of further guesses only fall, so the best allocation of any number of rows takes the
    largest gains: guesses are added in their order, and the best of all stages wins. Costs are
    stairs rather than slopes, so the search does not stop at the first stage that loses.

    Args:
        contenders: whose lengths are chosen.
        costs: of a step.
        others: who else is in the step.
        margin: how many times the rate without drafts must be reached.
    """
    step = GrowingStep(contenders, costs, others or Others())
    best = [0] * len(contenders)
    best_rate = step.rate() * margin
    queue = [
        (-one.reach[0] * one.found, i)
        for i, one in enumerate(contenders)
        if len(one.reach) and one.found > 0
    ]
    heapq.heapify(queue)
    while queue:
        gain, index = heapq.heappop(queue)
        if -gain < _LEAST_GAIN:
            break
        step.add(index)
        rate = step.rate()
        if rate < _HOPELESS * best_rate:
            break
        if rate > best_rate:
            best_rate, best = rate, list(step.lengths)
        one, length = contenders[index], step.lengths[index]
        if length < len(one.reach):
            heapq.heappush(queue, (-one.reach[length] * one.found, index))
    return best
