"""What is known of how often guesses are right, by their place in the draft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

# Before anything is known: three guesses of five are right, worth so many observations.
_PRIOR, _PRIOR_STRENGTH = 0.6, 4.0
# How many observations a drafter's history is worth against a sequence's own.
_SEQUENCE_STRENGTH = 6.0
_POSITION_STRENGTH = 8.0
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


def drafter_curve(drafter: Acceptance, length: int) -> tuple[float, list[float]]:
    """A drafter's overall alpha, and its conditional acceptance at each of so many positions.

    Each position leans on the one before it, the first on the overall alpha: a place that was
    seldom reached is taken to be like the last one that was.
    """
    overall = drafter.alpha(_PRIOR, _PRIOR_STRENGTH)
    curve, previous = [], overall
    for position in range(length):
        previous = drafter.at(position, previous, _POSITION_STRENGTH)
        curve.append(previous)
    return overall, curve


def sequence_curve(own: Acceptance, drafter: Acceptance, length: int) -> list[float]:
    """The conditional acceptance to be expected of a sequence at each of so many positions.

    It is the drafter's, moved by how much this sequence's overall alpha differs from the
    drafter's, and then by what was seen at each place.
    """
    overall, curve = drafter_curve(drafter, length)
    shift = own.alpha(overall, _SEQUENCE_STRENGTH) - overall
    result = []
    for position, usual in enumerate(curve):
        here = min(max(usual + shift, _LEAST), _MOST)
        here = own.at(position, here, _POSITION_STRENGTH)
        shift = here - usual
        result.append(here)
    return result


def found_share(own: Acceptance, drafter: Acceptance) -> float:
    """How often this drafter has a draft for this sequence."""
    usual = drafter.found_share(1.0, 1.0)
    return own.found_share(usual, _SEQUENCE_STRENGTH)


def reach(curve: Sequence[float]) -> list[float]:
    """From conditional acceptance to the probability that each guess is emitted."""
    product, result = 1.0, []
    for one in curve:
        product *= one
        result.append(product)
    return result
