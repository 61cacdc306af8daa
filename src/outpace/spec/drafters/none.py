"""No draft: plain decoding."""

from __future__ import annotations

from collections.abc import Sequence

from outpace.spec.drafter import Ask, Seen
from outpace.spec.tree import DraftTree


class NoneDrafter:
    """Never proposes anything."""

    name = "none"
    sources: tuple[str, ...] = ("none",)
    taps: tuple[int, ...] | None = None

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        """Empty trees."""
        return [DraftTree()] * len(asks)

    def observe(self, seen: Sequence[Seen]) -> None:
        """Nothing to learn."""

    def forget(self, seq_id: int) -> None:
        """Nothing to forget."""
