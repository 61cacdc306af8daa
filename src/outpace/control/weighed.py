"""What was weighed for a step, for as long as it holds: to weigh it again takes time too."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from outpace.control.chance import Chance

# By the name of the source, in the order in which they are asked.
Chances = dict[str, Chance]

# Further steps for which chances hold at most, and tokens of a sequence for each of them: new
# evidence changes the chances the less the more there was before.
_MOST_STEPS, _TOKENS_A_STEP = 6, 8


@dataclass(slots=True)
class Weighed:
    """The chances of some sequences, one for each, and for how many steps more they hold.

    Attributes:
        whose: the sequences, whom each asks, and who else is in the step.
        chances: theirs.
        steps_left: in which they are not weighed again.
        steps_held: for how many they have held, the one in which they were weighed included.
    """

    whose: Hashable = ()
    chances: list[Chances] = field(default_factory=list)
    steps_left: int = 0
    steps_held: int = 1

    def of(self, whose: Hashable) -> list[Chances] | None:
        """The chances of the same sequences, if they still hold."""
        if not self.steps_left or self.whose != whose:
            return None
        self.steps_left -= 1
        self.steps_held += 1
        return self.chances

    def keep(self, whose: Hashable, chances: list[Chances], tokens: int) -> list[Chances]:
        """Keep chances that rest on so many tokens a sequence; 0: for no step."""
        self.whose, self.chances, self.steps_held = whose, chances, 1
        self.steps_left = min(tokens // _TOKENS_A_STEP, _MOST_STEPS)
        return chances
