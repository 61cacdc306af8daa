"""What speculation would bring here, from measured costs alone, for any acceptance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outpace.control.choice import Costs
from outpace.control.draft_cost import Wanted

_STEPS = 200


@dataclass(frozen=True, slots=True)
class Outlook:
    """Predicted speed-up of one sequence against plain decoding.

    Attributes:
        costs: of target, drafts and host.
        drafter: its name.
        context: tokens before the step.
    """

    costs: Costs
    drafter: str
    context: int = 0

    def step_seconds(self, k: int) -> float:
        """A step with k draft tokens, the drafting included."""
        costs, rows = self.costs, 1 + k
        seconds = costs.target(rows, self.context) + costs.host.at(rows)
        if k:
            wanted = [Wanted(k, 1, self.context)]
            seconds += costs.draft(self.drafter).seconds(wanted)
        return seconds

    def speedup(self, k: int, alpha: float) -> float:
        """Times faster than plain: E(k) = 1 + alpha + … + alpha^k tokens over the step's price."""
        expected = sum(alpha**i for i in range(k + 1))
        return expected * self.step_seconds(0) / self.step_seconds(k)

    def best(self, alpha: float, lengths: Sequence[int]) -> tuple[int, float]:
        """The best k of ``lengths`` and its speed-up."""
        k = max(lengths, key=lambda k: self.speedup(k, alpha))
        return k, self.speedup(k, alpha)

    def break_even(self, lengths: Sequence[int]) -> float | None:
        """The least alpha, in steps of half a hundredth, at which some k gains, if there is one."""
        for step in range(_STEPS + 1):
            alpha = step / _STEPS
            if any(self.speedup(k, alpha) > 1 for k in lengths if k):
                return alpha
        return None
