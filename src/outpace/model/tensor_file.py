"""Writes safetensors files tensor by tensor, so that memory stays at a piece of one."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

ALIGNMENT = 64  # bytes: a line of the cache, and the longest vector
_NAMES = {
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.float32: "F32",
    torch.uint8: "U8",
}


@dataclass(frozen=True, slots=True)
class Planned:
    """A tensor that will be written.

    Attributes:
        dtype: one of bf16, fp16, fp32, uint8.
        shape: of the whole.
        pieces: makes the values, as tensors of that dtype that follow one another in memory.
    """

    dtype: torch.dtype
    shape: tuple[int, ...]
    pieces: Callable[[], Iterable[Tensor]]

    @property
    def nbytes(self) -> int:
        """Of the whole."""
        return math.prod(self.shape) * self.dtype.itemsize


def write_tensors(
    path: Path, tensors: Mapping[str, Planned], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors in the given order.

    The data begins at a multiple of 64 bytes, and so does every tensor as long as those before
    it are multiples of 64 bytes (the format has no room for gaps).

    Raises:
        ValueError: the pieces of a tensor are more or less than its shape.
        OSError: the file cannot be written.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt", **(metadata or {})}}
    offset = 0
    for name, planned in tensors.items():
        end = offset + planned.nbytes
        header[name] = {
            "dtype": _NAMES[planned.dtype],
            "shape": planned.shape,
            "data_offsets": (offset, end),
        }
        offset = end
    encoded = json.dumps(header).encode()
    encoded += b" " * (-(8 + len(encoded)) % ALIGNMENT)
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(encoded)) + encoded)
        for name, planned in tensors.items():
            written = 0
            for piece in planned.pieces():
                assert piece.dtype is planned.dtype
                flat = piece.contiguous().view(-1).view(torch.uint8)
                written += stream.write(flat.numpy().data)
            if written != planned.nbytes:
                raise ValueError(f"tensor {name} has {written} of {planned.nbytes} bytes")
