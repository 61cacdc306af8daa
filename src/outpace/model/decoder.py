"""The decoder's face: a batch of rows in, hidden states and logits out.

Two implementations: ``NativeDecoder`` on the compiled kernels, and ``TorchDecoder`` on PyTorch's
operators, for every device, the reference for the first. One class each for all supported
families; what differs between families is in ``ModelConfig``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from outpace.cache.pools import KVPool
from outpace.model.batch import Batch
from outpace.model.config import ModelConfig


@dataclass(frozen=True, slots=True, eq=False)
class Hidden:
    """What a forward pass leaves.

    Attributes:
        last: ``[N, hidden]``, after the final norm.
        taps: ``[N, len(taps) * hidden]``, the residual stream after each of the layers that were
            asked for, side by side in the order asked; None when none were.
    """

    last: Tensor
    taps: Tensor | None


class Decoder(Protocol):
    """A decoder-only transformer with its weights."""

    config: ModelConfig
    dtype: torch.dtype  # of the cache
    device: torch.device
    kernels: str  # in words: what computes the linear layers
    weight_bytes: int  # read by each forward pass

    def forward(
        self,
        batch: Batch,
        pool: KVPool,
        taps: tuple[int, ...] = (),
        layers: Sequence[int] | None = None,
    ) -> Hidden:
        """Run the layers over one flat batch, and write its keys and values to the pool.

        Args:
            batch: the rows and what they see.
            pool: the cache of this model.
            taps: layers (from 0) after which the residual stream is kept.
            layers: run only these, in this order; None runs all.
        """
        ...

    def embed(self, token_ids: Tensor) -> Tensor:
        """``[N]`` int64 to ``[N, hidden]``: the rows of the embedding table, as a pass has them."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """Apply the head: ``hidden [R, hidden] -> [R, vocab]`` in float32, for any R."""
        ...


def joined_taps(tapped: dict[int, Tensor], taps: tuple[int, ...]) -> Tensor | None:
    """Side by side in the order asked."""
    return torch.cat([tapped[index] for index in taps], -1) if taps else None
