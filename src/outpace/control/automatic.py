"""Choosing k by what steps cost and drafts bring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from outpace.control.acceptance import Acceptance, found_share, reach, sequence_curve
from outpace.control.choice import TO_BEGIN, TO_GO_ON, Contender, Costs, Others, choose, rate
from outpace.control.controller import (
    LARGEST_AUTOMATIC_K,
    Budget,
    Candidate,
    Outcome,
    StepRecord,
    limited,
)
from outpace.control.cost import CostTable
from outpace.control.draft_cost import DraftCost, Wanted
from outpace.control.line import OnlineLine
from outpace.control.state import SequenceState, SourceState

_USUAL_DECAY = 0.998
# Failing tries may cost this share of the time, if they are cheap enough to come often.
_TRIES_SHARE = 0.006
# With this much acceptance drafting must pay, or it is not tried at all.
_HOPE = 0.95
# A step that took more than so many times what was expected was disturbed.
_DISTURBED = 1.3

_DEAR = "drafting costs more than it brings here"
_HOPELESS = "drafting would cost more than it brings even if nearly every guess were right"
_LOST = "drafting has cost this request too much already"


@dataclass(slots=True)
class _Chance:
    """What a source promises for a sequence.

    Attributes:
        contender: its acceptance and what it needs.
        length: the draft length that pays best; 0 if none does.
        instead: tokens per second if it is not asked.
    """

    contender: Contender
    length: int
    instead: float = 0.0


# By the name of the source, in the order in which they are asked.
_Chances = dict[str, _Chance]


class AutomaticController:
    """Chooses k for every sequence, all together, so that most tokens come out per second.

    If guess i is right with probability a_i once those before it were, k guesses bring
    E(k) = 1 + a_1 + a_1·a_2 + … tokens (Leviathan et al. 2023, equation 1, is the case of equal
    a_i) at the price of a forward pass of so many more rows, of making the draft, and of the work
    beside. The a_i are a sequence's own as far as it has a history, and its drafter's else.

    A drafter may have several *sources*, asked in order until one has a draft. Each has a length
    of its own, from its own acceptance and costs, and one that promises less than those after it
    is not asked.

    A source that does not pay for a sequence tries a single guess after a pause. While tries
    succeed they follow each other and grow, when one fails the next pause is twice as long. A
    sequence that drafting has cost more than a step or two and a small share of its tokens stays
    plain until that is no longer so, whatever is hoped.

    Args:
        cost: seconds of a target step.
        drafts: seconds of a draft model's step, by the name of the source that has one; what
            others cost is observed.
    """

    def __init__(self, cost: CostTable, drafts: Mapping[str, CostTable] | None = None) -> None:
        by_name = {name: DraftCost(table) for name, table in (drafts or {}).items()}
        self.costs = Costs(cost, OnlineLine(), by_name)
        self._sequences: dict[int, SequenceState] = {}
        self._usual: dict[str, Acceptance] = {}  # by source, over all sequences

    @property
    def cost(self) -> CostTable:
        """Seconds of a target step."""
        return self.costs.target

    def budgets(self, candidates: Sequence[Candidate]) -> list[Budget]:
        """See `Controller.budgets`."""
        budgets = [limited(LARGEST_AUTOMATIC_K, candidate) for candidate in candidates]
        for candidate, budget in zip(candidates, budgets, strict=True):
            self._state(candidate.seq_id).allowed = dict.fromkeys(
                _sources(candidate), budget.tokens
            )
        free = [
            i
            for i, (candidate, budget) in enumerate(zip(candidates, budgets, strict=True))
            if candidate.requested is None and budget.tokens
        ]
        if not free:
            return budgets
        settled = [1 + budget.tokens for i, budget in enumerate(budgets) if i not in free]
        others = Others(sum(settled), len(settled))
        chances = self._chances([(candidates[i], budgets[i].tokens) for i in free], others)
        longest = [max(one.length for one in some.values()) for some in chances]
        rows = others.rows + sum(longest) + len(free) - 1
        for i, some, length in zip(free, chances, longest, strict=True):
            state = self._state(candidates[i].seq_id)
            budgets[i] = self._settle(state, some, Others(rows - length, len(candidates) - 1))
        return budgets

    def _chances(self, free: Sequence[tuple[Candidate, int]], others: Others) -> list[_Chances]:
        """For each sequence its sources in order, each with the length that pays best.

        The first sources of all sequences are weighed against each other, then the second ones,
        and so on: a step has a draft of one source for each sequence.
        """
        chances: list[_Chances] = [{} for _ in free]
        for place in range(max(len(_sources(candidate)) for candidate, _ in free)):
            here = [i for i, (one, _) in enumerate(free) if place < len(_sources(one))]
            names = [_sources(free[i][0])[place] for i in here]
            contenders = [
                self._contender(*free[i], name) for i, name in zip(here, names, strict=True)
            ]
            going_on = any(
                self._state(free[i][0].seq_id).source(name).drafting
                for i, name in zip(here, names, strict=True)
            )
            aside = len(free) - len(here)
            beside = Others(others.rows + aside, others.sequences + aside)
            lengths = choose(contenders, self.costs, beside, TO_GO_ON if going_on else TO_BEGIN)
            for i, name, contender, length in zip(here, names, contenders, lengths, strict=True):
                chances[i][name] = _Chance(contender, length)
        for some in chances:
            self._drop_the_worse(some, Others(others.rows + len(free) - 1, others.sequences))
        return chances

    def _drop_the_worse(self, some: _Chances, others: Others) -> None:
        """A source whose drafts promise less than those of the next ones only stands in the way."""
        best = 0.0
        for chance in reversed(some.values()):
            sure = replace(chance.contender, found=1.0)
            chance.instead = best or rate(sure, 0, self.costs, others)
            if not chance.length:
                continue
            promised = rate(sure, chance.length, self.costs, others)
            if promised < best:
                chance.length = 0
            else:
                found = chance.contender.found
                best = found * promised + (1 - found) * chance.instead

    def _contender(self, candidate: Candidate, most: int, name: str) -> Contender:
        source = self._state(candidate.seq_id).source(name)
        usual = self._usually(name)
        return Contender(
            drafter=name,
            reach=reach(sequence_curve(source.acceptance, usual, most)),
            found=found_share(source.acceptance, usual),
            behind=source.behind(candidate.context),
            context=candidate.context,
            room=candidate.room,
        )

    def _settle(self, state: SequenceState, some: _Chances, others: Others) -> Budget:
        """The chosen lengths, or nothing, or a try."""
        if state.has_lost_too_much:
            for name in some:
                source = state.source(name)
                source.in_try = source.drafting = False
                source.quiet += 1
            state.allowed = dict.fromkeys(some, 0)
            return Budget(0, _LOST)
        reason = ""
        for name, chance in some.items():
            state.allowed[name], why = self._allow(state.source(name), chance, others)
            reason = reason or why
        most = max(state.allowed.values())
        return Budget(most, "" if most else reason, dict(state.allowed))

    def _allow(self, source: SourceState, chance: _Chance, others: Others) -> tuple[int, str]:
        """The chosen length of a source, or a try, or nothing and why."""
        contender, length = chance.contender, chance.length
        source.in_try = False
        source.drafting = length > 0
        if length > 0:
            source.quiet = 0
            return length, ""
        source.quiet += 1
        if source.quiet < min(source.pause, self._longest_pause(chance, others)):
            return 0, _DEAR
        hoped = reach([_HOPE] * len(contender.reach))
        if choose([replace(contender, reach=hoped)], self.costs, others) == [0]:
            source.lengthen_pause()
            return 0, _HOPELESS
        source.in_try = True
        return min(source.trying, len(contender.reach)), ""

    def _longest_pause(self, chance: _Chance, others: Others) -> float:
        """Quiet steps after which a try that fails costs no more than it should, per step.

        A try that fails costs its time, less what the tokens of the step would have taken
        without it: plainly, or with the draft of a source that it stands in the way of.
        """
        contender, costs = chance.contender, self.costs
        rows = 2 + others.rows
        wanted = Wanted(1, min(contender.behind, 2), contender.context)
        seconds = costs.target(rows) + costs.host.at(rows)
        seconds += costs.target.attention(1, contender.context)
        seconds += costs.draft(contender.drafter).seconds([wanted])
        instead = (1 + others.sequences) / chance.instead
        return max(seconds - instead, 0.0) / instead / _TRIES_SHARE

    def record(self, step: StepRecord) -> None:
        """See `Controller.record`."""
        asked = [self._asked(outcome) for outcome in step.outcomes]
        if step.rows is not None:
            self._learn_costs(step, step.rows, asked)
        for outcome, names in zip(step.outcomes, asked, strict=True):
            state = self._state(outcome.seq_id)
            state.emitted += outcome.emitted
            for name in names:
                found = outcome.drafted > 0 and name == names[-1]
                state.source(name).acceptance.ask(found)
                self._usually(name).ask(found)
            if outcome.drafted:
                state.source(names[-1]).learn(
                    outcome.context, outcome.drafted, outcome.accepted, outcome.rejected
                )
                self._usually(names[-1]).add(outcome.accepted, outcome.rejected)

    def _asked(self, outcome: Outcome) -> list[str]:
        """The sources that were asked in a step: up to the one that had a draft, or all."""
        if not outcome.asked and not outcome.drafted:
            return []
        allowed = self._state(outcome.seq_id).allowed
        names = [name for name, most in allowed.items() if most] or [outcome.drafter]
        if not outcome.drafted:
            return names
        maker = outcome.source or names[0]
        return [*names[: names.index(maker)], maker] if maker in names else [maker]

    def _learn_costs(self, step: StepRecord, rows: int, asked: Sequence[Sequence[str]]) -> None:
        target, outcomes = self.costs.target, step.outcomes
        attention = sum(target.attention(1 + one.drafted, one.context) for one in outcomes)
        expected = target(rows) + attention + self.costs.host.at(rows)
        drafts: dict[str, list[Wanted]] = {}
        once = 0.0
        for one, names in zip(outcomes, asked, strict=True):
            state = self._state(one.seq_id)
            for name in names:
                behind = state.source(name).behind(one.context)
                tokens = state.allowed.get(name) or one.asked or one.drafted
                drafts.setdefault(name, []).append(Wanted(tokens, behind, one.context))
                once += self.costs.draft(name).catching_up(behind, one.context)
        by_name = {name: self.costs.draft(name).seconds(some) for name, some in drafts.items()}
        expected += sum(by_name.values())
        taken = step.verify_seconds + step.draft_seconds + step.rest_seconds
        self._book(outcomes, min(taken, _DISTURBED * expected) - once)
        target.correct(rows, step.verify_seconds, attention)
        if step.rest_seconds:
            self.costs.host.add(rows, step.rest_seconds)
        for name, wanted in drafts.items():
            cost = self.costs.draft(name)
            # Without a table, and beside others, it is not known who took the time.
            if cost.table is not None or len(drafts) == 1:
                rest = sum(seconds for other, seconds in by_name.items() if other != name)
                cost.record(wanted, max(step.draft_seconds - rest, 0.0))

    def _book(self, outcomes: Sequence[Outcome], seconds: float) -> None:
        """What the step cost each sequence that drafted, against what it got."""
        plain = self.costs.plain([one.context for one in outcomes])
        for one in outcomes:
            if one.asked:
                self._state(one.seq_id).book(seconds / plain, one.emitted)

    def _state(self, seq_id: int) -> SequenceState:
        return self._sequences.setdefault(seq_id, SequenceState())

    def _usually(self, source: str) -> Acceptance:
        return self._usual.setdefault(source, Acceptance(_USUAL_DECAY))

    def forget(self, seq_id: int) -> None:
        """See `Controller.forget`."""
        self._sequences.pop(seq_id, None)


def _sources(candidate: Candidate) -> tuple[str, ...]:
    return candidate.sources or (candidate.drafter,)
