"""How sure a drafter without probabilities can be: by how often the like of it was right."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

# How many observations the expectation before all experience is worth, and what an observation
# is worth after the next one of its kind.
_STRENGTH, _DECAY = 4.0, 0.99
_UNKNOWN = 0.5


@dataclass(slots=True)
class _Kind:
    """Decayed counts of guesses that were right, and of all that were tried."""

    right: float = 0.0
    tried: float = 0.0


@dataclass(frozen=True, slots=True)
class _Proposal:
    kind: Hashable
    position: int
    tokens: tuple[int, ...]


@dataclass(slots=True)
class TrackRecord:
    """Remembers each sequence's last proposal, and learns from what came in its place.

    It does not matter whether the proposal was used, so that a drafter whose drafts others
    outdo becomes known too.

    Args:
        prior: by kind of proposal, how often a guess is right before anything was seen.
    """

    prior: Mapping[Any, float]
    _kinds: dict[Hashable, _Kind] = field(default_factory=dict)
    _last: dict[int, _Proposal] = field(default_factory=dict)

    def learn(self, seq_id: int, token_ids: NDArray[np.int64]) -> None:
        """Hold the sequence's last proposal against its tokens."""
        last = self._last.pop(seq_id, None)
        if last is None or last.position > len(token_ids):
            return
        came = token_ids[last.position : last.position + len(last.tokens)].tolist()
        pairs = zip(came, last.tokens, strict=False)
        right = next((i for i, (a, b) in enumerate(pairs) if a != b), len(came))
        kind = self._kinds.setdefault(last.kind, _Kind())
        kind.right = kind.right * _DECAY + right
        kind.tried = kind.tried * _DECAY + right + (right < len(came))

    def confidence(self, kind: Hashable) -> float:
        """The probability that a guess is right once those before it are."""
        seen, prior = self._kinds.get(kind, _Kind()), self.prior.get(kind, _UNKNOWN)
        return (seen.right + prior * _STRENGTH) / (seen.tried + _STRENGTH)

    def propose(self, seq_id: int, kind: Hashable, position: int, tokens: list[int]) -> list[float]:
        """Remember a proposal for the tokens from ``position`` on; returns its confidence."""
        self._last[seq_id] = _Proposal(kind, position, tuple(tokens))
        return [self.confidence(kind)] * len(tokens)

    def forget(self, seq_id: int) -> None:
        """The sequence ended or lost its place."""
        self._last.pop(seq_id, None)
