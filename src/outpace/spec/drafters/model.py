"""An independent small model that runs ahead of the target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outpace.model.batch import Batch
from outpace.model.runner import ModelRunner
from outpace.spec.drafter import Ask, Seen
from outpace.spec.drafters.run_ahead import RunAhead, slots_of
from outpace.spec.tree import DraftTree

_LARGEST_PIECE = 512  # tokens


@dataclass(slots=True)
class _Progress:
    """Which tokens of a sequence the draft model has in its cache.

    ``sure`` counts tokens that are known to be the sequence's; ``guesses`` are those computed
    after them, right or wrong.
    """

    sure: int = 0
    guesses: list[int] = field(default_factory=list)

    def settle(self, ask: Ask) -> int:
        """How many leading tokens of the ask are computed; at least one is left to compute."""
        known = ask.token_ids
        for guess in self.guesses:
            if self.sure >= len(known) or guess != known[self.sure]:
                break
            self.sure += 1
        self.guesses.clear()
        self.sure = min(self.sure, len(known) - 1)
        return self.sure


class ModelDrafter:
    """Draws a chain from an independent model (Leviathan et al. 2023, arXiv 2211.17192).

    The draft model has a cache of its own on the sequence's block table and catches up with
    what was decided by its own count, so that a step in which all guesses were right, one that
    was drafted by somebody else, and a preemption are all the same to it.

    Args:
        runner: the draft model, whose pool has a slot for each of the target's.
        block_size: tokens in a cache block.
        vocab_size: of the target; the draft's may be padded to another size.
    """

    name = "model"
    sources: tuple[str, ...] = ("model",)
    taps: tuple[int, ...] | None = None

    def __init__(self, runner: ModelRunner, block_size: int, vocab_size: int) -> None:
        self._runner = runner
        self._block_size = block_size
        self._vocab_size = vocab_size
        self._progress: dict[int, _Progress] = {}
        self.max_model_len = runner.decoder.config.max_position_embeddings

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        """A chain of ``budget`` tokens each; nothing past the draft model's own context."""
        obstacles = [self._obstacle(ask) for ask in asks]
        fitting = [ask for ask, reason in zip(asks, obstacles, strict=True) if not reason]
        runs = {ask.seq_id: RunAhead.from_ask(ask) for ask in fitting}
        tables = {ask.seq_id: slots_of(ask, self._block_size) for ask in fitting}
        active = [run for run in runs.values() if not run.is_done]
        for run in active:
            self._catch_up(run.ask, tables[run.ask.seq_id])
        while active:
            logits = self._forward(active, tables)
            for run, row in zip(active, logits, strict=True):
                run.guess(row)
            active = [run for run in active if not run.is_done]
        return [
            DraftTree(reason=reason) if reason else runs[ask.seq_id].tree(self.name)
            for ask, reason in zip(asks, obstacles, strict=True)
        ]

    def _obstacle(self, ask: Ask) -> str:
        """Why this model cannot draft for a sequence; empty if it can."""
        if len(ask.token_ids) + ask.budget > self.max_model_len:
            return f"the draft model's context of {self.max_model_len} tokens is exceeded"
        if int(ask.token_ids.max()) >= self._runner.decoder.config.vocab_size:
            return "the text has a token that the draft model's smaller vocabulary lacks"
        return ""

    def _catch_up(self, ask: Ask, table: NDArray[np.int64]) -> None:
        """Compute long stretches of known tokens in pieces of bounded memory."""
        progress = self._progress.setdefault(ask.seq_id, _Progress())
        known = ask.token_ids
        while len(known) - (start := progress.settle(ask)) > _LARGEST_PIECE:
            stop = start + _LARGEST_PIECE
            batch = Batch()
            batch.append_run(known[start:stop], start, table[:stop])
            self._runner.run(batch)
            progress.sure = stop

    def _forward(self, runs: Sequence[RunAhead], tables: dict[int, NDArray[np.int64]]) -> Tensor:
        """Logits ``[len(runs), vocab]`` after all that each run has so far."""
        batch = Batch()
        for run in runs:
            progress = self._progress[run.ask.seq_id]
            known = len(run.ask.token_ids)
            if run.tokens:
                start, fresh = known + len(run.tokens) - 1, np.array(run.tokens[-1:])
                progress.guesses.append(run.tokens[-1])
            else:
                start = progress.settle(run.ask)
                fresh = run.ask.token_ids[start:]
                progress.sure = known
            first = batch.append_run(fresh, start, tables[run.ask.seq_id][: start + len(fresh)])
            batch.logits_rows.append(first + len(fresh) - 1)
        logits, _ = self._runner.run(batch)
        return self._fit_vocabulary(logits)

    def _fit_vocabulary(self, logits: Tensor) -> Tensor:
        """Cut or fill the padding in which the draft's vocabulary may differ."""
        extra = self._vocab_size - logits.shape[1]
        if extra > 0:
            return torch.nn.functional.pad(logits, (0, extra), value=-torch.inf)
        return logits[:, : self._vocab_size]

    def observe(self, seen: Sequence[Seen]) -> None:
        """Nothing to learn: tokens are caught up with at the next proposal."""

    def forget(self, seq_id: int) -> None:
        """The blocks are gone, and with them what was computed in them."""
        self._progress.pop(seq_id, None)
