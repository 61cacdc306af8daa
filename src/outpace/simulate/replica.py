"""One replica: requests come, steps are made by a controller's budgets, a clock is moved on."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from outpace.control.controller import Budget, Candidate, Controller, Outcome, StepRecord
from outpace.control.draft_cost import Wanted
from outpace.control.pacing import Pacing
from outpace.control.tail import RequestTime
from outpace.simulate.machine import Machine
from outpace.simulate.workload import Invented


@dataclass(frozen=True, slots=True)
class Limits:
    """What a replica takes: sequences at once, and tokens of prompts in a step."""

    sequences: int = 32
    batched_tokens: int = 512


@dataclass(slots=True)
class Served:
    """A request on its way, and what became of it.

    Attributes:
        request: itself.
        drafter: that it has.
        arrived, began, ended: seconds: it came, its first token came, its last.
        computed: tokens of the prompt that are in the cache.
        done: tokens of the answer.
        deliveries: tokens and seconds of each of its decoding steps.
        plain_seconds: that its decoding would have taken plainly beside as many others.
        drafted, accepted: guesses.
        seen: by source, tokens that it has computed.
    """

    request: Invented
    drafter: str
    arrived: float
    began: float = 0.0
    ended: float = 0.0
    computed: int = 0
    done: int = 0
    deliveries: list[tuple[int, float]] = field(default_factory=list)
    plain_seconds: float = 0.0
    drafted: int = 0
    accepted: int = 0
    seen: dict[str, int] = field(default_factory=dict)

    @property
    def context(self) -> int:
        """Known tokens."""
        return self.request.prompt + self.done

    @property
    def seconds(self) -> float:
        """Of decoding."""
        return sum(seconds for _, seconds in self.deliveries)

    @property
    def time(self) -> RequestTime:
        """Decoding against plain."""
        return RequestTime(self.seconds, self.plain_seconds, self.drafted > 0)


@dataclass(frozen=True, slots=True)
class StepSeen:
    """One step as it is reported: when it ended, how many sequences decoded, drafts, tokens."""

    at: float
    seconds: float
    sequences: int
    asked: int
    emitted: int


class Replica:
    """Serves requests one step at a time, as the engine does, with invented outcomes.

    Args:
        machine: what steps really cost.
        controller: the same code that serves real requests.
        sources: by drafter, those that it asks, in order.
        drafter: that a request starts with.
        limits: of a step.
        noise: standard deviation of step times, as a share; they only ever get longer.
        seed: of the noise.
    """

    def __init__(
        self,
        machine: Machine,
        controller: Controller,
        sources: Mapping[str, tuple[str, ...]],
        drafter: str,
        limits: Limits,
        noise: float = 0.02,
        seed: int = 0,
    ) -> None:
        self.now = 0.0
        self.busy = 0.0
        self.running: list[Served] = []
        self._machine = machine
        self._pacing = Pacing(controller)
        self._sources = sources
        self._drafter = drafter
        self._limits = limits
        self._noise = noise
        self._random = np.random.default_rng(seed)

    def serve(self, requests: Iterable[Invented], until: float) -> Iterator[Served | StepSeen]:
        """Serve requests in the order in which they are due; yields what ends, and every step.

        Stops when no request is left, or at ``until`` seconds.
        """
        coming = iter(requests)
        waiting: deque[Invented] = deque()
        following = next(coming, None)
        while self.now < until:
            while following is not None and following.due <= self.now:
                waiting.append(following)
                following = next(coming, None)
            while waiting and len(self.running) < self._limits.sequences:
                self.admit(waiting.popleft())
            if not self.running:
                if following is None:
                    return
                self.now = max(self.now, following.due)
                continue
            yield from self.step()

    def admit(self, request: Invented) -> None:
        """Take in a request now."""
        self.running.append(Served(request, self._drafter, max(request.due, 0.0)))

    def step(self) -> list[Served | StepSeen]:
        """Make a step; returns those that ended, and the step."""
        decoding = [one for one in self.running if one.computed >= one.request.prompt]
        pieces = self._pieces()
        budgets = self._budgets(decoding)
        outcomes: list[Outcome] = []
        drafts: dict[str, list[Wanted]] = {}
        attended: list[tuple[int, int]] = []
        for one, budget in zip(decoding, budgets, strict=True):
            outcome, wanted = self._outcome(one, budget)
            outcomes.append(outcome)
            attended.append((1 + outcome.drafted, one.context))
            for source, want in wanted:
                drafts.setdefault(source, []).append(want)
        attended += [(tokens, one.computed) for one, tokens in pieces]
        rows = sum(own for own, _ in attended)
        machine = self._machine
        longer = 1 + self._noise * np.abs(self._random.standard_normal(3))
        verify = machine.step_seconds(rows, attended) * float(longer[0])
        drafting = {
            source: seconds * float(longer[1])
            for source, seconds in machine.drafting(drafts).items()
        }
        rest = machine.host_seconds(rows) * float(longer[2])
        seconds = verify + sum(drafting.values()) + rest
        self.now += seconds
        self.busy += seconds
        plain = self._plain_seconds(decoding, pieces, float(longer[0]), float(longer[2]))
        for one, outcome in zip(decoding, outcomes, strict=True):
            one.done += outcome.emitted
            one.deliveries.append((outcome.emitted, seconds))
            one.plain_seconds += plain * outcome.emitted
        known = None if pieces else rows
        self._pacing.record(StepRecord(known, verify, drafting, tuple(outcomes), rest))
        for one, tokens in pieces:
            self._compute(one, tokens)
        emitted = sum(outcome.emitted for outcome in outcomes)
        asked = sum(outcome.drafted > 0 for outcome in outcomes)
        return [*self._ended(), StepSeen(self.now, seconds, len(decoding), asked, emitted)]

    def _pieces(self) -> list[tuple[Served, int]]:
        """Prompts in the order of their arrival, as much of them as a step takes."""
        left = self._limits.batched_tokens
        pieces = []
        for one in self.running:
            missing = one.request.prompt - one.computed
            if missing > 0 and left > 0:
                pieces.append((one, min(missing, left)))
                left -= min(missing, left)
        return pieces

    def _compute(self, one: Served, tokens: int) -> None:
        """A prompt's piece; with the last one the first token comes."""
        one.computed += tokens
        if one.computed >= one.request.prompt:
            one.began = self.now
            one.done = 1

    def _budgets(self, decoding: list[Served]) -> list[Budget]:
        whose = [one.request.number for one in decoding]
        budgets, _ = self._pacing.budgets(
            whose,
            [_room(one) for one in decoding],
            lambda: [self._candidate(one) for one in decoding],
        )
        for one, budget in zip(decoding, budgets, strict=True):
            if budget.drafter:
                one.drafter = budget.drafter
        return budgets

    def _candidate(self, one: Served) -> Candidate:
        return Candidate(
            one.request.number,
            one.drafter,
            _room(one),
            None,
            one.context,
            self._sources[one.drafter],
            request_type=one.request.profile.name,
            choices=tuple(self._sources),
        )

    def _outcome(self, one: Served, budget: Budget) -> tuple[Outcome, list[tuple[str, Wanted]]]:
        """Ask the sources in order; the first that has a draft is verified."""
        wanted = []
        made, held, source = 0, 0, ""
        for name in self._sources[one.drafter]:
            allowed = budget.by_source.get(name, budget.tokens)
            most = min(allowed, _room(one))
            if most < 1:
                continue
            behind = max(1, one.context - one.seen.get(name, 0))
            found = one.request.finds(name, one.done)
            if found or name in self._machine.drafts:
                wanted.append((name, Wanted(most, behind, one.context)))
            if found:
                made, source = most, name
                held = one.request.holds(name, one.done, most)
                one.seen[name] = one.context + min(made - 1, held)
                break
        one.drafted += made
        one.accepted += held
        outcome = Outcome(
            one.request.number,
            one.drafter,
            drafted=made,
            accepted=held,
            rejected=held < made,
            asked=budget.tokens,
            emitted=held + 1,
            context=one.context,
            source=source,
        )
        return outcome, wanted

    def _plain_seconds(
        self,
        decoding: list[Served],
        pieces: list[tuple[Served, int]],
        longer_step: float,
        longer_host: float,
    ) -> float:
        """What this step would have taken had nobody drafted, with the same noise.

        So plain decoding is 1.00 times as fast as plain decoding, and drafts are not charged with
        the noise.
        """
        attended = [(1, one.context) for one in decoding]
        attended += [(tokens, one.computed) for one, tokens in pieces]
        rows = sum(own for own, _ in attended)
        step, host = self._machine.step_seconds(rows, attended), self._machine.host_seconds(rows)
        return step * longer_step + host * longer_host

    def _ended(self) -> list[Served]:
        ended = [one for one in self.running if one.done >= one.request.output]
        for one in ended:
            one.ended = self.now
            self._pacing.forget(one.request.number)
        if ended:
            self.running = [one for one in self.running if one.done < one.request.output]
        return ended


def _room(one: Served) -> int:
    """Draft tokens that could be emitted."""
    return one.request.output - one.done - 1
