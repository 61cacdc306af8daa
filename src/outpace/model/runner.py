"""Runs a decoder over a flat batch of rows; target and draft model alike."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from outpace.cache.pools import KVPool
from outpace.model.batch import Batch
from outpace.model.decoder import Decoder, Hidden


class ModelRunner:
    """A decoder with its cache.

    Args:
        decoder: the model.
        pool: its keys and values.
        layers: the layers that are run, ascending; None: all.
    """

    def __init__(self, decoder: Decoder, pool: KVPool, layers: Sequence[int] | None = None) -> None:
        self.decoder = decoder
        self.pool = pool
        self.layers = layers

    def run(self, batch: Batch, taps: tuple[int, ...] = ()) -> tuple[Tensor, Hidden]:
        """One forward pass.

        Returns:
            Logits ``[len(batch.logits_rows), vocab]`` float32 on the CPU, where tokens are
            chosen, and the hidden states of all rows ``[num_rows, hidden]``.
        """
        decoder = self.decoder
        hidden = decoder.forward(batch, self.pool, taps, self.layers)
        if not batch.logits_rows:
            return torch.empty(0, decoder.config.vocab_size), hidden
        rows = torch.tensor(batch.logits_rows, device=decoder.device)
        return decoder.logits(hidden.last[rows]).cpu(), hidden
