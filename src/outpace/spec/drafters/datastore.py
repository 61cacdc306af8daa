"""Retrieval: texts of one's own foretell what comes next."""

from __future__ import annotations

from collections.abc import Sequence

from outpace.config import DatastoreConfig
from outpace.spec.drafter import Ask, Seen
from outpace.spec.index.file import Index
from outpace.spec.retrieval.candidates import Candidates
from outpace.spec.retrieval.growth import grow
from outpace.spec.retrieval.own import look_back
from outpace.spec.tree import DraftTree


class DatastoreDrafter:
    """Continues as the same words are continued in an index, or were in the request itself.

    A tree of the likeliest continuations (REST: He et al. 2024, arXiv 2311.08252).
    """

    name = "datastore"
    sources: tuple[str, ...] = ("datastore",)
    taps: tuple[int, ...] | None = None

    def __init__(self, config: DatastoreConfig, index: Index) -> None:
        self._config = config
        self._index = index

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        """A tree of at most ``budget`` nodes where there is a match."""
        return [self._draft(ask) for ask in asks]

    def _draft(self, ask: Ask) -> DraftTree:
        candidates = Candidates.joined(
            [
                look_back(ask.token_ids, self._config.min_match, ask.budget),
                self._index.look_up(ask.token_ids, self._config.min_match, ask.budget),
            ]
        )
        return grow(candidates, ask.budget, self._config.min_probability, self.name)

    def observe(self, seen: Sequence[Seen]) -> None:
        """Nothing to learn: the tokens come with every ask, and the index stays as it is."""

    def forget(self, seq_id: int) -> None:
        """Nothing to forget."""
