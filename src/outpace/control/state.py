"""What an automatic controller remembers of a sequence, and of each source that drafts for it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from outpace.control.acceptance import Acceptance
from outpace.control.beginning import Leash
from outpace.control.choice import Contender
from outpace.request import OTHER

_SEQUENCE_DECAY = 0.97
SHORTEST_PAUSE, LONGEST_PAUSE = 8, 128
_LARGEST_TRY = 4
# A try that succeeds is no news if it was likelier than this.
_NO_NEWS = 0.5
# What drafting may cost a sequence, in plain steps: so many, and a share of the tokens that it is
# expected to have.
_LOSS_STEPS, _LOSS_SHARE = 1.0, 0.02
# What good drafts have saved covers later losses up to so many steps.
_CREDIT = 12.0


@dataclass(slots=True)
class SourceState:
    """How one source of drafts has done for one sequence.

    Attributes:
        acceptance: its counts, the recent ones more.
        counts: the same, all alike.
        seen: tokens that it has computed.
        drafting: whether its length was chosen to be above 0 the last time.
        quiet: steps without a draft since the last one.
        pause: quiet steps before the next try.
        trying: the size of the next try.
        in_try: whether the draft at hand is one.
        resting: steps for which nobody asks again whether there is hope.
        leash: holds its drafts short until a guess was right.
        asked: how often a draft was wanted of it.
        contender: what it promised when that was looked at last.
        contender_until: how often it may have been asked, and how many tokens the sequence may
            have, for that to hold.
    """

    acceptance: Acceptance = field(default_factory=lambda: Acceptance(_SEQUENCE_DECAY))
    counts: Acceptance = field(default_factory=lambda: Acceptance(1.0))
    seen: int = 0
    drafting: bool = False
    quiet: int = 0
    pause: int = SHORTEST_PAUSE
    trying: int = 1
    in_try: bool = False
    resting: int = 0
    leash: Leash = field(default_factory=Leash)
    asked: int = 0
    contender: Contender | None = None
    contender_until: tuple[int, int] = (0, 0)

    def behind(self, context: int) -> int:
        """Known tokens that it has not computed yet; at least 1."""
        return max(1, context - self.seen)

    def ask(self, found: bool) -> None:
        """A draft was wanted; count whether there was one."""
        self.asked += 1
        self.acceptance.ask(found)

    @property
    def awaits_news(self) -> bool:
        """Whether its next draft decides how it goes on."""
        return self.in_try or (self.drafting and not self.leash.is_off)

    def silent_for(self, pause: float) -> int:
        """Further silent steps if its next pause is that long."""
        return max(math.ceil(pause - self.quiet) - 1, self.resting, 0)

    def lengthen_pause(self) -> None:
        """A try failed, or could not succeed: the next one comes later."""
        self.quiet, self.trying = 0, 1
        self.pause = min(2 * self.pause, LONGEST_PAUSE)

    def learn(self, context: int, drafted: int, accepted: int, rejected: bool) -> None:
        """A draft of its making was verified."""
        self.seen = max(self.seen, context + min(drafted - 1, accepted))
        self.leash.learn(drafted, accepted)
        if self.in_try:
            if rejected:
                self.lengthen_pause()
            elif self.contender is not None and self.contender.reach[0] > _NO_NEWS:
                self.quiet, self.trying = 0, 1
            else:
                # News: what was seen before the pause is old, and the next try comes at once.
                self.acceptance.fade(0.5)
                self.contender = None
                self.trying = min(2 * self.trying, _LARGEST_TRY)
                self.quiet = self.pause
        elif accepted:
            self.pause, self.trying = SHORTEST_PAUSE, 1
        self.acceptance.add(accepted, rejected)
        self.counts.add(accepted, rejected)


@dataclass(slots=True)
class SequenceState:
    """One sequence.

    Attributes:
        sources: by name, those that could draft for it.
        allowed: what each was allowed in the step at hand, in the order in which they are asked.
        loss: plain steps that drafting has cost it, less those that it has saved.
        emitted: its tokens.
        limit: how many it could have at most.
        expected: how many it will likely have, by what was known when it last had fewer.
        passed: steps since it was last asked about, that one included.
        request_type: of its request.
        promised: tokens that its draft of the step at hand is expected to bring.
        seconds: of its steps in which no prompt was read.
        plain_seconds: that their tokens would have taken plainly, by the cost table.
    """

    sources: dict[str, SourceState] = field(default_factory=dict)
    allowed: dict[str, int] = field(default_factory=dict)
    loss: float = 0.0
    emitted: int = 0
    limit: int = 0
    expected: float = 0.0
    passed: int = 1
    request_type: str = OTHER
    promised: float = 0.0
    seconds: float = 0.0
    plain_seconds: float = 0.0

    def source(self, name: str) -> SourceState:
        """A source's part, made when it is first asked for."""
        found = self.sources.get(name)
        if found is None:
            found = self.sources[name] = SourceState()
        return found

    @property
    def may_lose(self) -> float:
        """Plain steps that drafting may cost it yet; below 0: it has cost more than it may."""
        return _LOSS_STEPS + _LOSS_SHARE * max(self.expected, self.emitted) - self.loss

    @property
    def has_lost_too_much(self) -> bool:
        """Whether drafting has cost more than it may, whatever is hoped of it."""
        return self.may_lose < 0

    def book(self, lost: float, gained: float) -> None:
        """Drafting cost so many plain steps, and brought so many tokens more than a plain step."""
        self.loss = max(self.loss + lost - gained, -_CREDIT)

    def silence(self) -> None:
        """Nothing is drafted for it now, whatever its sources promise."""
        for name in self.allowed:
            source = self.source(name)
            source.in_try = source.drafting = False
            source.quiet += self.passed
        self.allowed = dict.fromkeys(self.allowed, 0)
