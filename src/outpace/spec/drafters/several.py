"""What drafters that are made of others have in common: everyone learns, whoever proposed."""

from __future__ import annotations

from collections.abc import Sequence

from outpace.spec.drafter import Drafter, Seen


class Several:
    """Tells all its drafters what became of the sequences.

    Args:
        drafters: in their order.
        joint: what stands between their names.

    Raises:
        ValueError: two of them want different hidden states of the target.
    """

    def __init__(self, drafters: Sequence[Drafter], joint: str) -> None:
        self.name = joint.join(drafter.name for drafter in drafters)
        self._drafters = tuple(drafters)
        wanted = {drafter.taps for drafter in drafters if drafter.taps is not None}
        if len(wanted) > 1:
            raise ValueError(f"drafters want different hidden states: {sorted(wanted)}")
        self.taps: tuple[int, ...] | None = next(iter(wanted), None)

    def observe(self, seen: Sequence[Seen]) -> None:
        """Everyone learns, whoever proposed."""
        for drafter in self._drafters:
            drafter.observe(seen)

    def forget(self, seq_id: int) -> None:
        """Everyone forgets."""
        for drafter in self._drafters:
            drafter.forget(seq_id)
