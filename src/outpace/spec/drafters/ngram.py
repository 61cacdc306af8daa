"""Prompt lookup: the request's own tokens foretell what comes next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from outpace.config import NgramConfig
from outpace.spec.drafter import Ask, Seen
from outpace.spec.drafters.track_record import TrackRecord
from outpace.spec.retrieval.lookup import longest_match
from outpace.spec.tree import DraftTree

# How often a guess is right after a match of so many tokens, before anything was seen.
_PRIOR = {1: 0.3, 2: 0.5, 3: 0.65, 4: 0.8}
_LONG_PRIOR = 0.9


class NgramDrafter:
    """Continues as the longest, most recent match of the last tokens did (Saxena 2023).

    How sure it is follows from the length of the match and what drafts after such matches were
    worth.
    """

    name = "ngram"
    sources: tuple[str, ...] = ("ngram",)
    taps: tuple[int, ...] | None = None

    def __init__(self, config: NgramConfig) -> None:
        self._config = config
        lengths = range(1, config.max_ngram + 1)
        self._record = TrackRecord({n: _PRIOR.get(n, _LONG_PRIOR) for n in lengths})

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        """A chain of ``budget`` tokens where there is a match."""
        return [self._draft(ask) for ask in asks]

    def _draft(self, ask: Ask) -> DraftTree:
        tokens, budget = ask.token_ids, ask.budget
        self._record.learn(ask.seq_id, tokens)
        ends, length = longest_match(tokens[:-1], tokens, self._config.max_ngram)
        if length < self._config.min_ngram:
            return DraftTree()
        end = int(ends[-1])
        # A match that overlaps the end is a loop: it goes on with its own period.
        period = len(tokens) - 1 - end
        following = tokens[end + 1 + np.arange(budget) % period]
        chain = following.tolist()
        confidence = self._record.propose(ask.seq_id, length, len(tokens), chain)
        return DraftTree.chain(chain, source=self.name, confidence=confidence)

    def observe(self, seen: Sequence[Seen]) -> None:
        """Nothing to learn: the tokens come with every ask."""

    def forget(self, seq_id: int) -> None:
        """The last proposal is of no use any more."""
        self._record.forget(seq_id)
