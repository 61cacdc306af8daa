"""What a source of drafts promises a sequence, weighed against everybody else in the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from outpace.control.acceptance import reach
from outpace.control.allocation import allocate
from outpace.control.choice import Contender, Costs, Others

# With this much acceptance drafting must pay, or it is not tried at all.
HOPE = 0.95


@dataclass(slots=True)
class Chance:
    """What a source promises for a sequence.

    Attributes:
        contender: its acceptance and what it needs.
        length: the draft length that pays best; 0 if none does.
        rivals: the contenders of the same place of all sequences, itself among them; without
            guesses where nobody drafts.
        index: its own place among these.
        beside: who else is in the step.
        instead: tokens per second if it is not asked.
        longest_pause: quiet steps after which a try is cheap enough; None until somebody asks.
        hopeful: the answer of `is_hopeful`, for as long as this chance holds.
    """

    contender: Contender
    length: int
    rivals: Sequence[Contender]
    index: int
    beside: Others
    instead: float = 0.0
    longest_pause: float | None = None
    hopeful: bool | None = None

    def is_hopeful(self, costs: Costs) -> bool:
        """Whether it would be drafted for at the best that can be hoped for.

        With the others as they are: a draft model's pass that is made for them anyway costs
        hardly more with one more row.
        """
        if self.hopeful is None:
            rivals = list(self.rivals)
            rivals[self.index] = at_best(self.contender)
            best = allocate(rivals, costs, self.beside)
            self.hopeful = best.ratio > 1 and best.lengths[self.index] > 0
        return self.hopeful


def at_best(one: Contender) -> Contender:
    """The same with all the acceptance that can be hoped for.

    And always with a draft: that others of its type had none says little of a request whose text
    repeats itself, and to ask in vain costs next to nothing.
    """
    return replace(one, reach=one.hoped or reach([HOPE] * len(one.reach)), found=1.0)
