"""Who bears what the drafts of a step have cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from outpace.control.choice import Costs
from outpace.control.controller import Outcome


@dataclass(slots=True)
class Shares:
    """Lays a step's loss to the sequences that drafted in it, in plain steps.

    Every sequence of a step waits for the drafts of all. In a batch that has lost as a whole each
    step's loss to everybody is charged, in proportion to what each draft had promised: whoever
    promised and did not deliver bears it. While the batch gains, each pays for its own rows alone:
    it waits for the others' anyway, and to silence it saves no more than that. For how many the
    rows of one count lies between itself and all: its bad luck is often made good by the others.

    Attributes:
        lost: by the batch as a whole since it last was ahead, in plain steps.
    """

    lost: float = 0.0

    def charges(
        self,
        outcomes: Sequence[Outcome],
        promised: Sequence[float],
        slower: float,
        costs: Costs,
        plain_seconds: float,
    ) -> list[float]:
        """The part of each sequence that drafted, in their order.

        Args:
            outcomes: of all sequences of the step.
            promised: tokens that the draft of each one that drafted was expected to bring.
            slower: what the step took longer than a plain one, as a share of that.
            costs: of steps.
            plain_seconds: of the step without drafts.
        """
        sequences = len(outcomes)
        drafting = [one for one in outcomes if one.asked]
        gained = sum(one.emitted - 1 for one in drafting) / sequences
        self.lost = max(self.lost + slower - gained, 0.0)
        if len(drafting) == 1 or self.lost > 0:
            whole = sum(promised)
            return [sequences * slower * part / whole for part in promised]
        rows = sequences + sum(one.drafted for one in outcomes)
        together = costs.step(rows)
        own = [
            together
            - costs.step(rows - one.drafted)
            + one.drafted * costs.target.further_row(one.context)
            for one in drafting
        ]
        return [math.sqrt(sequences) * one / plain_seconds for one in own]
