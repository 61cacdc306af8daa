"""How far a drafter's distribution q is from the target's p, and the gradient of that.

A draft token is accepted with probability sum(min(p, q)) under the rejection rule (Leviathan et
al. 2023, arXiv 2211.17192), which is 1 minus the total variation: losses near it aim at what is
wanted, forward KL has the better gradients where q is still far off.

Over a vocabulary the passes over memory are what a loss costs, so value and gradient are computed
together, in closed form. With m = [q < p] and a = sum(min(p, q)), for logits z of q:

    d KL(p || q) / dz = q - p              d a / dz = q (m - sum(q m))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

LossName = Literal["kl", "tv", "acceptance", "mix"]
LOSSES: tuple[str, ...] = get_args(LossName)

_SMALLEST = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """Rows of q against rows of p.

    Attributes:
        loss: ``[rows]``.
        overlap: ``[rows]`` sum(min(p, q)).
        gradient: ``[rows, vocab]`` of each row's loss by the logits of q.
    """

    loss: Tensor
    overlap: Tensor
    gradient: Tensor


def compare(p: Tensor, logits: Tensor, name: LossName) -> Compared:
    """Loss and gradient by the row.

    Args:
        p: ``[rows, vocab]`` float32 probabilities of the target.
        logits: ``[rows, vocab]`` float32, of q; used up.
        name: ``kl`` is KL(p || q); ``tv`` the total variation, 1 - sum(min(p, q));
            ``acceptance`` is -log sum(min(p, q)), whose gradient is that of ``tv`` divided by the
            overlap, so that it does not vanish where nothing overlaps yet; ``mix`` the mean of
            ``kl`` and ``acceptance``.
    """
    log_sum = logits.logsumexp(-1)
    kl = log_sum - torch.linalg.vecdot(p, logits) - torch.special.entr(p).sum(-1)
    q = logits.sub_(log_sum[:, None]).exp_()
    overlap = torch.minimum(p, q).sum(-1)
    if name == "kl":
        return Compared(kl, overlap, q.sub_(p))
    below = (q < p).to(q.dtype).mul_(q)  # q m
    rising = below - q * below.sum(-1, keepdim=True)
    if name == "tv":
        return Compared(1 - overlap, overlap, rising.neg_())
    safe = overlap.clamp_min(_SMALLEST)
    rising.div_(safe[:, None])
    if name == "acceptance":
        return Compared(-safe.log(), overlap, rising.neg_())
    loss = 0.5 * (kl - safe.log())
    return Compared(loss, overlap, q.sub_(p).sub_(rising).mul_(0.5))
