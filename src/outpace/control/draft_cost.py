"""What it costs to make drafts: by a draft model's own table, or as observed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from outpace.control.cost import CostTable
from outpace.control.line import OnlineLine

_CORRECTION = 0.1
# Catching up with more tokens than this is a prompt's piece, and teaches nothing about a draft.
_COMPARABLE = 32
# What a further guess in the same pass takes, as a share of the first one of that pass.
_BESIDE = 0.25

_Amount = TypeVar("_Amount", float, NDArray[np.float64])


def work(passes: _Amount, tokens: _Amount) -> _Amount:
    """How much there is to do for drafts whose cost is known from observation only.

    A head makes a pass for each place in the draft, in which all sequences have a row: drafts of
    three guesses for four sequences are three passes and not twelve. What was seen of one sequence
    must not mislead about many, nor the other way round.

    Args:
        passes: guesses of the longest draft.
        tokens: guesses of all drafts.
    """
    return passes + _BESIDE * (tokens - passes)


class Wanted(NamedTuple):
    """A draft for one sequence.

    Attributes:
        tokens: wanted; at least 1.
        behind: known tokens that the drafter has not computed yet; at least 1.
        context: tokens before the draft.
    """

    tokens: int
    behind: int
    context: int


@dataclass(slots=True)
class DraftCost:
    """Seconds to propose, for one drafter.

    A draft model first computes what it has not seen, and with it the first guess; then a step
    for each further guess of the longest draft, with a row for each sequence that is still being
    drafted for. Its table says what that costs; sampling and the like are learned as a factor.
    Drafters without a table are a line over the `work`, learned from what they took.

    Args:
        table: of the draft model, if there is one.
        factor: what a draft really takes, as a multiple of what the table says.
        line: seconds over the work, where there is no table.
    """

    table: CostTable | None = None
    factor: float = 1.0
    line: OnlineLine = field(default_factory=OnlineLine)

    def started(self) -> GrowingDraft:
        """An empty set of drafts, whose cost can be followed while it grows."""
        return GrowingDraft(self)

    def seconds(self, wanted: Sequence[Wanted]) -> float:
        """Seconds for these drafts together, whatever has to be read first included."""
        draft = self.started()
        reading = 0.0
        for one in wanted:
            reading += self.catching_up(one.behind, one.context)
            for depth in range(one.tokens):
                draft.add(depth, one.behind, one.context)
        return draft.seconds + reading

    def catching_up(self, behind: int, context: int) -> float:
        """What a drafter's being behind costs beyond a usual step; paid once."""
        if self.table is None or behind <= 2:
            return 0.0
        usual = self.table(2) + self.table.attention(2, context)
        return self.factor * max(self.table.reading(behind, context) - usual, 0.0)

    def record(self, wanted: Sequence[Wanted], seconds: float) -> None:
        """Learn from drafts that were made."""
        if not wanted or sum(one.behind for one in wanted) > _COMPARABLE + len(wanted):
            return
        if self.table is None:
            tokens = [one.tokens for one in wanted]
            self.line.add(work(max(tokens), sum(tokens)), seconds)
            return
        expected = self.seconds(wanted)
        if expected > 0:
            self.factor *= 1 + _CORRECTION * (min(seconds / expected, 2.0) - 1)


class GrowingDraft:
    """The cost of drafts for one drafter's sequences, to which guesses are added one by one."""

    def __init__(self, cost: DraftCost) -> None:
        self._cost = cost
        self._active: list[int] = []  # sequences at each depth
        self._first_rows = 0
        self._tokens = self._longest = 0
        self._by_table = 0.0

    def add(self, depth: int, behind: int, context: int) -> None:
        """One more guess for a sequence that has ``depth`` already.

        Being behind by more than usual is not counted here: see `DraftCost.catching_up`.
        """
        behind = min(behind, 2)
        self._tokens += 1
        self._longest = max(self._longest, depth + 1)
        table = self._cost.table
        if table is None:
            return
        if depth == 0:
            before = self._first_rows
            self._first_rows += behind
            self._by_table += table(self._first_rows) - (table(before) if before else 0.0)
            self._by_table += table.attention(behind, context)
            return
        while len(self._active) <= depth:
            self._active.append(0)
        before = self._active[depth]
        self._active[depth] += 1
        self._by_table += table(before + 1) - (table(before) if before else 0.0)
        self._by_table += table.attention(1, context)

    @property
    def seconds(self) -> float:
        """Seconds for all of it."""
        if self._tokens == 0:
            return 0.0
        if self._cost.table is None:
            return self._cost.line.at(work(self._longest, self._tokens))
        return self._cost.factor * self._by_table
