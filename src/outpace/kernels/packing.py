"""Weights as the kernels read them: quantized if asked for, cut into panels, and back again.

A packed weight is a matrix of bytes with a line for each panel of 32 output channels. Within a
panel, groups of inputs follow one another, each with its values and then its scales, so that a
thread reads one ascending run of memory. Everything here is plain torch, and slow enough to be
done once; ``csrc/linear.hpp`` is the other side.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum

import torch
import torch.nn.functional as F
from torch import Tensor

PANEL = 32  # output channels


class Format(Enum):
    """How the values of a weight are stored; the numbers are those of ``linear::Kind``."""

    FLOAT = 0  # float32
    BFLOAT = 1  # bfloat16, in pairs of inputs
    INT8 = 2  # one scale an output channel
    INT8_GROUPS = 3  # a scale for each group of inputs (Q8_0)
    INT4_EVEN = 4  # (value - 8) * scale, by groups (Q4_0)
    INT4_OFFSET = 5  # value * scale + offset, by groups (Q4_1)

    @property
    def middle(self) -> int:
        """The stored value that stands for 0."""
        return {Format.INT8: 128, Format.INT8_GROUPS: 128, Format.INT4_EVEN: 8}.get(self, 0)

    @property
    def is_float(self) -> bool:
        """Whether the values are stored as they are."""
        return self in (Format.FLOAT, Format.BFLOAT)

    @property
    def bits(self) -> int:
        """Of one stored value."""
        if self.is_float:
            return 32 if self is Format.FLOAT else 16
        return 4 if self in (Format.INT4_EVEN, Format.INT4_OFFSET) else 8


# Inputs that are turned into the kernel's numbers together, where the format has no groups.
_PLAIN_GROUP = {Format.FLOAT: 32, Format.BFLOAT: 32, Format.INT8: 64}


@dataclass(frozen=True, slots=True, eq=False)
class Quantized:
    """A weight in integers: ``value = scale * (stored - middle) + offset``.

    Attributes:
        format: one of the integer formats.
        group: inputs that share a scale; all of them for ``INT8``.
        stored: ``[outputs, inputs]`` uint8.
        scales: ``[outputs, groups]``; float16, or float32 ``[outputs, 1]`` for ``INT8``.
        offsets: ``[outputs, groups]`` float16 for ``INT4_OFFSET``, else None.
    """

    format: Format
    group: int
    stored: Tensor
    scales: Tensor
    offsets: Tensor | None = None

    def values(self) -> Tensor:
        """``[outputs, inputs]`` float32: what the integers stand for."""
        inputs = self.stored.shape[1]

        def spread(x: Tensor) -> Tensor:
            return x.float().repeat_interleave(self.group, 1)[:, :inputs]

        centred = self.stored.float() - self.format.middle
        values = centred * spread(self.scales)
        return values if self.offsets is None else values + spread(self.offsets)


def quantize(weight: Tensor, format: Format, group: int) -> Quantized:
    """Round ``weight [outputs, inputs]`` to integers, group by group.

    Args:
        weight: any floating dtype.
        format: an integer format.
        group: inputs that share a scale; ignored for ``INT8``. The last group may be shorter.
    """
    weight = weight.float()
    outputs, inputs = weight.shape
    if format is Format.INT8:
        scales = weight.abs().amax(1, keepdim=True) / 127
        stored = (weight / _nonzero(scales)).round_().add_(128)
        return Quantized(format, inputs, stored.to(torch.uint8), scales)
    groups = F.pad(weight, (0, -inputs % group)).view(outputs, -1, group)
    if format is Format.INT4_OFFSET:
        low = groups.amin(2).clamp_(max=0).half()
        scales = ((groups.amax(2).clamp_(min=0) - low.float()) / 15).half()
        shifted = groups - low.float().unsqueeze(2)
        stored = (shifted / _nonzero(scales.float()).unsqueeze(2)).round_().clamp_(0, 15)
    else:
        low = None
        largest = 127 if format is Format.INT8_GROUPS else 7
        scales = (groups.abs().amax(2) / largest).half()
        stored = (groups / _nonzero(scales.float()).unsqueeze(2)).round_()
        stored = stored.clamp_(-largest, largest).add_(format.middle)
    flat = stored.to(torch.uint8).view(outputs, -1)[:, :inputs]
    return Quantized(format, group, flat, scales, low)


def _nonzero(scales: Tensor) -> Tensor:
    return torch.where(scales == 0, 1.0, scales)


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """A weight in panels.

    Attributes:
        format: of the values.
        group: inputs that are handled together.
        inputs: true number of inputs; the panels are padded to whole groups.
        outputs: true number of outputs; the panels are padded to whole ones.
        data: ``[panels, bytes]`` uint8.
    """

    format: Format
    group: int
    inputs: int
    outputs: int
    data: Tensor

    @property
    def padded_inputs(self) -> int:
        """Inputs as the kernel counts them."""
        return -(-self.inputs // self.group) * self.group

    def rows(self, ids: Tensor) -> Tensor:
        """``ids [n] -> [n, inputs]`` float32: some output channels (a tied embedding table)."""
        panels, channels = ids // PANEL, ids % PANEL
        if self.format.is_float:
            numbers = _panel_numbers(self, self.data)[panels, :, channels]
            return numbers.reshape(len(ids), self.padded_inputs)[:, : self.inputs].float()
        if self.format is Format.INT8:  # one in 32 of the panel's numbers, once a step
            quads = self.data[:, : -4 * PANEL].view(len(self.data), -1, PANEL, 4)
            stored = quads[panels, :, channels].view(len(ids), self.padded_inputs)[:, : self.inputs]
            scales = self.data[:, -4 * PANEL :].view(torch.float32)[panels, channels]
            return stored.float().sub_(self.format.middle).mul_(scales.unsqueeze(1))
        some = _panel_integers(self, self.data[panels])
        lines = torch.arange(len(ids)) * PANEL + channels
        offsets = None if some.offsets is None else some.offsets[lines]
        picked = replace(
            some, stored=some.stored[lines], scales=some.scales[lines], offsets=offsets
        )
        return picked.values()[:, : self.inputs]

    def panels_of(self, ids: Collection[int]) -> tuple[Packed, Tensor]:
        """The panels in which some output channels are, and all channels in them, in order."""
        panels = torch.tensor(sorted({one // PANEL for one in ids}))
        channels = (panels.unsqueeze(1) * PANEL + torch.arange(PANEL)).flatten()
        channels = channels[channels < self.outputs]
        some = Packed(self.format, self.group, self.inputs, len(channels), self.data[panels])
        return some, channels


def group_of(format: Format, group: int) -> int:
    """Inputs handled together: ``group`` where the format has groups, else a fixed number."""
    return _PLAIN_GROUP.get(format, group)


def packed_bytes(format: Format, group: int, outputs: int, inputs: int) -> int:
    """Size of a packed weight."""
    group = group_of(format, group)
    groups = -(-inputs // group)
    scales = {Format.INT4_OFFSET: 4, Format.INT4_EVEN: 2, Format.INT8_GROUPS: 2}.get(format, 0)
    panel = groups * PANEL * (group * format.bits // 8 + scales)
    if format is Format.INT8:
        panel += 4 * PANEL
    return -(-outputs // PANEL) * panel


def pack(weight: Tensor | Quantized, format: Format) -> Packed:
    """Cut a weight into panels.

    Args:
        weight: ``[outputs, inputs]`` in any floating dtype for the float formats, else quantized.
        format: of the result; a quantized weight has its own.
    """
    if isinstance(weight, Quantized):
        return _pack_integers(weight)
    group = group_of(format, 0)
    outputs, inputs = weight.shape
    dtype, run = (torch.float32, 1) if format is Format.FLOAT else (torch.bfloat16, 2)
    padded = F.pad(weight, (0, -inputs % group, 0, -outputs % PANEL)).to(dtype)
    panels = padded.view(-1, PANEL, padded.shape[1] // run, run).transpose(1, 2)
    data = panels.contiguous().view(torch.uint8).view(len(panels), -1)
    return Packed(format, group, inputs, outputs, data)


def _pack_integers(weight: Quantized) -> Packed:
    format = weight.format
    outputs, inputs = weight.stored.shape
    group = group_of(format, weight.group)
    padding = (0, -inputs % group, 0, -outputs % PANEL)
    stored = F.pad(weight.stored, padding, value=format.middle)
    count = stored.shape[0] // PANEL
    # [panels, groups, quads, channels, 4]
    quads = stored.view(count, PANEL, -1, group // 4, 4).permute(0, 2, 3, 1, 4)
    if format.bits == 4:
        quads = quads[..., :16, :] | (quads[..., 16:, :] << 4)
    values = quads.reshape(count, quads.shape[1], -1)
    parts = [values]
    if format is not Format.INT8:
        extra = (weight.scales, weight.offsets)
        parts += [_panel_scales(x, count) for x in extra if x is not None]
    data = torch.cat(parts, 2).view(count, -1)
    if format is Format.INT8:
        scales = F.pad(weight.scales.float()[:, 0], (0, -outputs % PANEL)).view(count, PANEL)
        data = torch.cat((data, scales.contiguous().view(torch.uint8)), 1)
    return Packed(format, group, inputs, outputs, data.contiguous())


def _panel_scales(scales: Tensor, count: int) -> Tensor:
    """``[outputs, groups]`` to ``[panels, groups, bytes]``."""
    padded = F.pad(scales.half(), (0, 0, 0, -scales.shape[0] % PANEL))
    by_group = padded.view(count, PANEL, -1).transpose(1, 2).contiguous()
    return by_group.view(torch.uint8)


def unpack(weight: Packed) -> Tensor:
    """The values again, ``[outputs, inputs]`` float32."""
    values = _panel_values(weight, weight.data)
    return values.reshape(-1, weight.padded_inputs)[: weight.outputs, : weight.inputs]


def _panel_values(weight: Packed, data: Tensor) -> Tensor:
    """``[panels, PANEL, padded inputs]`` float32: what some of a weight's panels hold."""
    count, width = len(data), weight.padded_inputs
    if weight.format.is_float:
        numbers = _panel_numbers(weight, data)
        return numbers.transpose(1, 2).reshape(count, PANEL, width).float()
    return _panel_integers(weight, data).values().view(count, PANEL, width)


def _panel_numbers(weight: Packed, data: Tensor) -> Tensor:
    """``[panels, runs, PANEL, inputs of a run]``: the numbers of a float format, as they lie."""
    dtype, run = (torch.float32, 1) if weight.format is Format.FLOAT else (torch.bfloat16, 2)
    numbers = data.contiguous().view(dtype)
    return numbers.view(len(data), weight.padded_inputs // run, PANEL, run)


def _panel_integers(weight: Packed, data: Tensor) -> Quantized:
    format, group, count = weight.format, weight.group, len(data)
    groups = weight.padded_inputs // group
    by_channel = None
    if format is Format.INT8:
        data, tail = data[:, : -4 * PANEL], data[:, -4 * PANEL :]
        by_channel = tail.contiguous().view(torch.float32).view(count * PANEL, 1)
    data = data.reshape(count, groups, data.shape[1] // groups)
    size = group * PANEL * format.bits // 8
    quads = data[:, :, :size].reshape(count, groups, group // 4, PANEL * format.bits // 8, 4)
    if format.bits == 4:
        quads = torch.cat((quads & 15, quads >> 4), 3)
    stored = quads.permute(0, 3, 1, 2, 4).reshape(count * PANEL, weight.padded_inputs)
    if by_channel is not None:
        return Quantized(format, weight.padded_inputs, stored, by_channel)
    scales = [
        part.contiguous().view(torch.float16).transpose(1, 2).reshape(count * PANEL, groups)
        for part in torch.split(data[:, :, size:], 2 * PANEL, 2)
    ]
    return Quantized(format, group, stored, *scales)
