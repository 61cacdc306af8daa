"""What is found out about a loaded model before the first request."""

from __future__ import annotations

import statistics
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from outpace.model.runner import Batch, ModelRunner

_ROWS = (1, 2, 4, 5, 8, 9, 16, 32)


@torch.inference_mode()
def measure_step_times(runner: ModelRunner, repeats: int = 3) -> dict[int, float]:
    """Seconds of a forward pass with logits, by rows: the median of a few."""
    times: dict[int, list[float]] = {rows: [] for rows in _ROWS}
    for repeat in range(repeats + 1):
        for rows in _ROWS:
            batch = Batch()
            # Slot 0 is the padding's: what is read and written there matters to nobody.
            batch.append_run(np.zeros(rows, np.int64), 0, np.zeros(rows, np.int64))
            batch.logits_rows.extend(range(rows))
            began = perf_counter()
            runner.run(batch)
            if repeat > 0:  # the first round warms up
                times[rows].append(perf_counter() - began)
    return {rows: statistics.median(seconds) for rows, seconds in times.items()}


@torch.inference_mode()
def is_batch_invariant(runner: ModelRunner, block_size: int, length: int = 7) -> bool:
    """Whether this model on this machine gives a token the same bits however it is batched.

    The rules that make it so were established on some processors; on others they are put to
    the test here: a short text computed at once, beside another, and token by token.
    """
    generator = np.random.default_rng(0)
    text = generator.integers(0, runner.decoder.config.vocab_size, length)
    slots = block_size + np.arange(length)  # behind the null block; nothing lives there yet
    alone = _logits(runner, text, slots, pieces=(length,))
    stepwise = _logits(runner, text, slots, pieces=(1,) * length)
    halves = _logits(runner, text, slots, pieces=(3, length - 3))
    return torch.equal(alone, stepwise) and torch.equal(alone, halves)


def _logits(
    runner: ModelRunner, text: np.ndarray, slots: np.ndarray, pieces: tuple[int, ...]
) -> Tensor:
    """The logits of every token of ``text``, computed in pieces of these lengths."""
    rows: list[Tensor] = []
    start = 0
    for piece in pieces:
        batch = Batch()
        stop = start + piece
        batch.append_run(text[start:stop], start, slots[:stop])
        batch.logits_rows.extend(range(piece))
        rows.append(runner.run(batch)[0])
        start = stop
    return torch.cat(rows)
