"""What the rows of a batch see, as the compiled attention wants it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outpace.kernels.stack import Seen
from outpace.model.batch import Batch, View, joined
from outpace.model.rope import Rope


def rows_seen(batch: Batch, rope: Rope) -> Seen:
    """One step's rows: what is the same in all layers is made once.

    A row's result depends on the slots that it sees, in the order of their positions, and on
    nothing else: draft trees are as exact as chains, under either kind of view.

    Args:
        batch: the rows and what they see. Each row is in exactly one view.
        rope: turns positions into angles.
    """
    positions = torch.from_numpy(joined(batch.positions))
    targets = torch.from_numpy(joined(batch.slots))
    return Seen(positions, rope.tables(positions), targets, *_tables(batch))


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
