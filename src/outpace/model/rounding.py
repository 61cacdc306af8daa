"""Rounding weights to integers, with scales that are searched for.

Four bits with the range of a group's values are wasteful: one value far out makes the steps wide
for all. A smaller range cuts that value off and serves the others better. Which scale and offset
are best is tried out: some smaller ranges first, then the straight line through the values over
the integers they were rounded to (least squares), and so on from there.
"""

from __future__ import annotations

import torch
from torch import Tensor

from outpace.kernels.packing import Format, Quantized, quantize

SHRINKS = (0.9, 0.8)
REFITS = 3
# What counts as better: more than the rounding of a sum of squares in float32.
_BETTER = 1 - 1e-4
_MOST = 15


def rounded(weight: Tensor, format: Format, group: int) -> Quantized:
    """Round ``weight [outputs, inputs]`` to integers.

    For ``INT4_OFFSET`` no group's squared error is larger than that of ``quantize``, and the sum
    is about an eighth smaller for normal weights; the other formats are ``quantize``'s. The same
    input gives the same integers.

    Args:
        weight: any floating dtype; give some rows at a time, the memory needed is several times
            that of them in float32.
        format: an integer format.
        group: inputs that share a scale; ignored for ``INT8``. The last group may be shorter.
    """
    if format is not Format.INT4_OFFSET:
        return quantize(weight, format, group)
    weight = weight.float()
    whole = weight.shape[1] // group * group
    parts = [_searched(part, min(group, part.shape[1])) for part in _split(weight, whole)]
    stored, scales, offsets = (torch.cat(x, 1) for x in zip(*parts, strict=True))
    return Quantized(format, group, stored, scales, offsets)


def _split(weight: Tensor, whole: int) -> list[Tensor]:
    """The whole groups, and the shorter last one."""
    return [part for part in (weight[:, :whole], weight[:, whole:]) if part.shape[1]]


def _searched(weight: Tensor, group: int) -> tuple[Tensor, Tensor, Tensor]:
    """Integers, scales and offsets of whole groups."""
    search = _Search(weight.reshape(len(weight), -1, group))
    low, scales = search.best()
    stored = search.integers(low, scales).to(torch.uint8).flatten(1)
    return stored, scales[..., 0].half(), low[..., 0].half()


class _Search:
    """Looks for offsets and scales, ``[outputs, groups, 1]`` in float32 with values of fp16.

    Args:
        groups: ``[outputs, groups, inputs of a group]`` float32.
    """

    def __init__(self, groups: Tensor) -> None:
        self._groups = groups
        # For all that is as large as the groups: fresh memory costs more than the arithmetic.
        self._scratch = torch.empty_like(groups)
        self._least = groups.amin(2, keepdim=True).clamp_(max=0)
        self._most = groups.amax(2, keepdim=True).clamp_(min=0)

    def best(self) -> tuple[Tensor, Tensor]:
        """Offset and scale of each group."""
        low, scales = self._shrunk(1.0)
        error = self._error(low, scales)
        for factor in (*SHRINKS, *[None] * REFITS):
            other = self._shrunk(factor) if factor else self._line(low, scales)
            other_error = self._error(*other)
            better = other_error < error * _BETTER
            low = torch.where(better, other[0], low)
            scales = torch.where(better, other[1], scales)
            error = torch.where(better, other_error, error)
        return low, scales

    def integers(self, low: Tensor, scales: Tensor) -> Tensor:
        """What the groups are rounded to; valid until the next call of anything here."""
        steps = torch.where(scales == 0, 1.0, scales)
        shifted = torch.sub(self._groups, low, out=self._scratch)
        return shifted.div_(steps).round_().clamp_(0, _MOST)

    def _shrunk(self, factor: float) -> tuple[Tensor, Tensor]:
        """From a part of the range of the values."""
        low = _half(self._least * factor)
        return low, _half((self._most * factor - low) / _MOST)

    def _error(self, low: Tensor, scales: Tensor) -> Tensor:
        values = self.integers(low, scales).mul_(scales).add_(low)
        return values.sub_(self._groups).square_().sum(2, keepdim=True)

    def _line(self, low: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
        """The line through the values over their integers."""
        integers = self.integers(low, scales)
        middle, mean = integers.mean(2, keepdim=True), self._groups.mean(2, keepdim=True)
        centred = integers.sub_(middle)
        spread = torch.linalg.vector_norm(centred, dim=2, keepdim=True).square_()
        slope = centred.mul_(self._groups).sum(2, keepdim=True)
        scales = _half(slope / torch.where(spread == 0, 1.0, spread))
        return _half(mean - scales * middle), scales


def _half(x: Tensor) -> Tensor:
    return x.half().float()
