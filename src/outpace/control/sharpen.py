"""What a drafter knows of its own guesses, turned into a better probability that they hold."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from outpace.control.estimate import clamped, logit, sigmoid

# Bins by their lower edges.
_MATCH_EDGES = (1.0, 2.0, 3.0, 4.0, 6.0, 9.0, 14.0, 22.0, 40.0)
_PROBABILITY_EDGES = (0.0, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.99)
# The prior's precision for each bin's offset: it stands still until so much was seen.
_PRECISION = 2.0
_DECAY = 0.5 ** (1 / 2000)
_FARTHEST = 5.0
_MOST_PRECISION = 1e6  # decay ends its growth below a thousand

Kind = Literal["match", "probability"]


@dataclass(frozen=True, slots=True)
class Hint:
    """What is known of a draft before it is verified, guess by guess along its first branch.

    Attributes:
        kind: ``match``: tokens that agreed before the guess, as in lookup; ``probability``: the
            drafter's own for its guess.
        values: one for each guess.
        forced: guesses that a grammar leaves no other choice than; they are sure.
    """

    kind: Kind
    values: tuple[float, ...]
    forced: tuple[bool, ...] = ()

    def is_forced(self, position: int) -> bool:
        """Whether a guess is the only one that the grammar allows."""
        return position < len(self.forced) and self.forced[position]


@dataclass(slots=True)
class _Bins:
    """A step function from a hint to an offset in log-odds, never falling."""

    edges: tuple[float, ...]
    offsets: list[float] = field(default_factory=list)
    precision: list[float] = field(default_factory=list)
    risen: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.offsets = [0.0] * len(self.edges)
        self.precision = [_PRECISION] * len(self.edges)
        self.risen = list(self.offsets)

    def place(self, value: float) -> int:
        return max(bisect.bisect_right(self.edges, value) - 1, 0)

    def learn(self, value: float, base: float, held: bool) -> None:
        """One Newton step of a logistic regression with an offset, by a Gaussian posterior."""
        at = self.place(value)
        p = sigmoid(base + self.offsets[at])
        precision = _PRECISION + (self.precision[at] - _PRECISION) * _DECAY + p * (1 - p)
        self.precision[at] = precision
        moved = self.offsets[at] + (held - p) / precision
        self.offsets[at] = min(max(moved, -_FARTHEST), _FARTHEST)
        self.risen = rising(self.offsets, self.precision)


class Sharpening:
    """Corrects the acceptance model's curve by what the drafter knows of this draft.

    For each source and kind of hint a map from the hint to an offset in log-odds is learned
    while running: logit p = logit(curve) + offset(hint). The map is a step function over fixed
    bins, each an online logistic regression (assumed-density filtering, one Newton step an
    observation), made monotonous by pooling adjacent violators: a longer match or a higher
    probability never counts against a guess. Its prior is "the hint says nothing".
    """

    def __init__(self) -> None:
        self._maps: dict[tuple[str, Kind], _Bins] = {}

    def curve(self, source: str, curve: Sequence[float], hint: Hint) -> list[float]:
        """Conditional acceptance of each guess that the hint speaks of.

        Args:
            source: who guessed.
            curve: conditional acceptance by place without the hint.
            hint: of this draft.
        """
        bins = self._bins(source, hint.kind)
        result = []
        for position, (p, value) in enumerate(zip(curve, hint.values, strict=False)):
            if hint.is_forced(position):
                result.append(1.0)
            else:
                result.append(clamped(sigmoid(logit(p) + bins.risen[bins.place(value)])))
        return result

    def learn(
        self, source: str, curve: Sequence[float], hint: Hint, accepted: int, rejected: bool
    ) -> None:
        """A draft was verified; guesses behind the first wrong one say nothing."""
        bins = self._bins(source, hint.kind)
        pairs = zip(curve, hint.values, strict=False)
        for position, (p, value) in enumerate(pairs):
            if position >= accepted + rejected:
                break
            if not hint.is_forced(position):
                bins.learn(value, logit(p), position < accepted)

    def offsets(self, source: str, kind: Kind) -> list[tuple[float, float]]:
        """The learned map: lower edges of the bins, and their offsets in log-odds."""
        bins = self._bins(source, kind)
        return list(zip(bins.edges, bins.risen, strict=True))

    def as_plain(self) -> list[dict[str, object]]:
        """Plain values for JSON."""
        return [
            {"source": source, "kind": kind, "offsets": one.offsets, "precision": one.precision}
            for (source, kind), one in self._maps.items()
        ]

    def restore(self, plain: Sequence[dict[str, object]]) -> None:
        """Take over what `as_plain` gave.

        Raises:
            ValueError: it is something else.
        """
        for entry in plain:
            kind = entry["kind"]
            if kind not in ("match", "probability"):
                raise ValueError(f"no kind of hint: {kind}")
            bins = self._bins(str(entry["source"]), "match" if kind == "match" else "probability")
            offsets, precision = _numbers(entry["offsets"]), _numbers(entry["precision"])
            if not len(offsets) == len(precision) == len(bins.edges):
                raise ValueError("another number of bins")
            if not all(-_FARTHEST <= one <= _FARTHEST for one in offsets):
                raise ValueError(f"an offset that is not from -{_FARTHEST:g} to {_FARTHEST:g}")
            if not all(_PRECISION / 2 <= one <= _MOST_PRECISION for one in precision):
                raise ValueError("a precision that cannot be")
            bins.offsets, bins.precision = offsets, precision
            bins.risen = rising(offsets, precision)

    def _bins(self, source: str, kind: Kind) -> _Bins:
        edges = _MATCH_EDGES if kind == "match" else _PROBABILITY_EDGES
        return self._maps.setdefault((source, kind), _Bins(edges))


def _numbers(values: object) -> list[float]:
    if not isinstance(values, list):
        raise ValueError(f"not a list of numbers: {values!r}")
    return [float(one) for one in values]


def rising(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The closest sequence that never falls, by weighted squares.

    Pool adjacent violators (Ayer et al. 1955; Barlow et al. 1972).
    """
    pools: list[tuple[float, float, int]] = []  # mean, weight, members
    for value, weight in zip(values, weights, strict=True):
        mean, total, members = value, weight, 1
        while pools and pools[-1][0] > mean:
            before, its_weight, its_members = pools.pop()
            mean = (mean * total + before * its_weight) / (total + its_weight)
            total += its_weight
            members += its_members
        pools.append((mean, total, members))
    return [mean for mean, _, members in pools for _ in range(members)]
