"""The pass of an EAGLE-3 head: what drafters see of it.

A row of a head stands for a token whose predecessor's hidden states are known: the embedding of
token p beside what the target (or the head itself, further down a guess) had made of the text up
to p - 1. It says what comes after p. That shift by one is the only way in which a head differs
from a decoder layer with a wide input.

Two implementations: ``NativeEaglePass`` on the compiled kernels, and ``TorchEaglePass`` on
PyTorch's operators, for every device, the reference for the first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from outpace.cache.pools import KVPool
from outpace.model.batch import Batch
from outpace.model.heads.eagle import EagleHeadConfig
from outpace.model.rope import Rope

Embed = Callable[[Tensor], Tensor]

# Names of tensors that both implementations look for.
LAYER = "layers.0"
ATTENTION, MLP = f"{LAYER}.self_attn", f"{LAYER}.mlp"
QKV = ("q_proj", "k_proj", "v_proj")


class EaglePass(Protocol):
    """An EAGLE-3 head with its weights."""

    config: EagleHeadConfig
    dtype: torch.dtype  # of the cache
    device: torch.device
    weight_bytes: int  # read by each pass

    def combine(self, taps: Tensor) -> Tensor:
        """``[N, len(taps) * target_hidden]`` tapped states to ``[N, hidden]`` of the head."""
        ...

    def forward(self, batch: Batch, hidden: Tensor, pool: KVPool) -> Tensor:
        """Run the layer over one flat batch, and write its keys and values to the pool.

        Args:
            batch: the rows: tokens, positions, slots and what they see.
            hidden: ``[N, hidden]`` of the token before each: combined taps, or the result of an
                earlier pass.
            pool: the cache of this head, of one layer.

        Returns:
            ``[N, hidden]``: for ``logits``, and for the rows of the tokens that follow.
        """
        ...

    def write(self, batch: Batch, hidden: Tensor, pool: KVPool) -> None:
        """Write keys and values as ``forward`` does, for rows from which nobody goes on.

        With one layer these depend on no other row: attention and what follows it are left out.
        """
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """``hidden [R, hidden] -> [R, draft_vocab]`` in float32."""
        ...


def rope_of(
    config: EagleHeadConfig, max_positions: int, dtype: torch.dtype, device: torch.device
) -> Rope:
    """Positions go as far as the target's: what the head itself was trained on is no limit."""
    layer = config.layer
    return Rope(layer.head_dim, layer.rope_theta, layer.rope_scaling, max_positions, dtype, device)
