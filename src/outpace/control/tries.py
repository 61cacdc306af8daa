"""How long a silent source waits before it tries a guess."""

from __future__ import annotations

from typing import NamedTuple

from outpace.control.choice import Contender, Costs, Others
from outpace.control.draft_cost import Wanted

# What tries may cost, as a share of the time.
_SHARE = 0.006
# A try that is expected to lose waits so many steps at most.
_MOST_WAIT = 32.0


def pauses(one: Contender, instead: float, costs: Costs, others: Others) -> Pauses:
    """The bounds for one source of a sequence; ``instead`` are tokens per second if it is silent.

    A try costs its time, less what the tokens of the step would have taken without it: plainly, or
    with the draft of a source that it stands in the way of. Everybody in the step waits for it, and
    everybody may try: it is held against one's own part of the step.
    """
    rows = 2 + others.rows
    wanted = Wanted(1, min(one.behind, 2), one.context)
    seconds = costs.step(rows) + costs.target.attention(2, one.context)
    seconds += costs.draft(one.drafter).seconds([wanted])
    own = 1 / instead  # of the time that the step takes without the try
    lost = max(seconds / own - (1 + others.sequences), 0.0)
    right = one.reach[0] if one.reach else 0.0
    expected = max(lost - right, 0.0) * one.found  # to ask in vain costs next to nothing
    return Pauses(min(expected / _SHARE, _MOST_WAIT), lost / _SHARE)


class Pauses(NamedTuple):
    """Quiet steps between tries.

    Attributes:
        shortest: before it, a try is expected to cost more than it should.
        longest: after it, even a try that fails costs no more.
    """

    shortest: float
    longest: float

    def within(self, pause: float) -> float:
        """A pause within these bounds."""
        return max(min(pause, self.longest), self.shortest)
