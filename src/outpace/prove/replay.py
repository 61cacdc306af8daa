"""The target answered from a record: many draws at the price of a few forward passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outpace.cache.pools import KVPool
from outpace.model.batch import Batch
from outpace.model.decoder import Hidden
from outpace.model.runner import ModelRunner

# The cache reserves the slots before this one for padding.
_FIRST_SLOT = 16


@dataclass(frozen=True, slots=True)
class _Row:
    """What the target computes at one token, given all before it."""

    logits: Tensor
    last: Tensor
    taps: Tensor | None


class RecordedRunner:
    """Stands for a `ModelRunner`: each row is computed once for each context that it sees.

    It keeps no keys and values but the *tokens* that they belong to, by slot. The context of a
    row is read from the slots that its view sees, so that a wrong slot, a wrong order or a move
    that was forgotten shows as a wrong context, just as with a real cache. Short samples meet
    the same few contexts thousands of times.
    """

    def __init__(self, runner: ModelRunner) -> None:
        self.decoder = runner.decoder
        self.pool = cast(KVPool, self)  # for `move`
        self.num_passes = 0
        self._runner = runner
        self._tokens: NDArray[np.int64] = np.zeros(runner.pool.num_slots, dtype=np.int64)
        self._rows: dict[tuple[bytes, tuple[int, ...]], _Row] = {}

    def move(self, source: list[int], target: list[int]) -> None:
        """Copy what slots ``source`` hold to slots ``target``, as `KVPool.move` does."""
        self._tokens[target] = self._tokens[source]

    def run(self, batch: Batch, taps: tuple[int, ...] = ()) -> tuple[Tensor, Hidden]:
        """See `ModelRunner.run`."""
        self._tokens[np.concatenate(batch.slots)] = np.concatenate(batch.token_ids)
        rows: dict[int, _Row] = {}
        for view in batch.views:
            seen = self._tokens[view.slots]
            for row, visible in zip(view.rows.tolist(), view.visible(None), strict=True):
                rows[row] = self._row(seen[visible], taps)
        ordered = [rows[index] for index in range(batch.num_rows)]
        last = torch.stack([row.last for row in ordered])
        tapped = [row.taps for row in ordered if row.taps is not None]
        hidden = Hidden(last, torch.stack(tapped) if tapped else None)
        if not batch.logits_rows:
            return torch.empty(0, self.decoder.config.vocab_size), hidden
        return torch.stack([ordered[index].logits for index in batch.logits_rows]), hidden

    def logits(self, context: tuple[int, ...]) -> Tensor:
        """The logits ``[vocab]`` after a context."""
        return self._row(np.array(context, dtype=np.int64), ()).logits

    def _row(self, context: NDArray[np.int64], taps: tuple[int, ...]) -> _Row:
        found = self._rows.get((context.tobytes(), taps))
        if found is None:
            self._record(context, taps)
            found = self._rows[context.tobytes(), taps]
        return found

    @torch.inference_mode()
    def _record(self, context: NDArray[np.int64], taps: tuple[int, ...]) -> None:
        """Compute a context in one pass, and with it all its beginnings."""
        batch = Batch()
        batch.append_run(context, 0, _FIRST_SLOT + np.arange(len(context)))
        batch.logits_rows.extend(range(len(context)))
        logits, hidden = self._runner.run(batch, taps)
        self.num_passes += 1
        for i in range(len(context)):
            key = context[: i + 1].tobytes(), taps
            if key not in self._rows:
                tapped = None if hidden.taps is None else hidden.taps[i].clone()
                self._rows[key] = _Row(logits[i].clone(), hidden.last[i].clone(), tapped)
