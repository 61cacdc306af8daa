"""The likeliest next tokens by what a head says, under a request's parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from outpace.sampling.noise import gumbel
from outpace.sampling.processors import TokenHistory
from outpace.spec.drafter import Ask

# Among how many times as many candidates the target's noise may choose.
_NOISE_REACH = 4


class HeadTokens(Protocol):
    """From a head's own token ids to the target's."""

    def targets(self, own: Tensor) -> Tensor:
        """The target's ids of the head's."""
        ...

    def full(self, logits: Tensor) -> Tensor:
        """Logits over the target's vocabulary; minus infinity for what the head cannot say."""
        ...


class Row(NamedTuple):
    """Where in a draft a row of logits belongs.

    ``history`` has the tokens before the ones that are ranked; ``depth`` is how many guesses
    stand between these and the last known token.
    """

    history: TokenHistory
    depth: int


def likeliest(
    ask: Ask, tokens: HeadTokens, logits: Tensor, rows: Sequence[Row], top_k: int
) -> list[tuple[list[int], list[float]]]:
    """For each row up to ``top_k`` tokens, the best first, and the logarithms of their chances.

    A sampled token under coupled verification is the target's choice with noise that is known
    beforehand: tokens are then ranked with that noise added, and their chances are those among
    the candidates, given the noise, if the head were as good as the target.

    Args:
        ask: what is drafted for.
        tokens: of the head.
        logits: ``[len(rows), draft_vocab]`` float32, on the CPU.
        rows: where they belong.
        top_k: at least 1.
    """
    sampler = ask.sampler
    if sampler.params.greedy and sampler.leaves_alone(ask.history):
        scores, own = logits.log_softmax(-1).topk(min(top_k, logits.shape[1]))
        return list(zip(tokens.targets(own).tolist(), scores.tolist(), strict=True))
    rank = _ranked_greedy if sampler.params.greedy else _ranked_sampled
    return [rank(ask, tokens.full(one), row, top_k) for one, row in zip(logits, rows, strict=True)]


def _ranked_greedy(ask: Ask, logits: Tensor, row: Row, top_k: int) -> tuple[list[int], list[float]]:
    processed = ask.sampler.processed(logits, row.history)
    scores, ids = processed.log_softmax(-1).topk(min(top_k, len(processed)))
    return _possible(ids, scores)


def _ranked_sampled(
    ask: Ask, logits: Tensor, row: Row, top_k: int
) -> tuple[list[int], list[float]]:
    probs = ask.sampler.probs(logits, row.history)
    reach = top_k if ask.wants_probs else _NOISE_REACH * top_k
    values, ids = probs.topk(min(reach, len(probs)))
    scores = values.log()
    if not ask.wants_probs:
        noise = gumbel(ask.sampler.seed, len(ask.token_ids) + row.depth, ids.numpy())
        perturbed = scores + torch.from_numpy(noise)
        scores, order = perturbed.log_softmax(-1).sort(descending=True)
        scores, ids = scores[:top_k], ids[order[:top_k]]
    return _possible(ids, scores)


def _possible(ids: Tensor, scores: Tensor) -> tuple[list[int], list[float]]:
    """Without what is impossible."""
    kept = scores > -torch.inf
    return ids[kept].tolist(), scores[kept].tolist()
