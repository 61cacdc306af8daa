"""The target's hidden states, computed when they are needed instead of stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import torch

from outpace.cache.pools import KVPool
from outpace.model.batch import Batch
from outpace.model.build import load_decoder
from outpace.model.precision import Precision
from outpace.train.batches import TrainBatch
from outpace.train.target_parts import TargetParts


class TargetStates:
    """A target that fills batches with its states.

    Args:
        target: its parts.
        taps: the layers whose states are wanted; none: the last hidden state alone.
        max_tokens: of a batch, filling included.
        device: where it runs.
    """

    def __init__(
        self, target: TargetParts, taps: tuple[int, ...], max_tokens: int, device: torch.device
    ) -> None:
        config, dtype = target.config, torch.bfloat16
        self._taps = taps
        self._decoder = load_decoder(target.folder, config, Precision(dtype), device)
        shape = (config.num_layers, max_tokens + 512, config.num_kv_heads, config.head_dim)
        self._pool = KVPool(*shape, dtype, device)

    def filled(self, batches: Iterable[TrainBatch]) -> Iterator[TrainBatch]:
        """The same batches with states, whether they were stored or not."""
        for batch in batches:
            yield batch if batch.last is not None else self._fill(batch)

    @torch.inference_mode()
    def _fill(self, batch: TrainBatch) -> TrainBatch:
        size, length = batch.token_ids.shape
        rows = Batch()
        for i in range(size):
            slots = np.arange(i * length, (i + 1) * length)
            rows.append_run(batch.token_ids[i].numpy(), 0, slots)
        hidden = self._decoder.forward(rows, self._pool, self._taps)
        shape = (size, length, -1)
        last = hidden.last[: size * length].to(torch.bfloat16).view(shape)
        taps = hidden.taps
        if taps is not None:
            taps = taps[: size * length].to(torch.bfloat16).view(shape)
        # Clones: what inference mode made cannot be learned from.
        with torch.inference_mode(False):
            return replace(batch, last=last.clone(), taps=None if taps is None else taps.clone())
