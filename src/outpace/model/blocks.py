"""The integers of block-quantized tensors of a GGUF file, kept so that nothing is rounded twice.

Q4_0, Q4_1 and Q8_0 have 32 inputs in a block, with a scale and perhaps an offset in fp16: just
what the kernels compute with. The other block types have nested or non-linear scales; their
tensors are rounded from their values.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from outpace.errors import CheckpointError, in_short
from outpace.kernels.packing import Format, Quantized
from outpace.model.config import ModelConfig
from outpace.model.tensor_file import Planned, write_tensors

FILE = "blocks.safetensors"
GROUP = 32  # inputs in a block
FORMATS = {"Q4_0": Format.INT4_EVEN, "Q4_1": Format.INT4_OFFSET, "Q8_0": Format.INT8_GROUPS}


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """The integers of one tensor, as the file has them.

    Attributes:
        format: of the file's blocks.
        values: uint8 ``[outputs, inputs]``, or ``[outputs, inputs / 2]`` for four bits: within a
            block's 16 bytes the low nibbles are its first half, the high ones its second.
        scales: float16 ``[outputs, inputs / 32]``.
        offsets: likewise for ``INT4_OFFSET``, else None.
    """

    format: Format
    values: Tensor
    scales: Tensor
    offsets: Tensor | None = None

    @property
    def exact_in(self) -> tuple[Format, ...]:
        """The formats, in groups of 32, that hold the very same values."""
        if self.format is Format.INT4_EVEN:
            return Format.INT4_EVEN, Format.INT4_OFFSET, Format.INT8_GROUPS
        return (self.format,)

    def rows(self, begin: int, end: int, format: Format) -> Quantized:
        """Some rows in a format of ``exact_in``."""
        stored, scales = self.values[begin:end], self.scales[begin:end]
        offsets = None if self.offsets is None else self.offsets[begin:end]
        if self.format.bits == 4:
            halves = stored.view(len(stored), -1, GROUP // 2)
            stored = torch.cat((halves & 15, halves >> 4), 2).view(len(stored), -1)
        if format is Format.INT4_OFFSET and offsets is None:
            # A multiple by a power of two: exact in fp16, like the sum in float32.
            offsets = scales * -self.format.middle
        elif format is not self.format:
            stored = stored + (format.middle - self.format.middle)
        return Quantized(format, GROUP, stored, scales, offsets)


def decode(data: np.ndarray, kind: str) -> Blocks:
    """Take the bytes of blocks apart.

    Args:
        data: ``[outputs, bytes]`` uint8 as in the GGUF file.
        kind: a block type of ``FORMATS``.
    """
    format = FORMATS[kind]
    halves = 2 if format is Format.INT4_OFFSET else 1
    blocks = data.reshape(len(data), -1, _block_bytes(format))
    head = np.ascontiguousarray(blocks[:, :, : 2 * halves]).view("<f2")
    numbers = [torch.from_numpy(head[:, :, i].copy()) for i in range(halves)]
    values = np.ascontiguousarray(blocks[:, :, 2 * halves :]).reshape(len(data), -1)
    if format is Format.INT8_GROUPS:
        values ^= 0x80  # signed, to around 128
    return Blocks(format, torch.from_numpy(values), *numbers)


def _parts(format: Format, outputs: int, inputs: int) -> dict[str, tuple[torch.dtype, int, int]]:
    """Dtype and shape of what a tensor's blocks are taken apart into."""
    parts = {
        "values": (torch.uint8, outputs, inputs * format.bits // 8),
        "scales": (torch.float16, outputs, inputs // GROUP),
    }
    if format is Format.INT4_OFFSET:
        parts["offsets"] = parts["scales"]
    return parts


def write_blocks(folder: Path, tensors: Mapping[str, tuple[str, np.ndarray]]) -> None:
    """Write the file of a folder.

    Args:
        folder: of the checkpoint.
        tensors: by its name in the checkpoint, a tensor's block type and bytes (see ``decode``).

    Raises:
        OSError: the file cannot be written.
    """
    planned = {}
    for name, (kind, data) in tensors.items():
        format = FORMATS[kind]
        inputs = data.shape[1] // _block_bytes(format) * GROUP
        for part, (dtype, *shape) in _parts(format, len(data), inputs).items():
            # Taken apart once for each part: that is quick, and memory stays at one part.
            pieces = functools.partial(_part, data, kind, part)
            planned[f"{name}.{part}"] = Planned(dtype, tuple(shape), pieces)
    formats = {name: FORMATS[kind].name for name, (kind, _) in tensors.items()}
    write_tensors(folder / FILE, planned, formats)


def _part(data: np.ndarray, kind: str, part: str) -> list[Tensor]:
    return [getattr(decode(data, kind), part)]


def _block_bytes(format: Format) -> int:
    return GROUP * format.bits // 8 + (4 if format is Format.INT4_OFFSET else 2)


def load_blocks(folder: Path, config: ModelConfig) -> dict[str, Blocks]:
    """The integers that a checkpoint's tensors were made from; none if there is no such file.

    They are views of a memory-mapped file: pages are read when they are first used.

    Raises:
        CheckpointError: the file is damaged or does not fit the configuration.
    """
    file = folder / FILE
    if not file.is_file():
        return {}
    shapes = config.weight_shapes()
    try:
        with safe_open(str(file), framework="pt", device="cpu") as opened:
            formats = {n: f for n, f in (opened.metadata() or {}).items() if n in shapes}
            return {name: _load(opened, name, formats[name], shapes[name]) for name in formats}
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        reason = in_short(error)
        raise CheckpointError(
            f"{file}: damaged, or not of this model ({reason}); remove its folder if it is in "
            "Outpace's cache, else this file"
        ) from error


def _load(opened: Any, name: str, kept_as: str, shape: tuple[int, ...]) -> Blocks:
    format = Format[kept_as]
    parts = _parts(format, *shape)
    tensors = [opened.get_tensor(f"{name}.{part}") for part in parts]
    for tensor, (part, expected) in zip(tensors, parts.items(), strict=True):
        if (tensor.dtype, *tensor.shape) != expected:
            raise ValueError(f"{name}.{part} has the shape {list(tensor.shape)}")
    return Blocks(format, *tensors)
