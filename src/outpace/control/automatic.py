"""Choosing k by what steps cost and drafts bring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from outpace.control.aftermath import Aftermath
from outpace.control.allocation import Allocation, allocate
from outpace.control.beginning import bearable
from outpace.control.chance import Chance, Hope, at_best
from outpace.control.choice import Contender, Costs, Others, rate
from outpace.control.controller import (
    LARGEST_AUTOMATIC_K,
    LONGEST_HOLD,
    Budget,
    Candidate,
    Hold,
    Outcome,
    StepRecord,
    limited,
)
from outpace.control.cost import CostTable
from outpace.control.draft_cost import DraftCost, Wanted
from outpace.control.drift import DriftSettings
from outpace.control.gain import Prospect
from outpace.control.holding import hold_for, lost_if_all_wrong
from outpace.control.line import OnlineLine
from outpace.control.outlook import Outlook
from outpace.control.regime import Regime
from outpace.control.shares import Shares
from outpace.control.state import SHORTEST_PAUSE, SequenceState
from outpace.control.tries import pauses
from outpace.control.typed_acceptance import TypedAcceptance
from outpace.control.weighed import Chances, Weighed

_DEAR = "drafting costs more than it brings here"
_HOPELESS = "drafting would cost more than it brings even if it went as well as can be hoped"
_LOST = "drafting has cost this request too much already"
# Sequences, each with the most that it may draft.
_Free = Sequence[tuple[Candidate, int]]


class AutomaticController:
    """Chooses k for every sequence, all together, so that most tokens come out per second.

    If guess i is right with probability a_i once those before it were, k guesses bring
    E(k) = 1 + a_1 + a_1·a_2 + … tokens (Leviathan et al. 2023, equation 1, is the case of equal
    a_i) at the price of a forward pass of so many more rows, of making the draft, and of the work
    beside. The a_i are a sequence's own as far as it has a history, and else those of its type of
    request and source.

    A drafter may have several *sources*, asked in order until one has a draft. Each has a length
    of its own, from its own acceptance and costs, and one that promises less than those after it
    is not asked.

    A source that does not pay for a sequence tries a single guess after a pause. While tries
    succeed against expectation they follow each other and grow; when one fails the next pause is
    twice as long. A sequence that drafting has cost more than a step and a small share of the
    tokens that are expected of it stays plain, whatever is hoped.

    Args:
        cost: seconds of a target step.
        drafts: seconds of a draft model's step, by the name of the source that has one; what
            others cost is observed.
        history: how often guesses are right by type and source, as far as it is known already.
        drift: how sure and how quick the tests for drift are.
    """

    def __init__(
        self,
        cost: CostTable,
        drafts: Mapping[str, CostTable] | None = None,
        history: TypedAcceptance | None = None,
        drift: DriftSettings | None = None,
    ) -> None:
        by_name = {name: DraftCost(table) for name, table in (drafts or {}).items()}
        self.costs = Costs(cost, OnlineLine(), by_name)
        self._sequences: dict[int, SequenceState] = {}
        self.history = history or TypedAcceptance()
        self.aftermath = Aftermath(self.history, drift)
        self.plain_seconds = 0.0  # of the last step, had it drafted nothing
        self._outlook = Outlook(self.history, self.aftermath.lengths, self.costs)
        self._regimes: dict[int, Regime] = {}  # by place in the order of sources
        self._weighed = Weighed()
        self._shares = Shares()
        self._recorded = 0  # steps since the last budgets
        self.hold = Hold()

    @property
    def cost(self) -> CostTable:
        """Seconds of a target step."""
        return self.costs.target

    def budgets(self, candidates: Sequence[Candidate]) -> list[Budget]:
        """See `Controller.budgets`."""
        steps, self._recorded = max(self._recorded, 1), 0
        self.hold = Hold(LONGEST_HOLD)
        budgets = [limited(LARGEST_AUTOMATIC_K, candidate) for candidate in candidates]
        free: list[int] = []
        for i, candidate in enumerate(candidates):
            state = self._opened(candidate, budgets[i].tokens, steps)
            if candidate.requested is not None or not budgets[i].tokens:
                continue
            if state.has_lost_too_much:
                state.silence()
                budgets[i] = Budget(0, _LOST)
            else:
                free.append(i)
        if not free:
            return budgets
        settled = [1 + budget.tokens for i, budget in enumerate(budgets) if i not in free]
        others = Others(sum(settled), len(settled))
        some_free = [(candidates[i], budgets[i].tokens) for i in free]
        chances = self._kept_chances(some_free, others, steps)
        longest = [max(one.length for one in some.values()) for some in chances]
        rows = others.rows + sum(longest) + len(free) - 1
        for i, some, length in zip(free, chances, longest, strict=True):
            seq_id = candidates[i].seq_id
            around = Others(rows - length, len(candidates) - 1)
            budgets[i] = self._settle(self._state(seq_id), some, around)
        lost = lost_if_all_wrong(
            [(one.context, self._state(one.seq_id)) for one in candidates], self.costs
        )
        for i, some in zip(free, chances, strict=True):
            seq_id = candidates[i].seq_id
            self.hold = self.hold.and_also(hold_for(seq_id, self._state(seq_id), some, lost))
        return budgets

    def _opened(self, candidate: Candidate, most: int, steps: int) -> SequenceState:
        """A sequence's state, as the step begins; the last question was so many steps ago."""
        known = candidate.seq_id in self._sequences
        state = self._state(candidate.seq_id)
        state.passed = steps if known else 1
        state.request_type = candidate.request_type
        state.limit = state.emitted + candidate.room + 1
        if state.emitted >= state.expected:
            state.expected = state.emitted + self.expected_more(candidate)
        state.allowed = dict.fromkeys(_sources(candidate), most)
        return state

    def _kept_chances(self, free: _Free, others: Others, steps: int) -> list[Chances]:
        """`_chances`, or those of a step before if little can have changed since."""
        whose = (others, *((one.seq_id, _sources(one)) for one, _ in free))
        kept = self._weighed.of(whose, steps)
        if kept is not None:
            return kept
        chances = self._chances(free, others)
        # A batch's single try must not be made again, a draft model counts what it has missed.
        names = {name for one, _ in free for name in _sources(one)}
        steady = all(self.costs.draft(name).table is None for name in names)
        if len(free) > 1:
            places = max(len(_sources(one)) for one, _ in free)
            regimes = (self._regimes[place] for place in range(places))
            if not all(one.drafting or one.quiet > 0 for one in regimes):
                steady, self.hold = False, Hold()
        emitted = sum(self._state(one.seq_id).emitted for one, _ in free)
        self._weighed.keep(whose, chances, emitted // len(free))
        if not steady:
            self._weighed.drop()
        return chances

    def _chances(self, free: _Free, others: Others) -> list[Chances]:
        """For each sequence its sources in order, each with the length that pays best.

        The first sources of all sequences are weighed against each other, then the second ones,
        and so on: a step has a draft of one source for each sequence.
        """
        chances: list[Chances] = [{} for _ in free]
        for place in range(max(len(_sources(candidate)) for candidate, _ in free)):
            here = [i for i, (one, _) in enumerate(free) if place < len(_sources(one))]
            names = [_sources(free[i][0])[place] for i in here]
            contenders = [
                self._outlook.contender(self._state(free[i][0].seq_id), *free[i], name)
                for i, name in zip(here, names, strict=True)
            ]
            aside = len(free) - len(here)
            beside = Others(others.rows + aside, others.sequences + aside)
            best = allocate(contenders, self.costs, beside)
            lengths = self._lengths(place, best, contenders, beside)
            rivals = contenders if any(lengths) else [replace(o, reach=()) for o in contenders]
            hope = Hope(rivals, beside)
            for index, (i, name) in enumerate(zip(here, names, strict=True)):
                chances[i][name] = Chance(contenders[index], lengths[index], hope, index)
        rest = len(free) - 1
        all_others = Others(others.rows + rest, others.sequences + rest)
        for some in chances:
            self._drop_the_worse(some, all_others)
        return chances

    def _lengths(
        self, place: int, best: Allocation, contenders: Sequence[Contender], beside: Others
    ) -> list[int]:
        """The best lengths, or none in a silent batch; there, now and then a guess for everyone.

        Where a draft model's pass pays for many together and for nobody alone, single tries
        would never begin.
        """
        regime = self._regimes.setdefault(place, Regime())
        price = 0.0
        if regime.drafting is False and len(contenders) > 1:
            # Arrears of all are the price of beginning anew, not a reason never to.
            price = sum(
                self.costs.draft(one.drafter).catching_up(one.behind, one.context)
                for one in contenders
            ) / self.costs.plain([one.context for one in contenders], beside)
            ready = [replace(one, behind=min(one.behind, 2)) for one in contenders]
            best = allocate(ready, self.costs, beside) if price else best
        steps = self._weighed.steps_held
        if regime.decide(best.ratio, price, steps):
            return best.lengths
        if len(contenders) > 1 and regime.tries(self._try_cost(contenders, beside), steps):
            hoped = [at_best(one) for one in contenders]
            if allocate(hoped, self.costs, beside).ratio > 1:
                return [min(1, len(one.reach)) for one in contenders]
        return [0] * len(contenders)

    def _try_cost(self, contenders: Sequence[Contender], beside: Others) -> float:
        """What a guess for everyone costs if all are wrong, catching up included, in steps."""
        costs, rows = self.costs, len(contenders) + beside.rows
        more = costs.target(rows + len(contenders)) - costs.target(rows)
        for name in {one.drafter for one in contenders}:
            mine = [one for one in contenders if one.drafter == name]
            wanted = [Wanted(1, one.behind, one.context) for one in mine]
            more += costs.draft(name).seconds(wanted)
        return more / costs.step(rows)

    def _drop_the_worse(self, some: Chances, others: Others) -> None:
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

    def _settle(self, state: SequenceState, some: Chances, others: Others) -> Budget:
        """The chosen lengths, or nothing, or a try."""
        reason = ""
        for name, chance in some.items():
            length, why = self._allow(state, name, chance, others)
            state.allowed[name] = min(length, state.allowed[name])  # its room may have shrunk
            reason = reason or why
        most = max(state.allowed.values())
        asked = [one.contender.reach[: state.allowed[name]] for name, one in some.items()]
        state.promised = max(sum(reached) for reached in asked)
        return Budget(most, "" if most else reason, dict(state.allowed))

    def _allow(
        self, state: SequenceState, name: str, chance: Chance, others: Others
    ) -> tuple[int, str]:
        """The chosen length of a source, or a try, or nothing and why."""
        source = state.source(name)
        contender = chance.contender
        length = chance.length and source.leash.held(chance.length)
        length = length and bearable(contender, length, state.may_lose, self.costs, others)
        source.in_try = False
        source.drafting = length > 0
        if length > 0:
            source.quiet = 0
            return length, ""
        source.quiet += state.passed
        if chance.pauses is None:
            chance.pauses = pauses(contender, chance.instead, self.costs, others)
        if source.quiet < chance.pauses.within(source.pause):
            return 0, _DEAR
        if source.resting:
            source.resting = max(source.resting - state.passed, 0)
            return 0, _HOPELESS
        if not chance.is_hopeful(self.costs):
            source.lengthen_pause()
            source.resting = SHORTEST_PAUSE
            return 0, _HOPELESS
        source.in_try = True
        return min(source.trying, len(contender.reach)), ""

    def record(self, step: StepRecord) -> None:
        """See `Controller.record`."""
        self._recorded += 1
        asked = [self._asked(outcome) for outcome in step.outcomes]
        if any(asked):
            self._weighed.drafted()
        if step.rows is not None:
            self._learn_costs(step, step.rows, asked)
        for outcome, names in zip(step.outcomes, asked, strict=True):
            state = self._state(outcome.seq_id)
            state.emitted += outcome.emitted
            for name in names:
                found = outcome.drafted > 0 and name == names[-1]
                state.source(name).ask(found)
                self.history.asked(state.request_type, name, found)
            if outcome.drafted:
                accepted, rejected = outcome.accepted, outcome.rejected
                source = state.source(names[-1])
                source.learn(outcome.context, outcome.drafted, accepted, rejected)
                self.history.record(state.request_type, names[-1], accepted, rejected)

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
        expected = self.costs.step(rows) + attention
        drafts: dict[str, list[Wanted]] = {}
        once = 0.0
        for one, names in zip(outcomes, asked, strict=True):
            state = self._state(one.seq_id)
            for name in names:
                behind = state.source(name).behind(one.context)
                asked_for = one.asked or one.drafted  # held budgets are cut to the room
                tokens = min(state.allowed.get(name) or asked_for, asked_for)
                drafts.setdefault(name, []).append(Wanted(tokens, behind, one.context))
                once += self.costs.draft(name).catching_up(behind, one.context)
        by_name = {name: self.costs.draft(name).seconds(some) for name, some in drafts.items()}
        expected += sum(by_name.values())
        taken = step.verify_seconds + step.draft_seconds + step.rest_seconds
        self.plain_seconds = self.costs.plain([one.context for one in outcomes])
        for one in outcomes:
            state = self._state(one.seq_id)
            state.seconds += taken
            state.plain_seconds += self.plain_seconds * one.emitted
        # Reading was weighed before it began: how long it takes is nobody's later loss.
        self._book(outcomes, expected - once)
        target.correct(rows, step.verify_seconds, attention)
        if step.rest_seconds:
            self.costs.host.add(rows, step.rest_seconds)
        for name, wanted in drafts.items():
            if name in step.drafting:
                self.costs.draft(name).record(wanted, step.drafting[name])

    def _book(self, outcomes: Sequence[Outcome], seconds: float) -> None:
        """What drafting cost in this step, laid to those that drafted, against what they got.

        By what such a step takes, as plain decoding is: a machine that is slow for a while is so
        without drafts too, and a request that is silenced for it stays silent.

        Args:
            outcomes: of the step.
            seconds: that such a step takes.
        """
        drafting = [one for one in outcomes if one.asked]
        if not drafting:
            return
        promised = [max(self._state(one.seq_id).promised, 1e-3) for one in drafting]
        slower = seconds / self.plain_seconds - 1
        charges = self._shares.charges(outcomes, promised, slower, self.costs, self.plain_seconds)
        for one, charge in zip(drafting, charges, strict=True):
            self._state(one.seq_id).book(charge, one.emitted - 1)

    def _state(self, seq_id: int) -> SequenceState:
        found = self._sequences.get(seq_id)
        if found is None:
            found = self._sequences[seq_id] = SequenceState()
        return found

    def expected_more(self, candidate: Candidate) -> float:
        """Tokens that a sequence will likely have yet, by its type and how far it is."""
        return self._outlook.more(self._state(candidate.seq_id), candidate)

    def prospects(self, candidate: Candidate, sources: Sequence[str]) -> list[Prospect]:
        """What these sources could do for a sequence, with intervals."""
        return self._outlook.prospects(self._state(candidate.seq_id), candidate, sources)

    def forget(self, seq_id: int) -> None:
        """See `Controller.forget`."""
        state = self._sequences.pop(seq_id, None)
        if state is not None:
            self.aftermath.ended(state)


def _sources(candidate: Candidate) -> tuple[str, ...]:
    return candidate.sources or (candidate.drafter,)
