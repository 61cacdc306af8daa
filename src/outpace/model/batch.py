"""The rows of one forward pass, and what each of them sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """What some query rows see: one a request, or one a root-to-leaf path of its draft tree.

    Attributes:
        rows: ``[n]`` indices of the query rows in the flat batch.
        positions: ``[n]`` their positions.
        slots: ``[L]`` cache slots of the keys, in the order in which attention shall see them.
        key_positions: ``[L]`` positions of the keys.
        mask: ``[n, L]`` bool, True where a row sees a key; None means every key at or before the
            row's position.
    """

    rows: np.ndarray
    positions: np.ndarray
    slots: np.ndarray
    key_positions: np.ndarray
    mask: np.ndarray | None

    def visible(self, window: int | None) -> np.ndarray:
        """``[n, L]`` bool: what each row sees within ``window`` positions, its own included."""
        positions, keys = self.positions[:, None], self.key_positions[None, :]
        seen: np.ndarray = keys <= positions if self.mask is None else self.mask
        return seen if window is None else seen & (keys > positions - window)


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


def joined(pieces: Sequence[NDArray[np.int64]], padding: int = 0) -> NDArray[np.int64]:
    """Join, and fill up with zeros: token 0 at position 0 in the null slot harms nobody."""
    return np.concatenate([*pieces, np.zeros(padding, dtype=np.int64)])
