"""In which numbers large products of training are computed."""

from __future__ import annotations

import torch

from outpace.kernels.features import cpu_flags

# Processors without one of these compute products of bfloat16 several times slower than others.
_FOR_BFLOAT16 = frozenset({"avx512_bf16", "amx_bf16", "bf16"})


def narrow_dtype(device: torch.device) -> torch.dtype:
    """bfloat16 where the device multiplies it fast, else float32."""
    if device.type == "cpu" and cpu_flags().isdisjoint(_FOR_BFLOAT16):
        return torch.float32
    return torch.bfloat16
