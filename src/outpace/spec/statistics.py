"""Counting what speculation achieves, each figure under its own name."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from outpace.request import DrafterChoice, Speculation
from outpace.spec.pace import Pace

if TYPE_CHECKING:
    from outpace.spec.tree import DraftTree


def wilson_interval(successes: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """Interval for a proportion (Wilson 1927), 95 % by default; good for few trials too."""
    if trials == 0:
        return 0.0, 1.0
    rate = successes / trials
    centre = rate + z * z / (2 * trials)
    spread = z * math.sqrt(rate * (1 - rate) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


@dataclass(slots=True)
class SpeculationCounts:
    """Running counts of one sequence; every figure is derived from emitted tokens.

    ``asked`` counts the draft tokens that were allowed, ``rejected_at`` the draft positions at
    which the first guess was wrong.
    """

    emitted: int = 0
    target_steps: int = 0
    drafted: int = 0
    accepted: int = 0
    rejections: int = 0
    drafted_at: Counter[int] = field(default_factory=Counter)
    accepted_at: Counter[int] = field(default_factory=Counter)
    rejected_at: Counter[int] = field(default_factory=Counter)
    asked: int = 0
    pace: Pace = field(default_factory=Pace)
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    rest_seconds: float = 0.0
    off_reasons: Counter[str] = field(default_factory=Counter)
    drafted_by: Counter[str] = field(default_factory=Counter)
    accepted_by: Counter[str] = field(default_factory=Counter)

    def record(
        self,
        tree: DraftTree,
        num_emitted: int,
        num_accepted: int,
        rejected: bool,
        drafter: str = "",
    ) -> None:
        """Count one target step.

        Args:
            tree: the draft that was verified; may be empty.
            num_emitted: tokens that really left, after every cut.
            num_accepted: how many of them were draft tokens.
            rejected: whether a draft token lost against the target's choice. A walk that was
                cut by the end of the sequence rejected nothing.
            drafter: who is taken for the source of a tree that names none.
        """
        self.target_steps += 1
        self.emitted += num_emitted
        self.drafted += len(tree)
        self.accepted += num_accepted
        self.rejections += rejected
        self.drafted_at.update(set(tree.depths))
        self.accepted_at.update(range(1, num_accepted + 1))
        if rejected:
            self.rejected_at[num_accepted + 1] += 1
        if len(tree):
            source = tree.source or drafter
            self.drafted_by[source] += len(tree)
            self.accepted_by[source] += num_accepted

    def since(self, before: SpeculationCounts) -> SpeculationCounts:
        """What was counted after ``before``, which was a `copy` of this; without times."""
        done = SpeculationCounts()
        for name in _NUMBERS:
            setattr(done, name, getattr(self, name) - getattr(before, name))
        for name in _COUNTERS:
            setattr(done, name, getattr(self, name) - getattr(before, name))
        return done

    def add(self, other: SpeculationCounts) -> None:
        """Count what another counted; times are left as they are."""
        for name in (*_NUMBERS, *_COUNTERS):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def copy(self) -> SpeculationCounts:
        """The counts as they are now, to be held against later ones; without times."""
        return self.since(SpeculationCounts())

    @property
    def is_empty(self) -> bool:
        """Whether nothing was counted."""
        return not any(getattr(self, name) for name in (*_NUMBERS, *_COUNTERS))

    def summary(
        self,
        drafter: str,
        verification: str,
        guarantee: str,
        choices: tuple[DrafterChoice, ...] = (),
    ) -> Speculation:
        """The record that goes to the user."""
        positions = range(1, max(self.drafted_at, default=0) + 1)
        trials = self.accepted + self.rejections
        reasons = self.off_reasons.most_common(3)
        reason = "; ".join(f"{text} ({n} step{'s' * (n != 1)})" for text, n in reasons)
        return Speculation(
            drafter=drafter,
            verification=verification,
            guarantee=guarantee,
            target_steps=self.target_steps,
            drafted=self.drafted,
            accepted=self.accepted,
            rejections=self.rejections,
            drafted_per_position=tuple(self.drafted_at[i] for i in positions),
            accepted_per_position=tuple(self.accepted_at[i] for i in positions),
            acceptance_length=self.emitted / self.target_steps if self.target_steps else 0.0,
            draft_acceptance_rate=self.accepted / self.drafted if self.drafted else None,
            alpha=self.accepted / trials if trials else None,
            alpha_interval=wilson_interval(self.accepted, trials) if trials else None,
            draft_seconds=self.draft_seconds,
            verify_seconds=self.verify_seconds,
            rest_seconds=self.rest_seconds,
            off_reason=reason,
            by_source={
                name or drafter: (drafted, self.accepted_by[name])
                for name, drafted in self.drafted_by.items()
                if drafted
            },
            choices=choices,
        )


_NUMBERS = ("emitted", "target_steps", "drafted", "accepted", "rejections", "asked")
_COUNTERS = (
    "drafted_at", "accepted_at", "rejected_at", "off_reasons", "drafted_by", "accepted_by",
)  # fmt: skip
