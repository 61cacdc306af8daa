"""How close a decision was: the difference between a near-tie and an error of logic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from outpace.model.batch import Batch
from outpace.model.runner import ModelRunner
from outpace.request import SamplingParams
from outpace.sampling.processors import TokenHistory
from outpace.sampling.sampler import TokenSampler

_FIRST_SLOT = 16
# Margins beyond this many logits are not told apart: no arithmetic is that wrong.
_WIDEST = 64.0
_PIECES = (1, 2, 3, 5, 8)


@torch.inference_mode()
def row_logits(runner: ModelRunner, tokens: Sequence[int], piece: int | None = None) -> Tensor:
    """Logits ``[len(tokens), vocab]`` of a text computed alone, at once or in pieces.

    What the cache held before is overwritten.
    """
    slots = _FIRST_SLOT + np.arange(len(tokens))
    text = np.array(tokens, dtype=np.int64)
    rows = []
    size = piece or len(text)
    for start in range(0, len(text), size):
        stop = min(start + size, len(text))
        batch = Batch()
        batch.append_run(text[start:stop], start, slots[:stop])
        batch.logits_rows.extend(range(stop - start))
        rows.append(runner.run(batch)[0])
    return torch.cat(rows)


def arithmetic_tolerance(runner: ModelRunner, tokens: Sequence[int]) -> tuple[float, float]:
    """What rounding may do to a logit here.

    Returns:
        The largest difference seen between the logits of the same rows computed at once and in
        pieces, and the margin up to which a decision counts as a near-tie: four times that, and
        at least two units in the last place of the largest logit.
    """
    whole = row_logits(runner, tokens)
    seen = max(float((row_logits(runner, tokens, piece) - whole).abs().max()) for piece in _PIECES)
    unit = torch.finfo(runner.decoder.dtype).eps * float(whole.abs().max())
    return seen, max(4 * seen, 2 * unit)


def decision_margin(
    sampler: TokenSampler,
    logits: Tensor,
    history: TokenHistory,
    position: int,
    chosen: int,
    other: int,
) -> float | None:
    """How far two logits would have to move towards each other for the other to be chosen.

    It covers whatever decides: the greedy maximum, the noise of a sampled token, and a filter
    at whose edge one of them stands.

    Args:
        sampler: of the request.
        logits: ``[vocab]`` at the position.
        history: the tokens before it.
        position: counted from the start of the prompt.
        chosen: what plain decoding chose.
        other: what was chosen instead.

    Returns:
        The distance in logits; None if no distance makes ``other`` the choice.
    """

    def flips(distance: float) -> bool:
        moved = logits.clone()
        moved[chosen] -= distance / 2
        moved[other] += distance / 2
        return sampler.choose(moved, history, position) == other

    if not flips(_WIDEST):
        return None
    low, high = 0.0, _WIDEST
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if flips(middle) else (middle, high)
    return high


def end_tokens(runner: ModelRunner, params: SamplingParams) -> frozenset[int]:
    """The tokens that end a sequence of these parameters."""
    config = runner.decoder.config
    eos = frozenset(t for t in config.eos_token_ids if t < config.vocab_size)
    stops = frozenset(params.stop_token_ids)
    return stops if params.ignore_eos else stops | eos
