"""The tensors of a checkpoint as a decoder takes them: checked, fused, and quantized if asked.

What is made of a weight is made some rows at a time, so that the memory needed beside the result
is that of a piece, however large the weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from outpace.errors import CheckpointError
from outpace.kernels.arena import Arena
from outpace.kernels.packing import PANEL, Format, Packed, Quantized, group_of, pack, packed_bytes
from outpace.model.blocks import GROUP, Blocks
from outpace.model.rounding import rounded
from outpace.model.workers import in_order

_PIECE = 1 << 18  # numbers that are quantized and packed at a time: they stay in the cache


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
        blocks: Mapping[str, Blocks] | None = None,
    ) -> None:
        self._tensors = tensors
        self._shapes = shapes
        self._blocks = blocks or {}
        self._arena = Arena()

    def take(self, *names: str) -> Tensor:
        """The named tensors, one below the other, as they are in the checkpoint."""
        return _stacked([self._one(name) for name in names])

    def weight(self, *names: str, format: Format, group: int) -> Tensor | Quantized:
        """The weights of linear layers of one input, one below the other.

        Args:
            names: of the tensors.
            format: floats are taken as they are; integers become what ``choose`` says.
            group: inputs that share a scale, where the checkpoint does not say.
        """
        if format.is_float:
            return self.take(*names)
        format, group = self.choose(*names, format=format, group=group)
        pieces = in_order(
            lambda begin: self._piece(names, begin, format, group), self._begins(names)
        )
        return _joined(list(pieces))

    def packed(self, *names: str, format: Format, group: int) -> Packed:
        """The same for the kernels."""
        format, group = self.choose(*names, format=format, group=group)
        outputs, inputs = self.shape(*names)
        data = self._arena.bytes(panels_shape(format, group, outputs, inputs))
        begin = 0
        for piece in self.panels(*names, format=format, group=group):
            data[begin : begin + len(piece)] = piece
            begin += len(piece)
        return Packed(format, group_of(format, group), inputs, outputs, data)

    def panels(self, *names: str, format: Format, group: int) -> Iterator[Tensor]:
        """The panels of ``packed``, some at a time, in a format that ``choose`` gave."""
        return in_order(
            lambda begin: pack(self._piece(names, begin, format, group), format).data,
            self._begins(names),
        )

    def shape(self, *names: str) -> tuple[int, int]:
        """Outputs and inputs of weights one below the other."""
        return sum(self._shapes[name][0] for name in names), self._shapes[names[0]][1]

    def choose(self, *names: str, format: Format, group: int) -> tuple[Format, int]:
        """The format and group that weights get which are asked for in ``format``.

        It is another one where the checkpoint was made from integers that the kernels can compute
        with, in groups of 32. If those of all ``names`` have one format, that is taken. Else, for
        four bits, it is ``INT4_OFFSET``, which holds the values of Q4_0 and Q4_1 alike; tensors
        without fitting integers are rounded to it. For eight bits it is ``INT8_GROUPS``, which
        holds Q8_0 and Q4_0.
        """
        if format.is_float:
            return format, group
        eight = format.bits == 8
        able = [Format.INT8_GROUPS] if eight else [Format.INT4_EVEN, Format.INT4_OFFSET]
        exact = [self._blocks[name].exact_in for name in names if name in self._blocks]
        exact = [formats for formats in exact if set(formats) & set(able)]
        if not exact:
            return format, group
        if len(exact) < len(names):
            able = able[-1:]  # the better one for what is to be rounded
        return next(one for one in able if all(one in formats for formats in exact)), GROUP

    def _begins(self, names: tuple[str, ...]) -> range:
        """First rows of the pieces of the named weights; whole panels each."""
        outputs, inputs = self.shape(*names)
        return range(0, outputs, max(1, _PIECE // (inputs * PANEL)) * PANEL)

    def _piece(
        self, names: tuple[str, ...], begin: int, format: Format, group: int
    ) -> Tensor | Quantized:
        """A piece of the named weights as if they were one."""
        end = begin + self._begins(names).step
        parts: list[Tensor | Quantized] = []
        first = 0
        for name in names:
            rows = self._shapes[name][0]
            low, high = max(begin - first, 0), min(end - first, rows)
            if low < high:
                parts.append(self._rows(name, low, high, format, group))
            first += rows
        return _joined(parts)

    def _rows(
        self, name: str, begin: int, end: int, format: Format, group: int
    ) -> Tensor | Quantized:
        if not format.is_float and group == GROUP and name in self._blocks:
            blocks = self._blocks[name]
            if format in blocks.exact_in:
                return blocks.rows(begin, end, format)
        rows = self._one(name)[begin:end]
        return rows if format.is_float else rounded(rows, format, group)

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


def panels_shape(format: Format, group: int, outputs: int, inputs: int) -> tuple[int, int]:
    """Shape of the data of a packed weight: panels, and bytes of one."""
    panels = -(-outputs // PANEL)
    return panels, packed_bytes(format, group, outputs, inputs) // panels


def _joined(parts: list[Tensor | Quantized]) -> Tensor | Quantized:
    if len(parts) == 1:
        return parts[0]
    integers = [one for one in parts if isinstance(one, Quantized)]
    if not integers:
        return _stacked([one for one in parts if isinstance(one, Tensor)])
    offsets = [one.offsets for one in integers if one.offsets is not None]
    return replace(
        integers[0],
        stored=_stacked([one.stored for one in integers]),
        scales=_stacked([one.scales for one in integers]),
        offsets=_stacked(offsets) if offsets else None,
    )


def _stacked(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)
