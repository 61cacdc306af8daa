"""Choosing a token from a distribution with noise that belongs to its position."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from outpace.sampling.noise import Stream, gumbel, tail_gumbel, uniform

LIKELY = 2.0**-13


def choose(probs: Tensor, seed: int, position: int) -> int:
    """Draw a token exactly from ``probs`` as a pure function of probs, seed and position.

    The Gumbel-max trick (Gumbel 1954; Maddison et al. 2014) on the tokens that are at least
    ``LIKELY``, with all others as one more candidate: the largest of their perturbed
    log-probabilities has the distribution of one Gumbel variable shifted by the log of their
    sum. If that candidate wins, one uniform picks the token among them. This costs a comparison
    instead of a hash for each of the vocabulary's tokens, and still couples to any drafter that
    uses the same noise (Daliri et al. 2025, arXiv 2408.07978).

    Args:
        probs: ``[vocab]`` float32, sums to 1.
        seed: of the sequence.
        position: of the token to be drawn, counted from the start of the prompt.
    """
    values = probs.numpy()
    tokens = np.flatnonzero(values >= LIKELY)
    head = values[tokens].astype(np.float64)
    tail_mass = float(probs.sum()) - float(head.sum())
    best, best_score = int(values.argmax()), -np.inf  # a token even where all are unlikely
    if len(tokens):
        scores = np.log(head) + gumbel(seed, position, tokens)
        winner = int(scores.argmax())
        best, best_score = int(tokens[winner]), float(scores[winner])
    # A smaller rest is the rounding of two sums, and where filters were at work there is none.
    if tail_mass > 1e-6 and np.log(tail_mass) + tail_gumbel(seed, position) > best_score:
        tail = torch.where(probs < LIKELY, probs, 0.0)
        if float(tail.sum()) > 0:
            return draw(tail, uniform(seed, position, Stream.TAIL_TOKEN))
    return best


def draw(weights: Tensor, u: float) -> int:
    """Invert the cumulative sum of unnormalised ``weights`` [vocab] at ``u`` in (0, 1)."""
    cumulative = weights.to(torch.float64).cumsum(0)
    total = float(cumulative[-1])
    index = int(torch.searchsorted(cumulative, torch.tensor(u * total, dtype=torch.float64)))
    index = min(index, len(weights) - 1)
    while float(weights[index]) == 0.0:  # rounding at the upper end must not leave the support
        index -= 1
    return index
