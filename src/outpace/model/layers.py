"""The row-wise parts of a decoder layer: norm and gated activation.

Both are composed so that a row's bits do not depend on the other rows of the batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

# Elementwise CPU kernels of PyTorch run on one thread below this many elements, and otherwise cut
# the flat tensor into one equal piece a thread (at::internal::GRAIN_SIZE, at::parallel_for).
_GRAIN = 32_768
# Elements a vectorized loop takes at a time, at most: two AVX-512 registers of bf16.
_STRIDE = 64


@dataclass(frozen=True, slots=True, eq=False)
class RMSNorm:
    """Root-mean-square norm over the last dimension; the weight may have one row a head."""

    weight: Tensor
    eps: float
    eps_tensor: Tensor

    def __call__(self, x: Tensor, /) -> Tensor:
        """``x [..., width] -> [..., width]``, computed in float32."""
        width = x.shape[-1]
        if x.is_cuda and self.weight.dim() == 1:
            return F.rms_norm(x, (width,), self.weight, self.eps)
        # F.rms_norm is eight kernels on CPU; by way of the 2-norm it takes five.
        norm = torch.linalg.vector_norm(x, 2, -1, True, dtype=torch.float32)
        inverse = torch.addcmul(self.eps_tensor, norm, norm, value=1.0 / width).rsqrt_()
        return (x * inverse).to(x.dtype).mul_(self.weight)


def make_norm(weight: Tensor, eps: float) -> RMSNorm:
    """Make an :class:`RMSNorm` with ``weight [width]`` or ``[heads, width]``."""
    return RMSNorm(weight, eps, torch.tensor(eps, dtype=torch.float32, device=weight.device))


def silu_and_mul(gate_up: Tensor) -> Tensor:
    """``gate_up [rows, 2 * inner] -> silu(gate) * up``, of the shape ``[rows, inner]``.

    silu's vectorized exponential differs in the last bit from the scalar one that ends each
    loop. The gate is a strided slice, so every row is a loop of its own and ends at the same
    column whatever the batch, unless a thread's piece ends within a row. Where that would put
    other columns at the end of a loop, the rows are done in groups that one thread does whole.
    """
    inner = gate_up.shape[-1] // 2
    gate, up = gate_up[:, :inner], gate_up[:, inner:]
    rows = gate_up.shape[0]
    if gate_up.device.type != "cpu" or _pieces_keep_rows(rows, inner):
        return F.silu(gate).mul_(up)
    return _silu_in_groups(gate).mul_(up)


def _silu_in_groups(gate: Tensor) -> Tensor:
    """Compute silu in pieces that are too small to be cut, or that end where a vector ends."""
    columns = min(gate.shape[1], _GRAIN - _STRIDE)
    size = max(1, (_GRAIN - 1) // columns)
    return torch.cat(
        [
            torch.cat([F.silu(piece) for piece in torch.split(part, columns, 1)], 1)
            for part in torch.split(gate, size)
        ]
    )


def _pieces_keep_rows(rows: int, inner: int) -> bool:
    total = rows * inner
    if total < _GRAIN:
        return True
    threads = min(torch.get_num_threads(), -(-total // _GRAIN))
    piece = -(-total // threads)
    return piece % inner == 0 or (inner % _STRIDE == 0 and piece % _STRIDE == 0)
