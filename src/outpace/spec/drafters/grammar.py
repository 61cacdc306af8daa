"""Forced tokens: where a request's grammar leaves one way to go on, that way is the draft."""

from __future__ import annotations

from collections.abc import Sequence

from outpace.request import Request
from outpace.spec.drafter import Ask, Seen
from outpace.spec.tree import DraftTree


class GrammarDrafter:
    """Proposes what the grammar forces, spelled as the target's tokenizer would spell it.

    The names of an object's members, the punctuation between them and constants need no guess.
    Requests without a grammar get nothing, and cost nothing.
    """

    name = "grammar"
    sources: tuple[str, ...] = ("grammar",)
    taps: tuple[int, ...] | None = None

    def serves(self, request: Request) -> bool:
        """Whether there is a grammar."""
        return request.params.grammar is not None

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        """A chain as far as the grammar leaves no choice."""
        return [self._draft(ask) for ask in asks]

    def _draft(self, ask: Ask) -> DraftTree:
        matcher = ask.history.matcher
        if matcher is None:
            return DraftTree()
        return DraftTree.chain(matcher.forced()[: ask.budget], source=self.name)

    def observe(self, seen: Sequence[Seen]) -> None:
        """Nothing to learn: the state comes with every ask."""

    def forget(self, seq_id: int) -> None:
        """Nothing to forget."""
