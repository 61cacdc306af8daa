"""How long drafts may be while little is known, or little may be lost any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outpace.control.choice import Contender, Costs, Others
from outpace.control.draft_cost import Wanted

# The share of what may be lost yet that a single draft may put at stake.
_STAKE = 0.25

# Single guesses that may be wrong before drafting waits for a try that is right.
_SINGLE_GUESSES = 6


@dataclass(slots=True)
class Leash:
    """Holds a source's drafts for a sequence short until a guess was right.

    Each is half as long as the one that failed before it, and after some wrong single guesses there
    are none but tries. So a request for which nothing is right, whatever was expected, costs little
    more than its first draft; one that is only unlucky comes off it with its first right guess.

    Attributes:
        length: of the next draft at most; None before the first.
        singles: guesses that may still be made one by one.
        is_off: whether a guess was right.
    """

    length: int | None = None
    singles: int = _SINGLE_GUESSES
    is_off: bool = False

    def held(self, wanted: int) -> int:
        """As much of a wanted length as is allowed."""
        if self.is_off or self.length is None:
            return wanted
        return min(wanted, self.length) if self.singles else 0

    def learn(self, drafted: int, accepted: int) -> None:
        """A draft was verified."""
        self.is_off = self.is_off or accepted > 0
        self.length = max(1, drafted // 2)
        if drafted == 1:
            self.singles = max(self.singles - 1, 0)


def bearable(one: Contender, wanted: int, may_lose: float, costs: Costs, others: Others) -> int:
    """As much of a wanted length as may be wrong: a part of what may be lost, or a single guess.

    Whoever always stakes a part of what is left is never ruined at once, and has small stakes
    left by which luck turns (Kelly 1956). What is known of a type says little of a request for
    which it does not hold, and such a request loses little with its first draft.

    Args:
        one: its acceptance and costs.
        wanted: guesses, at least 1.
        may_lose: plain steps that drafting may cost it yet.
        costs: of steps.
        others: who else is in the step.
    """
    rows = 1 + others.rows
    for length in range(wanted, 1, -1):
        draft = one.drafter, Wanted(length, 1, one.context)
        if lost_if_wrong([draft], rows, costs) <= _STAKE * may_lose:
            return length
    return 1


def lost_if_wrong(drafts: Sequence[tuple[str, Wanted]], rows: int, costs: Costs) -> float:
    """What drafts cost of which nothing is right, in steps of the rows that there are without them.

    Args:
        drafts: each with the name of its drafter.
        rows: without them.
        costs: of steps.
    """
    by_drafter: dict[str, list[Wanted]] = {}
    for name, one in drafts:
        by_drafter.setdefault(name, []).append(one)
    lost = costs.step(rows + sum(one.tokens for _, one in drafts)) - costs.step(rows)
    lost += sum(one.tokens * costs.target.further_row(one.context) for _, one in drafts)
    lost += sum(costs.draft(name).seconds(some) for name, some in by_drafter.items())
    return lost / costs.step(rows)
