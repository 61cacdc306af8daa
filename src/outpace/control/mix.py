"""Whether requests of other types come than used to: no fault of anybody's drafts."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field

_ERRORS = 2.5
_MEMORY = 60.0
_SMOOTHING = 10.0


@dataclass(slots=True)
class MixTest:
    """Bets that types come with other frequencies than at first.

    The bet on a type is its recent frequency over an upper bound of its first one, so that its
    mean is at most 1 while the frequencies lie below their bounds; it is added up as in
    `outpace.control.evidence.Bets`, with the same false-alarm rate.

    Args:
        learn: requests from which the first frequencies are taken.
    """

    learn: int
    first: Counter[str] = field(default_factory=Counter)
    recent: dict[str, float] = field(default_factory=dict)
    level: float = 0.0
    requests: int = 0

    def add(self, request_type: str) -> None:
        """Take in the type of a request."""
        self.requests += 1
        if self.requests <= self.learn:
            self.first[request_type] += 1
            return
        self.level = (self.level + 1) * self.now(request_type) / self._bound(request_type)
        fade = 1 - 1 / _MEMORY
        self.recent = {name: fade * count for name, count in self.recent.items()}
        self.recent[request_type] = self.recent.get(request_type, 0.0) + 1

    def usual(self, request_type: str) -> float:
        """A type's first frequency, a little for one that was not there."""
        return (self.first[request_type] + 0.5) / (self.learn + 0.5 * (len(self.first) + 1))

    def now(self, request_type: str) -> float:
        """A type's recent frequency, drawn to its first one while little was seen."""
        total = sum(self.recent.values()) + _SMOOTHING
        known = self.recent.get(request_type, 0.0)
        return (known + _SMOOTHING * self.usual(request_type)) / total

    def _bound(self, request_type: str) -> float:
        usual = self.usual(request_type)
        return min(1.0, usual + _ERRORS * math.sqrt(usual * (1 - usual) / self.learn))

    def changes(self) -> list[tuple[str, float, float]]:
        """Types with their first and recent frequency, the largest change first."""
        names = {*self.first, *self.recent}
        found = [(name, self.usual(name), self.now(name)) for name in names]
        return sorted(found, key=lambda one: (-abs(one[2] - one[1]), one[0]))

    def relearn(self) -> None:
        """Take the recent types for the usual ones from now on."""
        self.first.clear()
        self.recent.clear()
        self.level, self.requests = 0.0, 0
