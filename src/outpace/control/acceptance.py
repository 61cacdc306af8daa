"""What is known of how often guesses are right, by their place in the draft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

# How many observations the history of a type and source is worth against a sequence's own.
_SEQUENCE_STRENGTH = 8.0
# What was seen at one place has already moved all places, so it counts little once more.
_POSITION_STRENGTH = 32.0
_LEAST, _MOST = 0.01, 0.99


@dataclass(slots=True)
class Acceptance:
    """Decayed counts of tried and accepted guesses, by position; and of drafts that were found.

    A guess is *tried* when all before it were accepted: the counts are of the conditional
    acceptance. ``asked`` and ``found`` count the steps in which a draft was wanted, and made.

    Args:
        decay: what a count is worth after the next observation.
    """

    decay: float
    accepted: list[float] = field(default_factory=list)
    tried: list[float] = field(default_factory=list)
    asked: float = 0.0
    found: float = 0.0

    def add(self, accepted: int, rejected: bool) -> None:
        """A draft was verified: so many guesses were right, and then one was wrong or none."""
        self.fade(self.decay)
        reached = accepted + rejected
        missing = reached - len(self.tried)
        if missing > 0:
            self.tried += [0.0] * missing
            self.accepted += [0.0] * missing
        for position in range(reached):
            self.tried[position] += 1
        for position in range(accepted):
            self.accepted[position] += 1

    def ask(self, found: bool) -> None:
        """A draft was wanted; count whether there was one."""
        self.asked = self.asked * self.decay + 1
        self.found = self.found * self.decay + found

    def fade(self, factor: float) -> None:
        """Let what was seen count less."""
        self.tried = [one * factor for one in self.tried]
        self.accepted = [one * factor for one in self.accepted]

    @property
    def trials(self) -> float:
        """All tries together."""
        return sum(self.tried)

    def alpha(self, prior: float, strength: float) -> float:
        """Posterior mean over all positions, under a Beta prior of that strength."""
        return (sum(self.accepted) + prior * strength) / (self.trials + strength)

    def found_share(self, prior: float, strength: float) -> float:
        """Posterior mean of the share of wanted drafts that are made."""
        return (self.found + prior * strength) / (self.asked + strength)

    def at(self, position: int, prior: float, strength: float) -> float:
        """Posterior mean at a position, counted from 0."""
        if position >= len(self.tried):
            return prior
        return (self.accepted[position] + prior * strength) / (self.tried[position] + strength)


def leaning_on(
    own: Acceptance, usual: Sequence[float], strength: float = _SEQUENCE_STRENGTH
) -> list[float]:
    """The conditional acceptance to be expected of a sequence at each place.

    It is the usual one, moved by how much this sequence's overall acceptance differs from what
    was usual at the places that it tried, and then by what was seen at each place.

    Args:
        own: the sequence's counts.
        usual: of its type and source, by place.
        strength: how many observations of its own these are worth.
    """
    seen = sum(t * p for t, p in zip(own.tried, usual, strict=False))
    trials = sum(own.tried[: len(usual)])
    expected = seen / trials if trials else 0.0
    shift = own.alpha(expected, strength) - expected if trials else 0.0
    result = []
    for position, there in enumerate(usual):
        here = min(max(there + shift, _LEAST), _MOST)
        here = own.at(position, here, _POSITION_STRENGTH)
        shift = here - there
        result.append(here)
    return result


def found_share(own: Acceptance, usual: float) -> float:
    """How often there is a draft for this sequence, leaning on what is usual."""
    return own.found_share(usual, _SEQUENCE_STRENGTH)


def reach(curve: Sequence[float]) -> list[float]:
    """From conditional acceptance to the probability that each guess is emitted."""
    product, result = 1.0, []
    for one in curve:
        product *= one
        result.append(product)
    return result
