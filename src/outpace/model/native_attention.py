"""Attention by the compiled kernel, over the slots that each row sees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outpace.cache.pools import KVPool
from outpace.kernels.native import HeadShape, attend
from outpace.model.batch import Batch, View, joined
from outpace.model.config import ModelConfig


class NativeAttention:
    """One step's attention: what is the same in all layers is made once.

    A row's result depends on the slots that it sees, in the order of their positions, and on
    nothing else: draft trees are as exact as chains, under either kind of view.

    Args:
        shape: of the heads.
        batch: the rows and what they see. Each row is in exactly one view.
        pool: the cache of this model.
        angles: cosines and sines ``[N, head_dim / 2]`` float32 of the rows' positions.
        config: windows and the epsilon of the norms.
    """

    def __init__(
        self,
        shape: HeadShape,
        batch: Batch,
        pool: KVPool,
        angles: tuple[Tensor, Tensor],
        config: ModelConfig,
    ) -> None:
        self._shape = shape
        self._pool = pool
        self._angles = angles
        self._config = config
        self._scale = shape.width**-0.5
        self._targets = torch.from_numpy(joined(batch.slots))
        self._rows, self._slots = _tables(batch)

    def __call__(
        self,
        layer: int,
        qkv: Tensor,
        query_norm: Tensor | None,
        key_norm: Tensor | None,
        out: Tensor,
    ) -> None:
        """``qkv [N, (H + 2 Hkv) * D]`` float32 to ``out [N, H * D]``, the cache included."""
        attend(
            self._shape,
            qkv,
            self._angles,
            (query_norm, key_norm, self._config.rms_norm_eps),
            self._pool.layers[layer],
            self._targets,
            (self._rows, self._slots),
            self._config.windows[layer] or 0,
            self._scale,
            out,
        )


def _tables(batch: Batch) -> tuple[Tensor, Tensor]:
    """Int32 ``[N, 2]``, where in the second a row's slots begin and how many; and those slots."""
    rows = np.zeros((batch.num_rows, 2), dtype=np.int32)
    lists: list[NDArray[np.int64]] = []
    begin = 0
    for view in batch.views:
        for members, lengths, slots in _slot_lists(view):
            rows[members, 0], rows[members, 1] = begin, lengths
            lists.append(slots)
            begin += len(slots)
    slots = joined(lists).astype(np.int32)
    return torch.from_numpy(rows), torch.from_numpy(slots)


def _slot_lists(view: View) -> Iterator[tuple[NDArray[np.int64], Any, NDArray[np.int64]]]:
    """Rows, how many slots each sees, and the list of which these are the first."""
    if view.mask is None:  # keys ascend by position, and a row sees those up to its own
        yield view.rows, np.searchsorted(view.key_positions, view.positions, "right"), view.slots
        return
    for row, mask in zip(view.rows, view.mask, strict=True):
        seen = view.slots[mask]
        yield np.array([row]), len(seen), seen
