"""Writes safetensors files tensor by tensor, and reads them into memory of the caller's choice.

In either direction no more than a piece of a tensor is held besides.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
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
_DTYPES = {name: dtype for dtype, name in _NAMES.items()}


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


def read_tensors(
    path: Path, memory: Callable[[Sequence[int]], Tensor]
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read what ``write_tensors`` wrote: the tensors by name, and the metadata.

    Args:
        path: of the file, which is taken to be whole.
        memory: hands out uint8 of a shape, to be read into.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        header: dict[str, Any] = json.loads(stream.read(length))
        metadata = header.pop("__metadata__")
        tensors = {}
        for name, entry in header.items():
            begin, end = entry["data_offsets"]
            data = memory((end - begin,))
            stream.seek(8 + length + begin)
            if stream.readinto(data.numpy().data) != end - begin:
                raise OSError(f"{path} ends within the tensor {name}")
            tensors[name] = data.view(_DTYPES[entry["dtype"]]).view(entry["shape"])
    return tensors, metadata
