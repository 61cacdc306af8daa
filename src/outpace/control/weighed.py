"""What was weighed for a step, for as long as it holds: to weigh it again takes time too."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from outpace.control.chance import Chance

# By the name of the source, in the order in which they are asked.
Chances = dict[str, Chance]

# Chances hold for so many further drafts at most, and for one for each so many tokens of a
# sequence: new evidence changes them the less the more there was before. Without any they hold
# for so many steps.
_MOST_DRAFTS, _TOKENS_A_DRAFT, _MOST_STEPS = 6, 4, 16


def held_drafts(tokens: int) -> int:
    """Drafts for which what was weighed after so many tokens of a sequence holds."""
    return min(tokens // _TOKENS_A_DRAFT, _MOST_DRAFTS)


@dataclass(slots=True)
class Weighed:
    """The chances of some sequences, one for each, and for how much longer they hold.

    Attributes:
        whose: the sequences, whom each asks, and who else is in the step.
        chances: theirs.
        drafts_left: steps with drafts after which they are not weighed again yet.
        steps_left: steps in which they are not weighed again.
        steps_held: for how many they have held, the one in which they were weighed included.
    """

    whose: Hashable = ()
    chances: list[Chances] = field(default_factory=list)
    drafts_left: int = 0
    steps_left: int = 0
    steps_held: int = 1

    def of(self, whose: Hashable, steps: int = 1) -> list[Chances] | None:
        """The chances of the same sequences, if they still hold so many steps later."""
        self.steps_left -= steps - 1
        self.steps_held += steps - 1
        if self.steps_left <= 0 or self.drafts_left < 0 or self.whose != whose:
            return None
        self.steps_left -= 1
        self.steps_held += 1
        return self.chances

    def keep(self, whose: Hashable, chances: list[Chances], tokens: int) -> list[Chances]:
        """Keep chances that rest on so many tokens a sequence."""
        self.whose, self.chances, self.steps_held = whose, chances, 1
        self.drafts_left = held_drafts(tokens)
        self.steps_left = _MOST_STEPS
        return chances

    def drop(self) -> None:
        """They do not hold for the next step."""
        self.steps_left = 0

    def drafted(self) -> None:
        """There were drafts, and so there is new evidence."""
        self.drafts_left -= 1
