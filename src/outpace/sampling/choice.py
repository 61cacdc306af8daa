"""Choosing a token from a distribution with noise that belongs to its position."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from outpace.sampling.noise import Stream, gumbel, tail_gumbel, uniform

HEAD_SIZE = 64


def choose(probs: Tensor, seed: int, position: int) -> int:
    """Draw a token exactly from ``probs`` as a pure function of probs, seed and position.

    The Gumbel-max trick (Gumbel 1954; Maddison et al. 2014) on the ``HEAD_SIZE`` likeliest
    tokens, with all other tokens as one more candidate: the largest of their perturbed
    log-probabilities has the distribution of one Gumbel variable shifted by the log of their
    sum. If that candidate wins, one uniform picks the token within the tail. This costs a top-k
    instead of a hash for each of the vocabulary's tokens, and still couples to any drafter that
    uses the same noise (Daliri et al. 2025, arXiv 2408.07978).

    Args:
        probs: ``[vocab]`` float32, sums to 1.
        seed: of the sequence.
        position: of the token to be drawn, counted from the start of the prompt.
    """
    head, ids = probs.topk(min(HEAD_SIZE, len(probs)))
    weights = head.numpy().astype(np.float64)
    tokens = ids.numpy()
    with np.errstate(divide="ignore"):
        scores = np.log(weights) + gumbel(seed, position, tokens)
    best = int(scores.argmax())
    tail_mass = _tail_mass(probs, weights)
    if tail_mass > 0 and np.log(tail_mass) + tail_gumbel(seed, position) > scores[best]:
        tail = probs.clone()
        tail[ids] = 0.0
        return draw(tail, uniform(seed, position, Stream.TAIL_TOKEN))
    return int(tokens[best])


def _tail_mass(probs: Tensor, head: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
    """What is left beside the head; 0 when the rest of the vocabulary is filtered out."""
    if len(head) == len(probs) or head[-1] == 0:
        return 0.0
    rest = float(probs.sum(dtype=torch.float64)) - float(head.sum())
    # Below this the difference of two sums is rounding, and the mass beyond any observation.
    return rest if rest > 1e-12 else 0.0


def draw(weights: Tensor, u: float) -> int:
    """Invert the cumulative sum of unnormalised ``weights`` [vocab] at ``u`` in (0, 1)."""
    cumulative = weights.to(torch.float64).cumsum(0)
    total = float(cumulative[-1])
    index = int(torch.searchsorted(cumulative, torch.tensor(u * total, dtype=torch.float64)))
    index = min(index, len(weights) - 1)
    while float(weights[index]) == 0.0:  # rounding at the upper end must not leave the support
        index -= 1
    return index
