"""Automatic budgets for drafters that a router chooses, request by request."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from outpace.control.aftermath import Aftermath
from outpace.control.automatic import AutomaticController
from outpace.control.calibration import Calibration
from outpace.control.choice import Costs, Others
from outpace.control.controller import Budget, Candidate, Hold, StepRecord
from outpace.control.cost import CostTable
from outpace.control.counterfactual import Logged
from outpace.control.estimate import Z95
from outpace.control.gain import Gain, Load, alone, in_a_row
from outpace.control.router import Decision, Options, Router
from outpace.control.typed_acceptance import TypedAcceptance

# Tokens after which a request's drafter is looked at again, and after which exploring ends.
REVIEW_TOKENS = 32
_MOST_LOGGED = 20_000


@dataclass(slots=True)
class _Route:
    """One request's way, and what came of it since the last decision.

    Attributes:
        request_type: of the request.
        decision: the last one.
        emitted: tokens since then.
        seconds: steps' time since then.
        plain_seconds: that these tokens would have taken plainly.
    """

    request_type: str
    decision: Decision
    emitted: int = 0
    seconds: float = 0.0
    plain_seconds: float = 0.0


class RoutedController:
    """Lets a router choose each request's drafter, and an automatic controller how much.

    A request's drafter is chosen in its first step, and looked at again after every
    ``REVIEW_TOKENS`` tokens, when its own acceptance is known better; a stretch that explores
    ends there, or as soon as exploring has taken its share of the time. Requests whose client
    chose the drafter keep it. Every stretch is logged with the probabilities of its decision and
    with how much faster than plain it was by the cost table, which is what `counterfactual.value`
    needs.

    Args:
        inner: decides how much to draft, and knows acceptance and costs.
        router: chooses.
        sources: by drafter, those that it asks, in their order.

    Attributes:
        calibration: predicted against observed acceptance, so far.
        log: the last stretches, for `counterfactual.value`.
    """

    def __init__(
        self, inner: AutomaticController, router: Router, sources: Mapping[str, tuple[str, ...]]
    ) -> None:
        self.inner = inner
        self.router = router
        self.calibration = Calibration()
        self.log: deque[Logged] = deque(maxlen=_MOST_LOGGED)
        self._sources = sources
        self._routes: dict[int, _Route] = {}
        self._rows_each = 1.0
        self._explores = False

    @property
    def costs(self) -> Costs:
        """What is known of step times."""
        return self.inner.costs

    @property
    def cost(self) -> CostTable:
        """Seconds of a target step."""
        return self.inner.cost

    @property
    def history(self) -> TypedAcceptance:
        """How often guesses are right."""
        return self.inner.history

    @property
    def aftermath(self) -> Aftermath:
        """Alarms, and how ended requests fared."""
        return self.inner.aftermath

    @property
    def hold(self) -> Hold:
        """See `Controller.hold`; whoever explores stops as soon as that has taken its share."""
        return Hold() if self._explores else self.inner.hold

    def decision(self, seq_id: int) -> Decision | None:
        """The last decision about a running request; None if its client chose."""
        route = self._routes.get(seq_id)
        return route.decision if route else None

    def budgets(self, candidates: Sequence[Candidate]) -> list[Budget]:
        """See `Controller.budgets`."""
        routed = [self._routed(one, len(candidates) - 1) for one in candidates]
        budgets = self.inner.budgets([candidate for candidate, _ in routed])
        routes = [self._routes.get(one.seq_id) for one in candidates]
        self._explores = any(route is not None and route.decision.explored for route in routes)
        return [
            budget if now is before and not why else replace(budget, drafter=now.drafter, why=why)
            for budget, (now, why), before in zip(budgets, routed, candidates, strict=True)
        ]

    def _routed(self, candidate: Candidate, others: int) -> tuple[Candidate, str]:
        """The candidate with the drafter that it gets, and why, if that was decided just now."""
        if not candidate.choices:
            return candidate, ""
        why = ""
        route = self._routes.get(candidate.seq_id)
        if route is None or self._is_due(route):
            route = self._decide(candidate, others, route)
            why = route.decision.reason
        drafter = route.decision.drafter
        if drafter == candidate.drafter:
            return candidate, why
        sources = self._sources.get(drafter, ())
        return replace(candidate, drafter=drafter, sources=sources, idle=False), why

    def _is_due(self, route: _Route) -> bool:
        explored_enough = route.decision.explored and self.router.over_budget
        return route.emitted >= REVIEW_TOKENS or (explored_enough and route.emitted > 0)

    def _decide(self, candidate: Candidate, others: int, before: _Route | None) -> _Route:
        rows = round(self._rows_each * others)
        more = self.inner.expected_more(candidate)
        beside = Others(max(rows, others), others)
        load = Load(candidate.context, candidate.room, beside, more)
        costs = self.inner.costs
        gains = self._gains(candidate, load)
        missing = {name: "it is not loaded" for name in candidate.choices if name not in gains}
        current = None
        if before is not None:
            self._close(candidate.seq_id, before)
            # After exploring, the drafter that was tried has no claim to go on.
            current = None if before.decision.explored else before.decision.drafter
        step = costs.step(1 + others)
        seconds = REVIEW_TOKENS * step / (1 + others)
        decision = self.router.decide(
            Options(candidate.request_type, gains, missing, current, seconds)
        )
        route = _Route(candidate.request_type, decision)
        self._routes[candidate.seq_id] = route
        return route

    def _gains(self, candidate: Candidate, load: Load) -> dict[str, Gain]:
        """What each drafter promises; what they are made of is looked at once."""
        known = {name: self._sources[name] for name in candidate.choices if name in self._sources}
        sources = list(dict.fromkeys(one for some in known.values() for one in some))
        prospects = self.inner.prospects(candidate, sources)
        by_source = {
            prospect.source: (prospect, alone(prospect, self.costs, load)) for prospect in prospects
        }
        # Among equals the first is taken. One that asks more sources loses nothing by it, and the
        # sequences of a step that share a drafter share its passes.
        order = sorted(known, key=lambda name: -len(known[name]))
        return {name: in_a_row([by_source[one] for one in known[name]]) for name in order}

    def record(self, step: StepRecord) -> None:
        """See `Controller.record`."""
        self._calibrate(step)
        self.inner.record(step)
        seconds = step.verify_seconds + step.draft_seconds + step.rest_seconds
        if step.rows is not None and step.outcomes:
            self._rows_each = step.rows / len(step.outcomes)
        for outcome in step.outcomes:
            route = self._routes.get(outcome.seq_id)
            if route is None:
                continue
            route.emitted += outcome.emitted
            self.router.spent(seconds / len(step.outcomes), route.decision.explored)
            if step.rows is not None:
                route.seconds += seconds
                route.plain_seconds += self.inner.plain_seconds * outcome.emitted

    def _calibrate(self, step: StepRecord) -> None:
        """Book what was predicted of the step's guesses, before anything is learned from them."""
        for outcome in step.outcomes:
            route = self._routes.get(outcome.seq_id) if outcome.drafted else None
            if route is None:
                continue
            source = outcome.source or outcome.drafter
            curve = self.history.curve(route.request_type, source, outcome.drafted)
            self.calibration.add(
                route.request_type,
                source,
                [one.mean for one in curve],
                outcome.accepted,
                outcome.rejected,
                [(one.high - one.low) / (2 * Z95) for one in curve],
            )

    def forget(self, seq_id: int) -> None:
        """See `Controller.forget`."""
        route = self._routes.pop(seq_id, None)
        if route is not None:
            self._close(seq_id, route)
        self.inner.forget(seq_id)

    def _close(self, seq_id: int, route: _Route) -> None:
        """Log a stretch that ended."""
        if route.seconds > 0 and route.plain_seconds > 0:
            decision = route.decision
            outcome = route.plain_seconds / route.seconds
            self.log.append(
                Logged(seq_id, route.request_type, decision.drafter, decision.propensities, outcome)
            )
