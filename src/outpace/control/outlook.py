"""What is to be expected of each source for a sequence, by its own history and its type's."""

from __future__ import annotations

from collections.abc import Sequence

from outpace.control.acceptance import found_share, leaning_on, reach
from outpace.control.chance import HOPE
from outpace.control.choice import Contender, Costs
from outpace.control.controller import LARGEST_AUTOMATIC_K, Candidate
from outpace.control.estimate import Estimate
from outpace.control.gain import Prospect
from outpace.control.lengths import AnswerLengths
from outpace.control.state import SequenceState
from outpace.control.typed_acceptance import TypedAcceptance

# Answers of which fewer tokens are to come are short.
_SHORT = 64
# What a source promises is looked at again after a draft for each so many that it has made, and
# after so many tokens.
_SMALL_PART, _MOST_TOKENS = 8, 16


class Outlook:
    """What each source promises a sequence.

    Args:
        history: how often guesses are right by type and source.
        lengths: of answers, by type.
        costs: of a step.
    """

    def __init__(self, history: TypedAcceptance, lengths: AnswerLengths, costs: Costs) -> None:
        self._history = history
        self._lengths = lengths
        self._costs = costs

    def contender(
        self, state: SequenceState, candidate: Candidate, most: int, name: str
    ) -> Contender:
        """What a source promises for drafts of up to ``most`` guesses.

        A further observation changes the less the more there were: it is looked at again when
        these have grown by an eighth, or the sequence by some tokens. Only of a draft model must
        be known at once how far it is behind.
        """
        source = state.source(name)
        kept, (asked, emitted) = source.contender, source.contender_until
        fresh = source.asked < asked and state.emitted < emitted
        by_table = self._costs.draft(name).table is not None
        if kept is None or by_table or not fresh or len(kept.reach) != most:
            kept = self._contender(state, candidate, most, name)
            source.contender = kept
            asked = source.asked + 1 + source.asked // _SMALL_PART
            source.contender_until = asked, state.emitted + _MOST_TOKENS
        return kept

    def _contender(
        self, state: SequenceState, candidate: Candidate, most: int, name: str
    ) -> Contender:
        source = state.source(name)
        usual = self._history.curve(candidate.request_type, name, most)
        likeness = self._history.likeness(name)
        usually_found = self._history.found_share(candidate.request_type, name)
        behind = source.behind(candidate.context)
        more = self.more(state, candidate) if behind > 2 else candidate.room
        # A short answer leaves no time to win back what reading the prompt in vain has cost.
        cautious = behind > 2 and more < _SHORT and not source.counts.tried
        highs = [min(one.high, HOPE) for one in usual] if cautious else []
        return Contender(
            drafter=name,
            reach=reach(leaning_on(source.acceptance, [one.mean for one in usual], likeness)),
            found=found_share(source.acceptance, usually_found),
            behind=behind,
            context=candidate.context,
            more=more,
            hoped=reach(leaning_on(source.acceptance, highs, likeness)) if cautious else (),
        )

    def more(self, state: SequenceState, candidate: Candidate) -> float:
        """Tokens that a sequence will likely have yet, by its type and how far it is."""
        return self._lengths.expected_more(candidate.request_type, state.emitted, candidate.room)

    def prospects(
        self, state: SequenceState, candidate: Candidate, sources: Sequence[str]
    ) -> list[Prospect]:
        """What these sources could do for a sequence, with intervals."""
        result = []
        for name in sources:
            own = state.source(name)
            usual = self._history.curve(candidate.request_type, name, LARGEST_AUTOMATIC_K)
            likeness = self._history.likeness(name)
            means = leaning_on(own.acceptance, [one.mean for one in usual], likeness)
            lows = leaning_on(own.acceptance, [one.low for one in usual], likeness)
            highs = leaning_on(own.acceptance, [one.high for one in usual], likeness)
            trials = [one.trials for one in usual]
            usually_found = self._history.found_share(candidate.request_type, name)
            curve = [Estimate(*each) for each in zip(means, lows, highs, trials, strict=True)]
            found = found_share(own.acceptance, usually_found)
            result.append(Prospect(name, curve, found, own.behind(candidate.context)))
        return result
