"""What is done to a few rows outside of the layers: looked up in a table, normed."""

from __future__ import annotations

from types import ModuleType

import torch
from torch import Tensor

from outpace.kernels.native import KernelLinear, kernels
from outpace.kernels.packing import Packed


class KernelTable:
    """The rows of an embedding table, out of a packed weight."""

    def __init__(self, weight: Packed, module: ModuleType | None = None) -> None:
        module = module or kernels().module
        assert module is not None
        self._look_up = module.look_up
        self._width = weight.inputs
        self._table = KernelLinear(weight, module=module)

    def __call__(self, ids: Tensor) -> Tensor:
        """``ids [N]`` int64, contiguous, to ``[N, inputs]`` float32.

        Raises:
            IndexError: the table has no such row.
        """
        found = torch.empty(len(ids), self._width)
        self._look_up(*self._table.arguments, ids.data_ptr(), len(ids), found.data_ptr())
        return found


class KernelNorm:
    """A root-mean-square norm of rows.

    Args:
        weight: ``[width]`` float32.
        eps: added to the mean square.
    """

    def __init__(self, weight: Tensor, eps: float, module: ModuleType | None = None) -> None:
        module = module or kernels().module
        assert module is not None
        self._norm = module.norm
        self._weight = weight
        self._eps = eps

    def __call__(self, x: Tensor) -> Tensor:
        """``x [N, width]`` float32 to the same shape."""
        x = x.contiguous()
        out = torch.empty_like(x)
        self._norm(x.data_ptr(), *x.shape, self._weight.data_ptr(), self._eps, out.data_ptr())
        return out
