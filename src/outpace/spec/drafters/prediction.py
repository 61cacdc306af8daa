"""Predicted outputs: the client knows most of the answer, for instance a file to be edited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outpace.config import PredictionConfig
from outpace.request import Request
from outpace.spec.drafter import Ask, Seen
from outpace.spec.drafters.lookup import longest_match
from outpace.spec.drafters.track_record import TrackRecord
from outpace.spec.tree import DraftTree

_LONGEST_MATCH = 32
# How often a guess is right before anything was seen: while the answer has followed the
# expectation from the start, after it found back, and where something stands for something else.
_PRIOR = {"followed": 0.8, "found": 0.7, "replaced": 0.5}
# Tokens in a row that may stand for others, once as many were as expected.
_MOST_REPLACED = 3
# Within so many tokens ahead, one less has to agree to find back.
_NEAR = 48
# The longest draft behind such a token.
_CAREFUL = 6


@dataclass(slots=True)
class _Place:
    """How far an answer has got in its expectation: ``next`` is the index expected next.

    ``found`` is whether it had to be found, since the answer left the expectation. ``trust`` grows
    with each token that is as expected and falls with each other one; below 0 the place is lost.
    ``replaced`` is whether the last token was another one.
    """

    num_output: int = 0
    next: int = 0
    trust: int = 0
    found: bool = False
    replaced: bool = False

    @property
    def lost(self) -> bool:
        """Whether nobody knows how the expectation goes on."""
        return self.trust < 0

    @property
    def kind(self) -> str:
        """As of what kind its guesses are counted."""
        return "replaced" if self.replaced else "found" if self.found else "followed"

    def follow(self, token: int, expected: NDArray[np.int64]) -> None:
        """The answer goes on with a token, in the place of the one that was expected."""
        as_expected = self.next < len(expected) and int(expected[self.next]) == token
        self.next += 1
        self.replaced = not as_expected
        self.trust = min(self.trust + 1, _MOST_REPLACED) if as_expected else self.trust - 1


class PredictionDrafter:
    """Follows the expectation while it holds, and finds its way back after a difference.

    Args:
        config: how many tokens must agree to find back.
        default: token ids expected by requests that bring no prediction.
    """

    name = "prediction"
    sources: tuple[str, ...] = ("prediction",)
    taps: tuple[int, ...] | None = None

    def __init__(self, config: PredictionConfig, default: tuple[int, ...] = ()) -> None:
        self._config = config
        self._default = default
        self._places: dict[int, _Place] = {}
        self._record = TrackRecord(_PRIOR)

    def serves(self, request: Request) -> bool:
        """Whether there is anything to expect."""
        return bool(request.prediction or self._default)

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        """A chain along the expectation from where the answer stands in it."""
        return [self._draft(ask) for ask in asks]

    def _draft(self, ask: Ask) -> DraftTree:
        expected = np.array(ask.prediction or self._default, dtype=np.int64)
        if len(expected) == 0:
            return DraftTree()
        self._record.learn(ask.seq_id, ask.token_ids)
        place = self._places.setdefault(ask.seq_id, _Place())
        self._advance(place, expected, ask.token_ids[ask.num_prompt :])
        if place.lost:
            return DraftTree()
        most = min(ask.budget, _CAREFUL) if place.replaced else ask.budget
        chain = expected[place.next : place.next + most].tolist()
        confidence = self._record.propose(ask.seq_id, place.kind, len(ask.token_ids), chain)
        return DraftTree.chain(chain, source=self.name, confidence=confidence)

    def _advance(
        self, place: _Place, expected: NDArray[np.int64], output: NDArray[np.int64]
    ) -> None:
        """Move over the tokens that came since the last time."""
        before = place.next
        for token in output[place.num_output :].tolist():
            if not place.lost:
                place.follow(token, expected)
        place.num_output = len(output)
        if not place.lost and not place.replaced:
            return
        ends, length = longest_match(expected, output, _LONGEST_MATCH)
        # Prefer to move forward: a text that repeats itself is usually copied in order.
        ahead = ends[ends >= before]
        near = len(ahead) > 0 and int(ahead[0]) < before + _NEAR
        if length >= self._config.min_match - near:
            place.next = int(ahead[0] if len(ahead) else ends[-1]) + 1
            place.trust, place.replaced, place.found = _MOST_REPLACED, False, True

    def observe(self, seen: Sequence[Seen]) -> None:
        """Nothing to learn: the tokens come with every ask."""

    def forget(self, seq_id: int) -> None:
        """Give up the place; if the sequence comes back it is found anew."""
        self._places.pop(seq_id, None)
        self._record.forget(seq_id)
