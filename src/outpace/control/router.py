"""Which drafter a request gets, at its start and again when the evidence changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from outpace.config import check_number
from outpace.control.gain import PLAIN, Gain
from outpace.control.policy import DrafterPolicy, TypePolicy

NONE = "none"
# Changing the drafter of a request must promise so much more than going on.
_TO_CHANGE = 1.05
# Where exploring is possible at all it is done this often, so that decisions stay comparable.
_EXPLORING = 0.25
# An alternative is worth exploring if the upper end of its interval is so much above the best.
_PLAUSIBLE = 1.02


@dataclass(frozen=True, slots=True)
class Options:
    """What a request could have.

    Attributes:
        request_type: of the request.
        gains: predicted, by the name of each drafter that can be had; plain decoding may be left
            out.
        missing: drafters that cannot be had, and why.
        current: the drafter that it has; None at its start.
        seconds: that exploring would take, roughly.
    """

    request_type: str
    gains: Mapping[str, Gain]
    missing: Mapping[str, str] = field(default_factory=dict)
    current: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Decision:
    """A drafter, why, and with which probability each could have been chosen.

    Attributes:
        drafter: its name.
        reason: in words.
        explored: whether it was chosen to learn rather than to gain.
        propensities: probability of each drafter that could have been chosen; sums to 1.
        gains: predicted, of the same drafters.
    """

    drafter: str
    reason: str
    explored: bool
    propensities: Mapping[str, float]
    gains: Mapping[str, float]


class Router:
    """Chooses by predicted gain, within a policy, and explores within a budget.

    *Exploiting*: the drafter with the largest predicted gain; one that is running is kept unless
    another promises 5 % more. *Exploring*: a drafter whose interval reaches above the best mean
    is tried for a stretch, now and then, as long as all such stretches together took less than
    the stated share of the time. So exploring ends by itself where the evidence suffices.
    *Falling back*: a drafter that cannot be had is replaced by the next of the policy's order
    that can, then by gain, and at last by plain decoding.

    Args:
        policy: what is pinned, forbidden and preferred.
        exploration: share of the time that exploring may take, from 0 to 1.
        seed: of its choices.
    """

    def __init__(
        self, policy: DrafterPolicy | None = None, exploration: float = 0.02, seed: int = 0
    ) -> None:
        wanted = "must be a share of the time from 0 to 1"
        check_number("exploration", exploration, wanted, 0, 1)
        self.policy = policy or DrafterPolicy()
        self.exploration = exploration
        self.seconds = 0.0
        self.explored_seconds = 0.0
        self._random = Random(seed)

    def spent(self, seconds: float, explored: bool) -> None:
        """Book time of a request's steps."""
        self.seconds += seconds
        if explored:
            self.explored_seconds += seconds

    @property
    def over_budget(self) -> bool:
        """Whether exploring has taken all it may: whoever explores should stop."""
        return self.explored_seconds >= self.exploration * self.seconds

    def decide(self, options: Options) -> Decision:
        """Choose a drafter."""
        policy = self.policy.of(options.request_type)
        gains = {name: gain for name, gain in options.gains.items() if not policy.forbids(name)}
        gains.setdefault(NONE, PLAIN)
        if policy.pin is not None:
            return self._pinned(policy, options, gains)
        best = self._best(policy, options, gains)
        others = self._worth_exploring(best, options, gains)
        propensities = {best: 1.0}
        if others:
            share = _EXPLORING / len(others)
            propensities = {best: 1 - _EXPLORING, **dict.fromkeys(others, share)}
        chosen = best
        if others and self._random.random() < _EXPLORING:
            chosen = others[self._random.randrange(len(others))]
        explored = chosen != best
        reason = (
            _explored_in_words(chosen, best, gains)
            if explored
            else _best_in_words(best, options, gains)
        )
        return Decision(chosen, reason, explored, propensities, _means(gains))

    def _pinned(self, policy: TypePolicy, options: Options, gains: Mapping[str, Gain]) -> Decision:
        pin = policy.pin or NONE
        chosen, reason = pin, f"the policy pins {pin} for {options.request_type}"
        if pin not in gains:
            why = options.missing.get(pin, "it is not loaded")
            chain = [name for name in policy.order if name in gains]
            chosen = chain[0] if chain else max(gains, key=lambda name: gains[name].mean)
            reason = f"the policy pins {pin}, which cannot be had: {why}; {chosen} instead"
        return Decision(chosen, reason, False, {chosen: 1.0}, _means(gains))

    def _best(self, policy: TypePolicy, options: Options, gains: Mapping[str, Gain]) -> str:
        """The largest gain; among equals the first of the order, and plain decoding last."""
        places = {name: place for place, name in enumerate(policy.order)}

        def rank(name: str) -> tuple[float, int, bool]:
            return gains[name].mean, -places.get(name, len(places)), name != NONE

        best = max(gains, key=rank)
        current = options.current
        if current is None or current not in gains:
            return best
        return best if gains[best].mean >= _TO_CHANGE * gains[current].mean else current

    def _worth_exploring(self, best: str, options: Options, gains: Mapping[str, Gain]) -> list[str]:
        left = self.exploration * self.seconds - self.explored_seconds
        if left <= options.seconds:
            return []
        least = _PLAUSIBLE * gains[best].mean
        return sorted(n for n, gain in gains.items() if n != best and gain.high > least)


def _means(gains: Mapping[str, Gain]) -> dict[str, float]:
    return {name: gain.mean for name, gain in gains.items()}


def _best_in_words(best: str, options: Options, gains: Mapping[str, Gain]) -> str:
    gain = gains[best]
    what = f"{options.request_type}: {best} is predicted to be {_times(gain)}"
    if best == NONE:
        what = f"{options.request_type}: no drafter is predicted to pay"
    rivals = [n for n in gains if n not in (best, NONE)]
    if rivals:
        rival = max(rivals, key=lambda name: gains[name].mean)
        what += f", {rival} {_times(gains[rival])}"
    if options.missing:
        what += "; cannot be had: " + ", ".join(
            f"{n} ({why})" for n, why in options.missing.items()
        )
    return what


def _explored_in_words(chosen: str, best: str, gains: Mapping[str, Gain]) -> str:
    return (
        f"exploring {chosen}, which may be {_times(gains[chosen])}, "
        f"where {best} is predicted to be {_times(gains[best])}"
    )


def _times(gain: Gain) -> str:
    return f"{gain.mean:.2f} times as fast as plain ({gain.low:.2f} to {gain.high:.2f})"
