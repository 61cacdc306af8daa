"""What drafts of a step promise and cost, guess by guess."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outpace.control.cost import CostTable
from outpace.control.draft_cost import DraftCost, GrowingDraft
from outpace.control.line import OnlineLine

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
        more: tokens that it is expected to have yet, over which what is paid once is spread.
        hoped: as ``reach``, at the best that can be hoped for.
    """

    drafter: str
    reach: Sequence[float]
    found: float
    behind: int
    context: int
    more: float
    hoped: Sequence[float] = ()


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
        found = self.drafts.get(name)
        if found is None:
            found = self.drafts[name] = DraftCost()
        return found

    def step(self, rows: int) -> float:
        """Seconds of a step of so many rows, without drafting and what long contexts add."""
        return self.target(rows) + self.host.at(rows)

    def plain(self, contexts: Sequence[int], others: Others | None = None) -> float:
        """Seconds of a step in which these sequences draft nothing."""
        rows = len(contexts) + (others.rows if others else 0)
        return self.step(rows) + sum(self.target.attention(1, context) for context in contexts)


def laid_to_each(seconds: float, tokens: float) -> float:
    """What is paid once, in seconds for each of the tokens to come."""
    return seconds / max(1.0, min(tokens, _SPREAD))


def rate(contender: Contender, length: int, costs: Costs, others: Others) -> float:
    """Tokens per second of a step in which one sequence has a draft of that length."""
    if not length:
        return (1 + others.sequences) / costs.plain([contender.context], others)
    step = GrowingStep([contender], costs, others)
    for _ in range(length):
        step.add(0)
    return step.rate()


class GrowingStep:
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
        self._attention += self._costs.target.further_row(one.context)
        cost = self._costs.draft(one.drafter)
        draft = self._drafts.setdefault(one.drafter, cost.started())
        draft.add(length, one.behind, one.context)
        # A sequence that catches up pays for it with each token of its own.
        once = laid_to_each(cost.catching_up(one.behind, one.context), one.more)
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
