"""From scheduled parts and their draft trees to the rows of one forward pass, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outpace.cache.blocks import slots
from outpace.config import TreeAttention
from outpace.engine.scheduler import Scheduled
from outpace.model.batch import Batch, View
from outpace.spec.tree import DraftTree


@dataclass(frozen=True, slots=True)
class Segment:
    """A part with its draft and its place in the batch.

    Row ``first_row`` is the first known token's; node i has row ``root_row + 1 + i``. The logits
    rows ``first_logits_row`` and following are those of the root and the nodes.
    """

    part: Scheduled
    tree: DraftTree
    first_row: int
    first_logits_row: int

    @property
    def root_row(self) -> int:
        """The batch row of the last known token."""
        return self.first_row + self.part.num_known - 1

    def rows_of(self, path: Sequence[int]) -> list[int]:
        """The batch rows of the known tokens and of the nodes on an accepted path."""
        return [*range(self.first_row, self.root_row + 1), *(self.root_row + 1 + n for n in path)]


def build_batch(
    parts: Sequence[Scheduled],
    trees: Sequence[DraftTree],
    block_size: int,
    tree_attention: TreeAttention,
) -> tuple[Batch, list[Segment]]:
    """Lay out a step: known tokens and nodes of each part, one after the other."""
    batch = Batch()
    segments: list[Segment] = []
    for part, tree in zip(parts, trees, strict=True):
        sequence = part.sequence
        start = sequence.num_computed
        known = sequence.tokens.array[start : start + part.num_known]
        stop = start + len(known)
        all_slots = slots(sequence.table.blocks, 0, stop + len(tree), block_size)
        positions = np.concatenate(
            [np.arange(start, stop), stop - 1 + np.array(tree.depths, dtype=np.int64)]
        )
        token_ids = np.concatenate([known, np.array(tree.tokens, dtype=np.int64)])
        first = batch.append(token_ids, positions, all_slots[start:])
        build = _path_views if tree_attention == "paths" or tree.is_chain else _masked_view
        batch.views.extend(build(tree, first, start, stop, all_slots))
        segments.append(Segment(part, tree, first, len(batch.logits_rows)))
        if part.completes:
            root = first + len(known) - 1
            batch.logits_rows.extend(range(root, root + 1 + len(tree)))
    return batch, segments


def _path_views(
    tree: DraftTree, first: int, start: int, stop: int, all_slots: NDArray[np.int64]
) -> list[View]:
    """One causal view for each root-to-leaf path, with the path's own keys in order.

    Each node then meets its ancestors at the key slots where plain decoding would have them,
    and its sums are formed in the same order: equal bit for bit. A node on several paths is
    computed on the first of them.
    """
    num_known = stop - start
    context = np.arange(stop)
    views: list[View] = []
    done: set[int] = set()
    for path in tree.paths or ((),):
        fresh = [node for node in path if node not in done]
        done.update(fresh)
        rows = np.array([first + num_known + node for node in fresh], dtype=np.int64)
        positions = stop - 1 + np.array([tree.depths[node] for node in fresh], dtype=np.int64)
        if not views:  # the first path also carries the known tokens
            rows = np.concatenate([np.arange(first, first + num_known), rows])
            positions = np.concatenate([np.arange(start, stop), positions])
        key_index = np.concatenate([context, stop + np.array(path, dtype=np.int64)])
        keys = np.arange(stop + len(path))
        views.append(View(rows, positions, all_slots[key_index], keys, None))
    return views


def _masked_view(
    tree: DraftTree, first: int, start: int, stop: int, all_slots: NDArray[np.int64]
) -> list[View]:
    """One view for the whole tree: a node sees the context and its ancestors."""
    num_known, size = stop - start, len(tree)
    depths = np.array(tree.depths, dtype=np.int64)
    key_positions = np.concatenate([np.arange(stop), stop - 1 + depths])
    positions = key_positions[start:]
    mask = np.zeros((num_known + size, stop + size), dtype=bool)
    mask[:num_known, :stop] = np.arange(stop) <= np.arange(start, stop)[:, None]
    mask[num_known:, :stop] = True
    for node, ancestors in enumerate(tree.ancestors):
        mask[num_known + node, stop:] = [ancestors >> other & 1 for other in range(size)]
    rows = np.arange(first, first + num_known + size)
    return [View(rows, positions, all_slots, key_positions, mask)]
