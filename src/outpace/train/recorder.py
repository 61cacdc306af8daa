"""A drafter that never guesses and remembers what the target's layers made of the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from outpace.spec.drafter import Ask, Seen
from outpace.spec.tree import DraftTree


@dataclass(slots=True)
class _Kept:
    token_ids: list[int] = field(default_factory=list)
    taps: list[Tensor] = field(default_factory=list)
    last: list[Tensor] = field(default_factory=list)


class Recorder:
    """Stands where plain decoding's drafter stands, with an ear on the hidden states.

    Args:
        taps: the layers to listen to; none keeps the last hidden state alone.
        states: keep hidden states at all.
    """

    name = "none"
    sources: tuple[str, ...] = ("none",)

    def __init__(self, taps: tuple[int, ...], states: bool) -> None:
        self.taps: tuple[int, ...] | None = taps if states else None
        self._states = states
        self._kept: dict[int, _Kept] = {}

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        """Nothing."""
        return [DraftTree(reason="only recording") for _ in asks]

    def observe(self, seen: Sequence[Seen]) -> None:
        """Keep the states, in bf16; a sequence that lost its blocks begins again."""
        for sight in seen:
            if sight.start == 0:
                self._kept[sight.seq_id] = _Kept()
            kept = self._kept[sight.seq_id]
            kept.token_ids += sight.token_ids
            if self._states:
                assert sight.last is not None
                kept.last.append(sight.last.to(torch.bfloat16))
                if sight.taps is not None:
                    kept.taps.append(sight.taps.to(torch.bfloat16))

    def forget(self, seq_id: int) -> None:
        """Stays until it is taken: the end of a sequence is when it is wanted."""

    def take(self, seq_id: int) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Token ids ``[n]``, taps and last hidden states of a sequence, which is then forgotten."""
        kept = self._kept.pop(seq_id)
        taps = torch.cat(kept.taps) if kept.taps else None
        last = torch.cat(kept.last) if kept.last else None
        return torch.tensor(kept.token_ids, dtype=torch.int32), taps, last
