"""The target's own layers, or some of them, run ahead of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from outpace.model.batch import Batch
from outpace.model.runner import ModelRunner
from outpace.spec.drafter import Ask, Seen
from outpace.spec.drafters.run_ahead import RunAhead, slots_of
from outpace.spec.tree import DraftTree


class EarlyExitDrafter:
    """Draws a chain from some of the target's layers, its final norm and its head.

    (Elhoushi et al. 2024, "LayerSkip", arXiv 2404.16710; with layers left out in the middle:
    Zhang et al. 2024, "Draft & Verify", arXiv 2309.08168.) There are no weights and no cache of
    its own: for the context it reads what the target has computed. Its guesses write to the slots
    behind it, all of which the target's pass writes anew, in every layer and before it reads them,
    so that nothing of a draft remains.

    Args:
        runner: the target with its own cache, that runs some of its layers only.
        block_size: tokens in a cache block.
    """

    name = "early_exit"
    sources: tuple[str, ...] = ("early_exit",)
    taps: tuple[int, ...] | None = None

    def __init__(self, runner: ModelRunner, block_size: int) -> None:
        self._runner = runner
        self._block_size = block_size
        self._computed: dict[int, int] = {}  # tokens in the target's cache, by sequence

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        """A chain of ``budget`` tokens for each sequence in the midst of its answer."""
        runs = {ask.seq_id: RunAhead.from_ask(ask) for ask in asks if self._is_ready(ask)}
        tables = {run.ask.seq_id: slots_of(run.ask, self._block_size) for run in runs.values()}
        active = [run for run in runs.values() if not run.is_done]
        while active:
            logits = self._forward(active, tables)
            for run, row in zip(active, logits, strict=True):
                run.guess(row)
            active = [run for run in active if not run.is_done]
        waiting = DraftTree(reason="the target has not computed the text before the draft yet")
        return [runs[ask.seq_id].tree(self.name) if ask.seq_id in runs else waiting for ask in asks]

    def _is_ready(self, ask: Ask) -> bool:
        """Whether all but the last known token are in the target's cache.

        Otherwise a piece of the prompt comes with this step: to compute it twice would cost more
        than a draft brings.
        """
        return self._computed.get(ask.seq_id, 0) == len(ask.token_ids) - 1

    def _forward(self, runs: Sequence[RunAhead], tables: dict[int, NDArray[np.int64]]) -> Tensor:
        """Logits ``[len(runs), vocab]`` after all that each run has so far."""
        batch = Batch()
        for run in runs:
            known = run.ask.token_ids
            last = run.tokens[-1] if run.tokens else int(known[-1])
            position = len(known) - 1 + len(run.tokens)
            row = batch.append_run(
                np.array([last]), position, tables[run.ask.seq_id][: position + 1]
            )
            batch.logits_rows.append(row)
        return self._runner.run(batch)[0]

    def observe(self, seen: Sequence[Seen]) -> None:
        """Count what the target has in its cache."""
        for one in seen:
            self._computed[one.seq_id] = one.start + len(one.token_ids)

    def forget(self, seq_id: int) -> None:
        """The blocks are gone."""
        self._computed.pop(seq_id, None)
