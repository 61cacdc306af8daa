"""The values that several settings can take, by name."""

from __future__ import annotations

from typing import Literal

Dtype = Literal["auto", "bfloat16", "float32"]
Verification = Literal["auto", "coupled", "rejection"]
TreeAttention = Literal["paths", "mask"]
Quantization = Literal["none", "int8", "int4"]
DraftShape = Literal["auto", "chain", "tree"]

MAX_SPECULATIVE_TOKENS = 64
