"""Runs a decoder over a flat batch of rows; target and draft model alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outpace.cache.pools import KVPool
from outpace.model.attention import AttentionPlan, PagedAttention, View
from outpace.model.decoder import Decoder, Hidden


@dataclass(slots=True)
class Batch:
    """Rows of any number of sequences, one after the other.

    Rows are appended with their views; ``logits_rows`` says for which of them logits are wanted.
    """

    token_ids: list[NDArray[np.int64]] = field(default_factory=list)
    positions: list[NDArray[np.int64]] = field(default_factory=list)
    slots: list[NDArray[np.int64]] = field(default_factory=list)
    views: list[View] = field(default_factory=list)
    logits_rows: list[int] = field(default_factory=list)
    num_rows: int = 0

    def append(
        self,
        token_ids: NDArray[np.int64],
        positions: NDArray[np.int64],
        slots: NDArray[np.int64],
    ) -> int:
        """Add rows, all ``[n]``; returns the index of the first."""
        first = self.num_rows
        self.token_ids.append(token_ids)
        self.positions.append(positions)
        self.slots.append(slots)
        self.num_rows += len(token_ids)
        return first

    def append_run(self, token_ids: NDArray[np.int64], start: int, slots: NDArray[np.int64]) -> int:
        """Add consecutive tokens of one sequence under one causal view.

        Args:
            token_ids: ``[n]``.
            start: position of the first.
            slots: ``[start + n]`` the slots of all positions up to the last.
        """
        positions = np.arange(start, start + len(token_ids))
        first = self.append(token_ids, positions, slots[start:])
        rows = np.arange(first, first + len(token_ids))
        self.views.append(View(rows, positions, slots, np.arange(len(slots)), None))
        return first


class ModelRunner:
    """A decoder with its cache.

    Args:
        decoder: the model.
        pool: its keys and values.
    """

    def __init__(self, decoder: Decoder, pool: KVPool) -> None:
        self.decoder = decoder
        self.pool = pool
        self._scale = decoder.config.head_dim**-0.5

    def run(self, batch: Batch, taps: tuple[int, ...] = ()) -> tuple[Tensor, Hidden]:
        """One forward pass.

        Returns:
            Logits ``[len(batch.logits_rows), vocab]`` float32 on the CPU, where tokens are
            chosen, and the hidden states of all rows ``[num_rows, hidden]``.
        """
        decoder, config = self.decoder, self.decoder.config
        padding = decoder.padded_rows(batch.num_rows) - batch.num_rows
        token_ids = _padded(batch.token_ids, padding)
        positions = _padded(batch.positions, padding)
        slots = _padded(batch.slots, padding)
        device = decoder.device
        plan = AttentionPlan(
            batch.views, slots, config.num_heads, config.num_kv_heads, decoder.dtype, device
        )
        attend = PagedAttention(self.pool, plan, config.windows, self._scale)
        hidden = decoder.forward(
            torch.from_numpy(token_ids).to(device),
            torch.from_numpy(positions).to(device),
            attend,
            taps,
        )
        if not batch.logits_rows:
            return torch.empty(0, config.vocab_size), hidden
        rows = torch.tensor(batch.logits_rows, device=device)
        return decoder.logits(hidden.last[rows]).cpu(), hidden


def _padded(pieces: Sequence[NDArray[np.int64]], padding: int) -> NDArray[np.int64]:
    """Join, and fill up with zeros: token 0 at position 0 in the null slot harms nobody."""
    return np.concatenate([*pieces, np.zeros(padding, dtype=np.int64)])
