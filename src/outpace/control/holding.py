"""For how long an automatic controller's budgets may be held."""

from __future__ import annotations

from collections.abc import Sequence

from outpace.control.beginning import lost_if_wrong
from outpace.control.choice import Costs
from outpace.control.controller import LONGEST_HOLD, Hold
from outpace.control.draft_cost import Wanted
from outpace.control.state import SequenceState
from outpace.control.weighed import Chances, held_drafts


def hold_for(seq_id: int, state: SequenceState, some: Chances, lost: float) -> Hold:
    """For how long a sequence's budget may be held.

    As long as what is known barely changes, and a batch whose drafts are all wrong would lose no
    more than the sequence may: who bears that is known only afterwards.

    Args:
        seq_id: the sequence.
        state: its state.
        some: its sources and what they promise.
        lost: what `lost_if_all_wrong` says of the step.
    """
    steps = LONGEST_HOLD
    for name, chance in some.items():
        source = state.source(name)
        if state.allowed[name]:
            further = int(state.may_lose / max(lost, 0.01)) - 1
            steps = min(steps, held_drafts(state.emitted), max(further, 0))
        elif chance.pauses:
            steps = min(steps, source.silent_for(chance.pauses.within(source.pause)))
    news = [(seq_id, name) for name in some if state.source(name).awaits_news]
    return Hold(steps, frozenset(news))


def lost_if_all_wrong(sequences: Sequence[tuple[int, SequenceState]], costs: Costs) -> float:
    """What the drafts of a step cost if none of them is right, in plain steps.

    Args:
        sequences: contexts and states of all sequences of the step.
        costs: of steps.
    """
    drafts = []
    for context, state in sequences:
        name = max(state.allowed, key=state.allowed.__getitem__)
        if state.allowed[name]:
            drafts.append((name, Wanted(state.allowed[name], 1, context)))
    return lost_if_wrong(drafts, len(sequences), costs)
