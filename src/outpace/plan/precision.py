"""How many bytes a weight takes, and in which arithmetic it is used."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from outpace.errors import InvalidValueError

Arithmetic = Literal["fp32", "bf16", "fp8", "int8"]
_GROUPED = re.compile(r"int4(?:[:/-]g?(\d{1,5}))?")
_USUAL_GROUP = 64
_WAY_OUT = "choose bf16, fp32, fp8, int8, w8a8 or int4 (with a group size: int4:128)"


@dataclass(frozen=True, slots=True)
class Precision:
    """A precision of weights.

    Attributes:
        name: as it is written on the command line.
        layer_bytes: bytes of a weight of a layer, scales included.
        outer_bytes: bytes of a weight of embedding or head, which stay in 16 bits when the layers
            are quantized, as published checkpoints mostly have it.
        arithmetic: the rate of the hardware that matters. Weights alone in 8 or 4 bits (int8,
            int4) are multiplied in bf16; w8a8 has activations in int8 too.
    """

    name: str
    layer_bytes: float
    outer_bytes: float
    arithmetic: Arithmetic

    @classmethod
    def parse(cls, text: str, field: str = "precision") -> Precision:
        """Read a precision, for example ``bf16`` or ``int4:128``.

        A group of int4 weights has a scale and an offset of 16 bits each.

        Raises:
            InvalidValueError: unknown, or a group size of no use.
        """
        match text.lower():
            case "bf16" | "fp16" | "bfloat16" | "float16":
                return cls("bf16", 2, 2, "bf16")
            case "fp32" | "float32":
                return cls("fp32", 4, 4, "fp32")
            case "fp8":
                return cls("fp8", 1, 2, "fp8")
            case "int8":
                return cls("int8", 1, 2, "bf16")
            case "w8a8":
                return cls("w8a8", 1, 2, "int8")
        grouped = _GROUPED.fullmatch(text.lower())
        if grouped is None:
            raise InvalidValueError(field, text, _WAY_OUT)
        group = int(grouped[1] or _USUAL_GROUP)
        if not 8 <= group <= 4096:
            raise InvalidValueError(field, text, "the group size must be from 8 to 4096")
        return cls(f"int4:{group}", 0.5 + 4 / group, 2, "bf16")


def cache_bytes(text: str) -> float:
    """Bytes of a number in the key and value cache: bf16, fp32 or fp8.

    Raises:
        InvalidValueError: another precision.
    """
    sizes = {"bf16": 2.0, "fp16": 2.0, "fp32": 4.0, "fp8": 1.0, "int8": 1.0}
    if text.lower() not in sizes:
        raise InvalidValueError("cache_precision", text, f"choose one of {', '.join(sizes)}")
    return sizes[text.lower()]
