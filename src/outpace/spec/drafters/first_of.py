"""The first of several drafters that has something to say."""

from __future__ import annotations

from collections.abc import Sequence

from outpace.spec.drafter import Ask, Drafter, Seen
from outpace.spec.tree import DraftTree


class FirstOfDrafter:
    """Asks its drafters in order; each is asked only for what the earlier ones left open.

    Args:
        drafters: in order of preference, the cheap and sure ones first.
    """

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self.name = "+".join(drafter.name for drafter in drafters)
        self._drafters = tuple(drafters)
        wanted = {d.taps for d in drafters if d.taps is not None}
        tapped = wanted - {()}  # whoever wants the last state alone does not mind more
        if len(tapped) > 1:
            raise ValueError(f"drafters want different hidden states: {sorted(tapped)}")
        self.taps: tuple[int, ...] | None = next(iter(tapped), () if wanted else None)

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        """For each ask the first tree that is not empty."""
        trees = [DraftTree()] * len(asks)
        for drafter in self._drafters:
            left = [i for i, tree in enumerate(trees) if len(tree) == 0]
            if not left:
                break
            for i, tree in zip(left, drafter.propose([asks[i] for i in left]), strict=True):
                trees[i] = tree if len(tree) or tree.reason else trees[i]
        return trees

    def observe(self, seen: Sequence[Seen]) -> None:
        """Everyone learns, whoever proposed."""
        for drafter in self._drafters:
            drafter.observe(seen)

    def forget(self, seq_id: int) -> None:
        """Everyone forgets."""
        for drafter in self._drafters:
            drafter.forget(seq_id)
