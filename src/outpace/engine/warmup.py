"""What is found out about a loaded model before the first request."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from outpace.model.batch import Batch
from outpace.model.runner import ModelRunner


@torch.inference_mode()
def has_finite_logits(runner: ModelRunner) -> bool:
    """Whether a forward pass yields numbers; damaged weights often do not."""
    batch = Batch()
    batch.append_run(np.arange(2), 0, np.zeros(2, np.int64))
    batch.logits_rows.extend(range(2))
    logits = runner.run(batch)[0]
    # A draft may leave tokens out: minus infinity is a number here, but not everywhere.
    broken = logits.isnan() | (logits == torch.inf)
    return bool(torch.isfinite(logits).any(1).all()) and not bool(broken.any())


@torch.inference_mode()
def is_batch_invariant(runner: ModelRunner, block_size: int, length: int = 5) -> bool:
    """Whether this model on this machine gives a token the same bits however it is batched.

    The rules that make it so were established on some processors; on others they are put to
    the test here: a short text computed at once and in pieces of one, two and more rows.
    """
    generator = np.random.default_rng(0)
    text = generator.integers(0, runner.decoder.config.vocab_size, length)
    slots = block_size + np.arange(length)  # behind the null block; nothing lives there yet
    alone = _logits(runner, text, slots, pieces=(length,))
    one_first = _logits(runner, text, slots, pieces=(1, length - 1))
    two_first = _logits(runner, text, slots, pieces=(2, length - 2))
    return torch.equal(alone, one_first) and torch.equal(alone, two_first)


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
