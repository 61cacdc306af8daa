"""Who drafted for a sequence, from when on and why; and what each of them did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outpace.request import DrafterChoice
from outpace.spec.statistics import SpeculationCounts


@dataclass(frozen=True, slots=True)
class Stretch:
    """A drafter's turn.

    Attributes:
        choice: who, from which emitted token on, and why.
        before: what had been counted when it began.
    """

    choice: DrafterChoice
    before: SpeculationCounts


def counts_by_drafter(
    first: str, stretches: Sequence[Stretch], whole: SpeculationCounts
) -> dict[str, SpeculationCounts]:
    """What each drafter did, in the order in which they came; all together they did the whole.

    Times are not told apart.

    A first drafter that was never asked leaves its steps to the next one: nobody drafts while the
    prompt is read.

    Args:
        first: who would have drafted before the first stretch.
        stretches: in their order.
        whole: what has been counted by now.
    """
    if stretches and not stretches[0].before.asked:
        first = stretches[0].choice.drafter
    names = [first, *(one.choice.drafter for one in stretches)]
    marks = [SpeculationCounts(), *(one.before for one in stretches), whole]
    found: dict[str, SpeculationCounts] = {}
    for name, before, after in zip(names, marks, marks[1:], strict=False):
        done = after.since(before)
        if done.is_empty and name != names[-1]:
            continue
        found.setdefault(name, SpeculationCounts()).add(done)
    return found
