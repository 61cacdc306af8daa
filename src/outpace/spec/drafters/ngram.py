"""Prompt lookup: the request's own tokens foretell what comes next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from outpace.config import NgramConfig
from outpace.spec.drafter import Ask, Seen
from outpace.spec.drafters.lookup import longest_match
from outpace.spec.tree import DraftTree


class NgramDrafter:
    """Continues as the longest, most recent match of the last tokens did (Saxena 2023)."""

    name = "ngram"
    sources: tuple[str, ...] = ("ngram",)
    taps: tuple[int, ...] | None = None

    def __init__(self, config: NgramConfig) -> None:
        self._config = config

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        """A chain of ``budget`` tokens where there is a match."""
        return [self._draft(ask.token_ids, ask.budget) for ask in asks]

    def _draft(self, tokens: NDArray[np.int64], budget: int) -> DraftTree:
        ends, length = longest_match(tokens[:-1], tokens, self._config.max_ngram)
        if length < self._config.min_ngram:
            return DraftTree()
        end = int(ends[-1])
        # A match that overlaps the end is a loop: it goes on with its own period.
        period = len(tokens) - 1 - end
        following = tokens[end + 1 + np.arange(budget) % period]
        return DraftTree.chain(following.tolist(), source=self.name)

    def observe(self, seen: Sequence[Seen]) -> None:
        """Nothing to learn: the tokens come with every ask."""

    def forget(self, seq_id: int) -> None:
        """Nothing to forget."""
