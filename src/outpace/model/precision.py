"""What a model's weights and cache are stored in."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from outpace.config import Quantization
from outpace.kernels.packing import Format


@dataclass(frozen=True, slots=True)
class Precision:
    """Number formats of a model.

    Attributes:
        dtype: of the cache, and of what is not a linear layer.
        quantization: of the linear layers. The embedding table and the head are tied in many
            models and sensitive in all: under ``int4`` they are 8 bits.
        group: inputs that share a scale under ``int4``.
    """

    dtype: torch.dtype
    quantization: Quantization = "none"
    group: int = 64

    @property
    def linear(self) -> Format:
        """Of the linear layers."""
        if self.quantization == "int4":
            return Format.INT4_OFFSET
        return self.head

    @property
    def head(self) -> Format:
        """Of the head, and of the embedding table that is tied to it."""
        if self.quantization != "none":
            return Format.INT8
        return Format.FLOAT if self.dtype == torch.float32 else Format.BFLOAT

    def __str__(self) -> str:
        name = str(self.dtype).removeprefix("torch.")
        return name if self.quantization == "none" else f"{self.quantization}, {name} cache"
