"""The choice of draft lengths for a whole step: the next row goes where it buys most."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from outpace.control.cost import CostTable
from outpace.control.draft_cost import DraftCost, GrowingDraft
from outpace.control.line import OnlineLine

# A guess that is emitted less often than this is not worth looking at.
_LEAST_GAIN = 0.01
# Drafting must promise so much more than not drafting to begin, and so much less to end:
# estimates are noisy.
TO_BEGIN, TO_GO_ON = 1.01, 0.97
# Once so much is lost, more rows do not bring it back.
_HOPELESS = 0.5
# A cost that is paid once is spread over so many tokens at most.
_SPREAD = 256


@dataclass(frozen=True, slots=True)
class Contender:
    """A sequence whose draft length is to be chosen.

    Attributes:
        drafter: its name.
        reach: the probability that each guess is emitted, one for each that there is room for.
        found: how often there is a draft at all.
        behind: tokens that the drafter has not seen yet.
        context: tokens so far.
        room: tokens that may still be emitted.
    """

    drafter: str
    reach: Sequence[float]
    found: float
    behind: int
    context: int
    room: int


@dataclass(frozen=True, slots=True)
class Others:
    """Sequences of the step whose part is settled: how many rows, for how many sequences."""

    rows: int = 0
    sequences: int = 0


@dataclass(slots=True)
class Costs:
    """All that is known of what a step costs.

    Attributes:
        target: seconds of the forward pass.
        host: seconds of everything else but drafting, over the rows.
        drafts: by the name of the drafter; those that are missing cost what they are seen to.
    """

    target: CostTable
    host: OnlineLine
    drafts: dict[str, DraftCost]

    def draft(self, name: str) -> DraftCost:
        """The costs of one drafter."""
        return self.drafts.setdefault(name, DraftCost())

    def plain(self, contexts: Sequence[int], others: Others | None = None) -> float:
        """Seconds of a step in which these sequences draft nothing."""
        rows = len(contexts) + (others.rows if others else 0)
        seconds = self.target(rows) + self.host.at(rows)
        return seconds + sum(self.target.attention(1, context) for context in contexts)


def choose(
    contenders: Sequence[Contender],
    costs: Costs,
    others: Others | None = None,
    margin: float = TO_BEGIN,
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
    step = _Step(contenders, costs, others or Others())
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


def rate(contender: Contender, length: int, costs: Costs, others: Others) -> float:
    """Tokens per second of a step in which one sequence has a draft of that length."""
    step = _Step([contender], costs, others)
    for _ in range(length):
        step.add(0)
    return step.rate()


class _Step:
    """An allocation that grows, and its expected tokens and time."""

    def __init__(self, contenders: Sequence[Contender], costs: Costs, others: Others) -> None:
        self.lengths = [0] * len(contenders)
        self._contenders = contenders
        self._costs = costs
        self._rows = len(contenders) + others.rows
        self._plain_tokens = len(contenders) + others.sequences
        self._gained = 0.0
        self._drafted_rows = 0
        self._found_rows = 0.0
        self._catching_up = 0.0  # of a step, as far as it goes on
        self._attention = 0.0
        self._drafts: dict[str, GrowingDraft] = {}
        self._plain = costs.plain([one.context for one in contenders], others)

    def add(self, index: int) -> None:
        """One more guess for a contender."""
        one = self._contenders[index]
        length = self.lengths[index]
        self.lengths[index] += 1
        gain = one.reach[length] * one.found
        self._gained += gain
        self._drafted_rows += 1
        self._found_rows += one.found
        self._attention += self._costs.target.attention(1, one.context)
        cost = self._costs.draft(one.drafter)
        draft = self._drafts.setdefault(one.drafter, cost.started())
        draft.add(length, min(one.behind, 2), one.context)
        # A sequence that catches up pays for it with each token of its own.
        once = cost.catching_up(one.behind, one.context) / max(1, min(one.room, _SPREAD))
        self._catching_up += once * (gain + (length == 0))

    def rate(self) -> float:
        """Expected tokens per second.

        The time is that of the full batch, as often as the drafts are found, and else that of
        the plain one: exact for one sequence. What is paid once is laid to the sequence's tokens
        to come.
        """
        tokens = self._plain_tokens + self._gained
        if not self._drafted_rows:
            return tokens / self._plain
        costs, rows = self._costs, self._rows + self._drafted_rows
        extra = costs.target(rows) - costs.target(self._rows) + self._attention
        extra += costs.host.at(rows) - costs.host.at(self._rows)
        share = self._found_rows / self._drafted_rows
        seconds = self._plain + share * extra
        seconds += sum(draft.seconds for draft in self._drafts.values())
        return tokens / (seconds + self._catching_up)
