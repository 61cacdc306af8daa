"""Attention over the paged cache, with results that do not depend on the batch.

Three rules make a query row's bits independent of what is computed with it. PyTorch's CPU kernel
works in blocks of 512 keys and sums within a block in an order that its length decides: the key
length is padded to a multiple of 512. A block of query rows that ends with fewer than 4 takes
another path: the rows of a view, times the query heads of a key head, are padded to a multiple
of 4. And dot products sum by key slot: a view lists its keys in the order of plain decoding.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from outpace.cache.pools import KVPool
from outpace.model.batch import View

_KEY_BLOCK = 512
_ROW_BLOCK = 4
# The cache reserves this slot; padding keys are read from it and padding rows write to it.
_NULL_SLOT = 0


class AttentionPlan:
    """How one step's views are computed; built once a step and shared by all its layers.

    Args:
        views: what the rows see. Each row is in at most one; rows in none get zeros.
        slot_mapping: ``[N]`` the slot that each row's key and value are written to.
        num_heads: query heads.
        num_kv_heads: key and value heads; a divisor of ``num_heads``.
        dtype: of the query.
        device: of the query.
    """

    def __init__(
        self,
        views: Sequence[View],
        slot_mapping: np.ndarray,
        num_heads: int,
        num_kv_heads: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.num_rows = len(slot_mapping)
        self.group_size = num_heads // num_kv_heads
        self.slot_mapping = _to_device(slot_mapping, device)
        by_size: dict[tuple[int, int], list[View]] = {}
        for view in views:
            if len(view.rows):
                folded = _round_up(len(view.rows) * self.group_size, _ROW_BLOCK)
                keys = _round_up(max(len(view.slots), 1), _KEY_BLOCK)
                by_size.setdefault((folded, keys), []).append(view)
        self.groups = [
            _Group(members, folded, keys, self.num_rows, self.group_size, dtype, device)
            for (folded, keys), members in by_size.items()
        ]


class _Group:
    """Views of one padded size: one call of the attention kernel.

    The query heads of a key head are folded into the rows: folded row ``row * group_size + head``.
    """

    def __init__(
        self,
        views: list[View],
        folded: int,
        keys: int,
        num_rows: int,
        group_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.views = views
        self.folded = folded
        self.keys = keys
        self.group_size = group_size
        self.dtype = dtype
        self.device = device
        self.run_start = _run_start(views[0].slots) if len(views) == 1 else None
        self.leading = _leading_rows(views, folded, num_rows, group_size)
        self._masks: dict[int | None, Tensor] = {}
        self._slots: Tensor | None = None
        self.source, self.target = self._row_indices(num_rows * group_size)

    def slots(self) -> Tensor:
        """``[B * keys]`` the slots to gather."""
        if self._slots is None:
            table = np.full((len(self.views), self.keys), _NULL_SLOT, dtype=np.int64)
            for line, view in zip(table, self.views, strict=True):
                line[: len(view.slots)] = view.slots
            self._slots = _to_device(table.reshape(-1), self.device)
        return self._slots

    def mask(self, window: int | None) -> Tensor:
        """``[B, 1, folded, keys]``, added to the scores; made once a step."""
        if window not in self._masks:
            # Not minus infinity: a row that sees nothing must not become a NaN. The exponential
            # of this is 0 all the same as soon as the row sees any key.
            hidden = torch.finfo(self.dtype).min
            shape = (len(self.views), 1, self.folded, self.keys)
            mask = torch.full(shape, hidden, dtype=self.dtype, device=self.device)
            for index, view in enumerate(self.views):
                count, length = len(view.rows), len(view.slots)
                seen = torch.from_numpy(view.visible(window)).to(self.device)
                part = mask[index, 0, : count * self.group_size].view(count, self.group_size, -1)
                part[:, :, :length].masked_fill_(seen.unsqueeze(1), 0.0)
            self._masks[window] = mask
        return self._masks[window]

    def _row_indices(self, total: int) -> tuple[Tensor, Tensor]:
        """``[B * folded]`` each: where a folded row comes from, and where its result goes.

        Padding comes from any row and goes to the line after the last (``total``).
        """
        shape = (len(self.views), self.folded)
        source = np.zeros(shape, dtype=np.int64)
        target = np.full(shape, total, dtype=np.int64)
        heads = np.arange(self.group_size)
        for index, view in enumerate(self.views):
            lines = (view.rows[:, None] * self.group_size + heads).reshape(-1)
            source[index, : len(lines)] = lines
            target[index, : len(lines)] = lines
        return (
            _to_device(source.reshape(-1), self.device),
            _to_device(target.reshape(-1), self.device),
        )


class PagedAttention:
    """Writes a layer's keys and values to a pool, then attends to what the plan's views see.

    Args:
        pool: the cache of this model.
        plan: of this step.
        windows: one entry a layer: the sliding window in positions, None for all.
        scale: the factor on query-key products.
    """

    def __init__(
        self,
        pool: KVPool,
        plan: AttentionPlan,
        windows: tuple[int | None, ...],
        scale: float,
    ) -> None:
        self._pool = pool
        self._plan = plan
        self._scale = scale
        self._windows = windows
        # A run of slots is read in place, if its padding stays inside the pool: the same values
        # in the same order and with the same strides as a gather would give, so the same bits.
        self._runs = [
            group.run_start
            if group.run_start is not None and group.run_start + group.keys <= pool.num_slots
            else None
            for group in plan.groups
        ]

    def __call__(self, layer: int, query: Tensor, kv: Tensor) -> Tensor:
        """``query [N, H, D]`` and ``kv [N, 2, Hkv, D]`` give ``[N, H * D]``."""
        plan, cache, window = self._plan, self._pool.layers[layer], self._windows[layer]
        cache.index_copy_(0, plan.slot_mapping, kv)
        rows, heads, width = query.shape
        kv_heads = heads // plan.group_size
        lines = rows * plan.group_size
        # [Hkv, N * G, D]
        folded = query.view(rows, kv_heads, -1, width).transpose(0, 1).reshape(kv_heads, -1, width)
        result = folded.new_zeros(kv_heads, lines + 1, width)
        for group, start in zip(plan.groups, self._runs, strict=True):
            output = self._attend(group, start, cache, folded, window)
            if group.leading is not None:
                result[:, : group.leading] = output[0, :, : group.leading]
            else:
                flat = output.transpose(0, 1).reshape(kv_heads, -1, width)
                result.index_copy_(1, group.target, flat)
        unfolded = result[:, :lines].view(kv_heads, rows, plan.group_size, width)
        return unfolded.transpose(0, 1).reshape(rows, heads * width)

    def _attend(
        self, group: _Group, start: int | None, cache: Tensor, folded: Tensor, window: int | None
    ) -> Tensor:
        """``[B, Hkv, folded, D]``, the result of one group."""
        count, (kv_heads, _, width) = len(group.views), folded.shape
        if group.leading is not None:
            query = folded[:, : group.folded].unsqueeze(0)
        else:
            picked = folded.index_select(1, group.source)
            query = picked.view(kv_heads, count, group.folded, width).transpose(0, 1)
        if start is not None:
            seen = cache.narrow(0, start, group.keys).unsqueeze(0)
        else:
            seen = cache.index_select(0, group.slots()).view(count, group.keys, *cache.shape[1:])
        key, value = seen.permute(2, 0, 3, 1, 4).unbind(0)
        mask = group.mask(window)
        if count * kv_heads == 1:
            # With a single matrix the kernel's threads would split the products themselves, in
            # ways that depend on the number of rows. Two equal ones are a thread's work each.
            query, key, value = (x.expand(2, -1, -1, -1) for x in (query, key, value))
            mask = mask.expand(2, -1, -1, -1)
        result = F.scaled_dot_product_attention(query, key, value, mask, scale=self._scale)
        return result[:count]


def _leading_rows(views: list[View], folded: int, num_rows: int, group_size: int) -> int | None:
    """Count the folded rows, when one view holds the batch's first rows in order.

    Then the padding may be whatever rows follow, and nothing needs to be picked or scattered.
    """
    rows = views[0].rows
    alone = len(views) == 1 and folded <= num_rows * group_size
    if not alone or not np.array_equal(rows, np.arange(len(rows))):
        return None
    return len(rows) * group_size


def _run_start(slots: np.ndarray) -> int | None:
    """Return the first slot when they ascend one by one, else None."""
    if len(slots) == 0 or not np.array_equal(slots, np.arange(slots[0], slots[0] + len(slots))):
        return None
    return int(slots[0])


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _to_device(array: np.ndarray, device: torch.device) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, dtype=np.int64)).to(device)
