"""What a source of drafts promises a sequence, weighed against everybody else in the step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from outpace.control.acceptance import reach
from outpace.control.allocation import allocate
from outpace.control.choice import Contender, Costs, Others
from outpace.control.tries import Pauses

# With this much acceptance drafting must pay, or it is not tried at all.
HOPE = 0.95


@dataclass(slots=True)
class Hope:
    """Whether a draft would pay at the best that can be hoped for, for those of one place.

    With the others as they are: a draft model's pass that is made for them anyway costs hardly
    more with one more row. Sequences whose best is the same differ by their contexts alone, so
    the answer for one of them is that for all.

    Attributes:
        rivals: the contenders of all sequences; without guesses where nobody drafts.
        beside: who else is in the step.
        answers: so far, by source and what is hoped of it.
    """

    rivals: Sequence[Contender]
    beside: Others
    answers: dict[tuple[str, tuple[float, ...]], bool] = field(default_factory=dict)

    def is_there(self, index: int, one: Contender, costs: Costs) -> bool:
        """Whether there is hope for the contender of that place among the rivals."""
        best = at_best(one)
        key = (best.drafter, tuple(best.reach))
        if key not in self.answers:
            rivals = [*self.rivals[:index], best, *self.rivals[index + 1 :]]
            allocation = allocate(rivals, costs, self.beside)
            self.answers[key] = allocation.ratio > 1 and allocation.lengths[index] > 0
        return self.answers[key]


@dataclass(slots=True)
class Chance:
    """What a source promises for a sequence.

    Attributes:
        contender: its acceptance and what it needs.
        length: the draft length that pays best; 0 if none does.
        hope: of all sequences' sources of the same place.
        index: its own place among these.
        instead: tokens per second if it is not asked.
        pauses: between tries; None until somebody asks.
    """

    contender: Contender
    length: int
    hope: Hope
    index: int
    instead: float = 0.0
    pauses: Pauses | None = None

    def is_hopeful(self, costs: Costs) -> bool:
        """Whether it would be drafted for at the best that can be hoped for."""
        return self.hope.is_there(self.index, self.contender, costs)


def at_best(one: Contender) -> Contender:
    """The same with all the acceptance that can be hoped for.

    And always with a draft: that others of its type had none says little of a request whose text
    repeats itself, and to ask in vain costs next to nothing.
    """
    return replace(one, reach=one.hoped or reach([HOPE] * len(one.reach)), found=1.0)
