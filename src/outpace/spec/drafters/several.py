"""What drafters that are made of others have in common: everyone learns, whoever proposed."""

from __future__ import annotations

from collections.abc import Sequence

from outpace.errors import DraftError
from outpace.spec.drafter import Drafter, Seen


class Several:
    """Tells all its drafters what became of the sequences.

    Args:
        drafters: in their order.
        joint: what stands between their names.

    Raises:
        DraftError: two of them want different hidden states of the target.
    """

    def __init__(self, drafters: Sequence[Drafter], joint: str) -> None:
        self.name = joint.join(drafter.name for drafter in drafters)
        self._drafters = tuple(drafters)
        wanted = {drafter.taps for drafter in drafters if drafter.taps is not None}
        tapped = wanted - {()}  # whoever wants the last state alone does not mind more
        if len(tapped) > 1:
            raise DraftError(
                f"drafter = {self.name!r}: the heads want different hidden states of the target "
                f"(after layers {' and '.join(map(str, sorted(tapped)))}); use one of them"
            )
        self.taps: tuple[int, ...] | None = next(iter(tapped), () if wanted else None)

    @property
    def parts(self) -> tuple[Drafter, ...]:
        """Those that it is made of, in their order."""
        return self._drafters

    def observe(self, seen: Sequence[Seen]) -> None:
        """Everyone learns, whoever proposed."""
        for drafter in self._drafters:
            drafter.observe(seen)

    def forget(self, seq_id: int) -> None:
        """Everyone forgets."""
        for drafter in self._drafters:
            drafter.forget(seq_id)
