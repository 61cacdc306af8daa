"""Linear layers: the plain one, and the prepacked one for CPUs.

The only file that calls private operators of PyTorch. They are looked for and tried before they
are used; without them the plain layer computes the same, only slower.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor


class Linear(Protocol):
    """``x [rows, in] -> [rows, out]``."""

    def __call__(self, x: Tensor, /) -> Tensor:
        """Multiply by the weight and add the bias."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class PlainLinear:
    """``F.linear`` on a weight ``[out, in]``."""

    weight: Tensor
    bias: Tensor | None

    def __call__(self, x: Tensor, /) -> Tensor:
        """Multiply by the weight and add the bias."""
        return F.linear(x, self.weight, self.bias)


class PackedLinear:
    """A weight ``[out, in]`` reordered once for oneDNN: two to four times as fast on few rows."""

    __slots__ = ("_bias", "_operator", "_packed")

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        # The packing is done for a typical number of rows; it does not bind the later calls.
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, 4)
        self._operator = torch.ops.mkldnn._linear_pointwise.default
        self._bias = bias

    def __call__(self, x: Tensor, /) -> Tensor:
        """Multiply by the weight and add the bias."""
        result: Tensor = self._operator(x, self._packed, self._bias, "none", [], "")
        return result


def make_linear(weight: Tensor, bias: Tensor | None) -> Linear:
    """Choose the layer for ``weight [out, in]`` by its dtype and device."""
    if weight.device.type == "cpu" and packing_works(weight.dtype):
        return PackedLinear(weight, bias)
    return PlainLinear(weight, bias)


@functools.cache
def packing_works(dtype: torch.dtype) -> bool:
    """Whether the private operators exist here, agree with the plain layer, and keep their bits.

    For bf16 a processor without AVX-512 (or AVX-NE-CONVERT) has none: the operator refuses.
    """
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(96, 160, generator=generator).to(dtype)
    bias = torch.randn(96, generator=generator).to(dtype)
    x = torch.randn(33, 160, generator=generator).to(dtype)
    try:
        layer = PackedLinear(weight, bias)
        result = layer(x)
        alone = [layer(x[:rows].contiguous()) for rows in (2, 3, 5, 8, 17)]
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
    reference = F.linear(x.double(), weight.double(), bias.double())
    tolerance = 2e-2 if dtype == torch.bfloat16 else 1e-4
    agrees = torch.allclose(result.double(), reference, rtol=tolerance, atol=10 * tolerance)
    return agrees and all(torch.equal(part, result[: part.shape[0]]) for part in alone)


def padded_rows(rows: int, dtype: torch.dtype) -> int:
    """Return the number of rows to compute so that a row's bits do not depend on the others.

    Measured: MKL's fp32 kernels, which serve where packing does not work, take other paths for a
    remainder of less than 4 rows; prepacked bf16 takes another for a single row at some sizes.
    Prepacked fp32 and unpacked bf16 keep their bits at any number.
    """
    packed = packing_works(dtype)
    if dtype == torch.bfloat16 and packed:
        return max(rows, 2)
    if dtype == torch.float32 and not packed:
        return -(-rows // 4) * 4
    return rows
