"""The first of several drafters that has something to say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from outpace.spec.drafter import Ask, Drafter, timed
from outpace.spec.drafters.several import Several
from outpace.spec.lawful import lawful
from outpace.spec.tree import DraftTree


class FirstOfDrafter(Several):
    """Asks its drafters in order; each is asked only for what the earlier ones left open.

    A draft that leaves a request's grammar at once is none: the next in order is asked.

    Args:
        drafters: in order of preference, the cheap and sure ones first.
    """

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        super().__init__(drafters, "+")
        self.sources: tuple[str, ...] = tuple(s for drafter in drafters for s in drafter.sources)
        self.seconds_by_source: dict[str, float] = {}

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        """For each ask the first tree that is not empty."""
        trees = [DraftTree()] * len(asks)
        self.seconds_by_source = {}
        for drafter in self._drafters:
            left = {i: _limited(asks[i], drafter) for i, t in enumerate(trees) if len(t) == 0}
            left = {i: ask for i, ask in left.items() if ask.budget > 0}
            if not left:
                continue
            proposed = timed(drafter, list(left.values()), self.seconds_by_source)
            for i, tree in zip(left, proposed, strict=True):
                tree = lawful(tree, asks[i].history)
                trees[i] = tree if len(tree) or tree.reason else trees[i]
        return trees


def _limited(ask: Ask, drafter: Drafter) -> Ask:
    """The ask with what this drafter's sources may propose."""
    most = max(ask.by_source.get(source, ask.budget) for source in drafter.sources)
    return ask if most >= ask.budget else replace(ask, budget=most)
