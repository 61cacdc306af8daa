"""The tensors of a checkpoint as a decoder takes them: checked, fused, and quantized if asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from outpace.errors import CheckpointError
from outpace.kernels.packing import Format, Quantized, quantize


class WeightSource:
    """Hands out the tensors of a checkpoint.

    Args:
        tensors: by name, in any floating dtype.
        shapes: what they must have.
        blocks: integers that some of the tensors were made from, by name; used where they have
            the bits that are asked for, so that nothing is rounded twice.

    Raises:
        CheckpointError: (when taking) a tensor is missing or has another shape.
    """

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        shapes: Mapping[str, tuple[int, ...]],
        blocks: Mapping[str, Quantized] | None = None,
    ) -> None:
        self._tensors = tensors
        self._shapes = shapes
        self._blocks = blocks or {}

    def take(self, *names: str) -> Tensor:
        """The named tensors, one below the other, as they are in the checkpoint."""
        return _stacked([self._one(name) for name in names])

    def weight(self, *names: str, format: Format, group: int) -> Tensor | Quantized:
        """The weights of linear layers of one input, one below the other.

        Args:
            names: of the tensors.
            format: floats are taken as they are; integers are rounded to ``format``, or to
                whatever format of as many bits the checkpoint was made from.
            group: inputs that share a scale, where the checkpoint does not say.
        """
        if format.is_float:
            return self.take(*names)
        exact = [self._blocks[name] for name in names if name in self._blocks]
        formats = {(one.format, one.group) for one in exact}
        if len(exact) == len(names) and len(formats) == 1 and exact[0].format.bits == format.bits:
            return _joined(exact)
        return _joined([quantize(self._one(name), format, group) for name in names])

    def _one(self, name: str) -> Tensor:
        if name not in self._tensors:
            raise CheckpointError(f"the checkpoint lacks the tensor {name}")
        tensor = self._tensors[name].detach()
        if tuple(tensor.shape) != self._shapes[name]:
            raise CheckpointError(
                f"the tensor {name} has the shape {list(tensor.shape)}; "
                f"config.json asks for {list(self._shapes[name])}"
            )
        return tensor


def _joined(parts: list[Quantized]) -> Quantized:
    offsets = [one.offsets for one in parts if one.offsets is not None]
    return replace(
        parts[0],
        stored=_stacked([one.stored for one in parts]),
        scales=_stacked([one.scales for one in parts]),
        offsets=_stacked(offsets) if offsets else None,
    )


def _stacked(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
