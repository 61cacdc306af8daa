"""Choosing k by what steps cost and drafts bring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from outpace.control.acceptance import Acceptance, found_share, reach, sequence_curve
from outpace.control.choice import TO_BEGIN, TO_GO_ON, Contender, Costs, Others, choose
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

_SEQUENCE_DECAY, _DRAFTER_DECAY = 0.97, 0.998
_SHORTEST_PAUSE, _LONGEST_PAUSE = 8, 128
_LARGEST_TRY = 4
# Failing tries may cost this share of the time, if they are cheap enough to come often.
_TRIES_SHARE = 0.006
# With this much acceptance drafting must pay, or it is not tried at all.
_HOPE = 0.95
# What drafting may cost a sequence, in plain steps: so many, and a share of its tokens.
_LOSS_STEPS, _LOSS_SHARE = 1.5, 0.015
# What good drafts have saved covers later losses up to so many steps.
_CREDIT = 12.0
# A step that took more than so many times what was expected was disturbed.
_DISTURBED = 1.3

_DEAR = "drafting costs more than it brings here"
_HOPELESS = "drafting would cost more than it brings even if nearly every guess were right"
_LOST = "drafting has cost this request too much already"


@dataclass(slots=True)
class _State:
    """What is remembered of one sequence.

    Attributes:
        acceptance: its own counts.
        seen: tokens that its drafter has computed.
        drafting: whether its length was chosen to be above 0 the last time.
        quiet: steps without a draft since the last one.
        pause: quiet steps before the next try.
        trying: the size of the next try.
        loss: plain steps that drafting has cost it, less those that it has saved.
        emitted: its tokens.
    """

    acceptance: Acceptance = field(default_factory=lambda: Acceptance(_SEQUENCE_DECAY))
    seen: int = 0
    drafting: bool = False
    quiet: int = 0
    pause: int = _SHORTEST_PAUSE
    trying: int = 1
    in_try: bool = False
    loss: float = 0.0
    emitted: int = 0

    def behind(self, context: int) -> int:
        return max(1, context - self.seen)

    @property
    def has_lost_too_much(self) -> bool:
        return self.loss > _LOSS_STEPS + _LOSS_SHARE * self.emitted

    def lengthen_pause(self) -> None:
        self.quiet, self.trying = 0, 1
        self.pause = min(2 * self.pause, _LONGEST_PAUSE)


class AutomaticController:
    """Chooses k for every sequence, all together, so that most tokens come out per second.

    If guess i is right with probability a_i once those before it were, k guesses bring
    E(k) = 1 + a_1 + a_1·a_2 + … tokens (Leviathan et al. 2023, equation 1, is the case of equal
    a_i) at the price of a forward pass of so many more rows, of making the draft, and of the work
    beside. The a_i are a sequence's own as far as it has a history, and its drafter's else.

    A sequence for which nothing pays tries a single guess after a pause. While tries succeed
    they follow each other and grow, when one fails the next pause is twice as long. A sequence
    that drafting has cost more than two steps and a fiftieth of its tokens stays plain until
    that is no longer so, whatever is hoped.

    Args:
        cost: seconds of a target step.
        drafts: seconds of a draft model's step, by the name of the drafter that has one; what
            other drafters cost is observed.
    """

    def __init__(self, cost: CostTable, drafts: Mapping[str, CostTable] | None = None) -> None:
        by_name = {name: DraftCost(table) for name, table in (drafts or {}).items()}
        self.costs = Costs(cost, OnlineLine(), by_name)
        self._sequences: dict[int, _State] = {}
        self._drafters: dict[str, Acceptance] = {}

    @property
    def cost(self) -> CostTable:
        """Seconds of a target step."""
        return self.costs.target

    def budgets(self, candidates: Sequence[Candidate]) -> list[Budget]:
        """See `Controller.budgets`."""
        budgets = [limited(LARGEST_AUTOMATIC_K, candidate) for candidate in candidates]
        free = [
            i
            for i, (candidate, budget) in enumerate(zip(candidates, budgets, strict=True))
            if candidate.requested is None and budget.tokens
        ]
        if not free:
            return budgets
        rows = [1 + budget.tokens for i, budget in enumerate(budgets) if i not in free]
        contenders = [self._contender(candidates[i], budgets[i].tokens) for i in free]
        going_on = any(self._sequences[candidates[i].seq_id].drafting for i in free)
        margin = TO_GO_ON if going_on else TO_BEGIN
        lengths = choose(contenders, self.costs, Others(sum(rows), len(rows)), margin)
        others = Others(sum(rows) + sum(lengths) + len(free) - 1, len(candidates) - 1)
        for i, contender, length in zip(free, contenders, lengths, strict=True):
            state = self._sequences[candidates[i].seq_id]
            settled = Others(others.rows - length, others.sequences)
            budgets[i] = self._settle(state, contender, length, settled)
        return budgets

    def _contender(self, candidate: Candidate, most: int) -> Contender:
        state = self._sequences.setdefault(candidate.seq_id, _State())
        usual = self._drafter(candidate.drafter)
        return Contender(
            drafter=candidate.drafter,
            reach=reach(sequence_curve(state.acceptance, usual, most)),
            found=found_share(state.acceptance, usual),
            behind=state.behind(candidate.context),
            context=candidate.context,
            room=candidate.room,
        )

    def _settle(self, state: _State, contender: Contender, length: int, others: Others) -> Budget:
        """The chosen length, or nothing, or a try."""
        state.in_try = False
        state.drafting = length > 0 and not state.has_lost_too_much
        if state.has_lost_too_much:
            state.quiet += 1
            return Budget(0, _LOST)
        if length > 0:
            state.quiet = 0
            return Budget(length)
        state.quiet += 1
        if state.quiet < min(state.pause, self._longest_pause(contender, others)):
            return Budget(0, _DEAR)
        hoped = reach([_HOPE] * len(contender.reach))
        if choose([replace(contender, reach=hoped)], self.costs, others) == [0]:
            state.lengthen_pause()
            return Budget(0, _HOPELESS)
        state.in_try = True
        return Budget(min(state.trying, len(contender.reach)))

    def _longest_pause(self, contender: Contender, others: Others) -> float:
        """Quiet steps after which a try that fails costs no more than it should, per step."""
        target, host = self.costs.target, self.costs.host
        rows = 1 + others.rows
        plain = target(rows) + host.at(rows)
        wanted = Wanted(1, min(contender.behind, 2), contender.context)
        more = target(rows + 1) + host.at(rows + 1) - plain
        more += self.costs.draft(contender.drafter).seconds([wanted])
        return more / plain / _TRIES_SHARE

    def record(self, step: StepRecord) -> None:
        """See `Controller.record`."""
        if step.rows is not None:
            self._learn_costs(step, step.rows)
        for outcome in step.outcomes:
            if outcome.seq_id not in self._sequences:
                continue  # it is not drafted for, or not by this controller's choice
            state = self._sequences[outcome.seq_id]
            state.emitted += outcome.emitted
            usual = self._drafter(outcome.drafter)
            if outcome.asked:
                for one in (state.acceptance, usual):
                    one.ask(found=outcome.drafted > 0)
            if outcome.drafted:
                self._learn_acceptance(state, usual, outcome)

    def _learn_acceptance(self, state: _State, usual: Acceptance, outcome: Outcome) -> None:
        computed = min(outcome.drafted - 1, outcome.accepted)
        state.seen = max(state.seen, outcome.context + computed)
        if state.in_try:
            if outcome.rejected:
                state.lengthen_pause()
            else:
                # News: what was seen before the pause is old, and the next try comes at once.
                state.acceptance.fade(0.5)
                state.trying = min(2 * state.trying, _LARGEST_TRY)
                state.quiet = state.pause
        elif outcome.accepted:
            state.pause, state.trying = _SHORTEST_PAUSE, 1
        state.acceptance.add(outcome.accepted, outcome.rejected)
        usual.add(outcome.accepted, outcome.rejected)

    def _learn_costs(self, step: StepRecord, rows: int) -> None:
        target, outcomes = self.costs.target, step.outcomes
        attention = sum(target.attention(1 + one.drafted, one.context) for one in outcomes)
        expected = target(rows) + attention + self.costs.host.at(rows)
        asked: dict[str, list[Wanted]] = {}
        once = 0.0
        for one in outcomes:
            if one.asked:
                state = self._sequences.get(one.seq_id) or _State()
                behind = state.behind(one.context)
                asked.setdefault(one.drafter, []).append(Wanted(one.asked, behind, one.context))
                once += self.costs.draft(one.drafter).catching_up(behind, one.context)
        expected += sum(self.costs.draft(name).seconds(some) for name, some in asked.items())
        taken = step.verify_seconds + step.draft_seconds + step.rest_seconds
        self._book(outcomes, min(taken, _DISTURBED * expected) - once)
        target.correct(rows, step.verify_seconds, attention)
        if step.rest_seconds:
            self.costs.host.add(rows, step.rest_seconds)
        if len(asked) == 1:  # else it is not known who took the time
            [(name, wanted)] = asked.items()
            self.costs.draft(name).record(wanted, step.draft_seconds)

    def _book(self, outcomes: Sequence[Outcome], seconds: float) -> None:
        """What the step cost each sequence that drafted, against what it got."""
        plain = self.costs.plain([one.context for one in outcomes])
        for one in outcomes:
            state = self._sequences.get(one.seq_id)
            if one.asked and state is not None:
                state.loss = max(state.loss + seconds / plain - one.emitted, -_CREDIT)

    def _drafter(self, name: str) -> Acceptance:
        return self._drafters.setdefault(name, Acceptance(_DRAFTER_DECAY))

    def forget(self, seq_id: int) -> None:
        """See `Controller.forget`."""
        self._sequences.pop(seq_id, None)
