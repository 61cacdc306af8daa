"""Predicted outputs: the client knows most of the answer, for instance a file to be edited."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from outpace.config import PredictionConfig
from outpace.request import Request
from outpace.spec.drafter import Ask, Seen
from outpace.spec.drafters.track_record import TrackRecord
from outpace.spec.retrieval.place import Place
from outpace.spec.tree import DraftTree

# How often a guess is right before anything was seen: while the answer has followed the
# expectation from the start, after it found back, and where something stands for something else.
_PRIOR = {"followed": 0.8, "found": 0.7, "replaced": 0.5}


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
        self._places: dict[int, Place] = {}
        self._record = TrackRecord(_PRIOR)

    def serves(self, request: Request) -> bool:
        """Whether there is anything to expect."""
        return bool(request.prediction or self._default)

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        """A chain along the expectation from where the answer stands in it."""
        return [self._draft(ask) for ask in asks]

    def _draft(self, ask: Ask) -> DraftTree:
        expected = ask.prediction or self._default
        if not expected:
            return DraftTree()
        self._record.learn(ask.seq_id, ask.token_ids)
        place = self._places.get(ask.seq_id)
        if place is None:
            place = self._places[ask.seq_id] = Place(np.array(expected, dtype=np.int64))
        place.advance(ask.token_ids[ask.num_prompt :], self._config.min_match)
        if place.lost:
            return DraftTree()
        kind = "replaced" if place.replaced else "found" if place.found else "followed"
        chain = place.ahead(ask.budget).tolist()
        confidence = self._record.propose(ask.seq_id, kind, len(ask.token_ids), chain)
        return DraftTree.chain(chain, source=self.name, confidence=confidence)

    def observe(self, seen: Sequence[Seen]) -> None:
        """Nothing to learn: the tokens come with every ask."""

    def forget(self, seq_id: int) -> None:
        """Give up the place; if the sequence comes back it is found anew."""
        self._places.pop(seq_id, None)
        self._record.forget(seq_id)
