"""Muon, in numbers that the processor multiplies fast."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from outpace.train.arithmetic import narrow_dtype

# The quintic whose repeated application brings all singular values near 1, and how often.
_QUINTIC = (3.4445, -4.775, 2.0315)
_TIMES = 5
_LEAST_NORM = 1e-7
# Updates as large as AdamW's usually are, so that both have alike rates (Liu et al. 2025, eq. 4).
_LIKE_ADAMW = 0.2


class Muon(torch.optim.Optimizer):
    """Momentum whose update of a matrix is made orthogonal (Jordan et al. 2024, "Muon").

    The same as ``torch.optim.Muon`` with Nesterov's momentum and ``match_rms_adamw``, without
    decay; but that one multiplies bfloat16 on every device, which took nearly all of a training
    step on processors that have no instructions for it.

    Args:
        params: matrices, or groups of them as in all optimizers.
        lr: learning rate.
        momentum: share of the past in the running mean of gradients.
    """

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, momentum: float = 0.95) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Move each matrix that has a gradient."""
        if closure is not None:
            raise NotImplementedError("gradients are computed before a step")
        for group in self.param_groups:
            for matrix in group["params"]:
                if matrix.grad is not None:
                    self._move(matrix, matrix.grad, group["lr"], group["momentum"])

    def _move(self, matrix: Tensor, gradient: Tensor, rate: float, momentum: float) -> None:
        state = self.state[matrix]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        mean = state["momentum_buffer"].lerp_(gradient, 1 - momentum)
        ahead = gradient.lerp(mean, momentum)
        update = orthogonal(ahead, narrow_dtype(matrix.device))
        scale = _LIKE_ADAMW * math.sqrt(max(matrix.shape))
        matrix.add_(update, alpha=-rate * scale)


def orthogonal(matrix: Tensor, dtype: torch.dtype) -> Tensor:
    """About U Vᵀ of the singular value decomposition U S Vᵀ, by Newton and Schulz's iteration.

    Args:
        matrix: ``[n, m]``.
        dtype: in which products are computed; the result has it too.
    """
    a, b, c = _QUINTIC
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.to(dtype, copy=True)
    x = x.T if tall else x
    x.div_(x.norm().clamp(min=_LEAST_NORM))
    for _ in range(_TIMES):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x
