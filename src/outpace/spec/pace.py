"""How fast the tokens of a sequence came: times by size, small enough to keep for each request."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

_PER_DOUBLING = 8


def bucket(seconds: float) -> int:
    """The number of the bucket that a time falls into; eight of them to each doubling."""
    return math.floor(_PER_DOUBLING * math.log2(max(seconds, 1e-9)))


def middle(number: int) -> float:
    """The time in the middle of a bucket, in seconds; no time in it is more than 4.5 % off."""
    return float(2.0 ** ((number + 0.5) / _PER_DOUBLING))


def quantile(buckets: Mapping[int, int], share: float) -> float | None:
    """The time in seconds that this share of all times does not exceed; None if there are none."""
    left = share * sum(buckets.values())
    for number in sorted(buckets):
        left -= buckets[number]
        if left <= 1e-9:
            return middle(number)
    return None


@dataclass(slots=True)
class Pace:
    """Step times of one sequence.

    Attributes:
        steps: how many steps that yielded tokens fell into each bucket of time.
        tokens: the same for tokens, each with its share of its step's time.
        clean_seconds, clean_steps, clean_tokens: of the steps in which no prompt was read, so
            that their times can be held against plain decoding.
        sharing: sequences in the clean steps, added up.
    """

    steps: Counter[int] = field(default_factory=Counter)
    tokens: Counter[int] = field(default_factory=Counter)
    clean_seconds: float = 0.0
    clean_steps: int = 0
    clean_tokens: int = 0
    sharing: int = 0

    def add(self, seconds: float, emitted: int, sharing: int, clean: bool) -> None:
        """Count a step that took so long, for so many sequences, and yielded tokens for this one.

        Steps that yield none read a prompt: they are no pace.
        """
        if emitted == 0:
            return
        self.steps[bucket(seconds)] += 1
        self.tokens[bucket(seconds / emitted)] += emitted
        if clean:
            self.clean_seconds += seconds
            self.clean_steps += 1
            self.clean_tokens += emitted
            self.sharing += sharing
