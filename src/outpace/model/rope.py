"""Rotary position embedding: its settings, its frequencies, its table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from outpace.model.fields import Fields

# The table grows in pieces of one fixed size, so that an entry has the same bits however long
# the table is: the cosine of torch may differ in the last bit by where it stands in a tensor.
_PIECE = 4096
_COVERED_AT_START = 32_768


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How the frequencies are stretched for a longer context.

    ``linear`` divides all of them by ``factor``; ``llama3`` divides the slow ones, keeps the fast
    ones and blends between. The last three fields have a meaning for ``llama3`` only.
    """

    kind: Literal["linear", "llama3"]
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192


def read_rope(fields: Fields) -> tuple[float, RopeScaling | None]:
    """Read the base and the scaling out of a ``config.json``, in either layout.

    Raises:
        CheckpointError: a rope type that is not supported, or an absurd value.
    """
    name = "rope_parameters" if fields.get("rope_parameters") is not None else "rope_scaling"
    raw = fields.get(name)
    if raw is None:
        raw = {}
    if not isinstance(raw, Mapping):
        fields.fail(name, raw, "must be an object or null")
    rope = Fields(raw, f"{fields.where}: {name}")
    theta_from = rope if rope.get("rope_theta") is not None else fields
    theta = theta_from.number("rope_theta", 10_000.0)
    for source in (fields, rope):
        if source.number("partial_rotary_factor", 1.0) != 1.0:
            source.fail("partial_rotary_factor", source.get("partial_rotary_factor"), "must be 1.0")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind in ("default", None):
        # A per-layer table (rope_parameters of objects) has no type of its own.
        if any(isinstance(value, Mapping) for value in raw.values()):
            fields.fail(name, raw, "one setting for all layers is supported")
        return theta, None
    if kind == "linear":
        return theta, RopeScaling("linear", rope.number("factor"))
    if kind != "llama3":
        rope.fail("rope_type", kind, "supported are default, linear and llama3")
    scaling = RopeScaling(
        "llama3",
        rope.number("factor"),
        rope.number("low_freq_factor"),
        rope.number("high_freq_factor"),
        rope.integer("original_max_position_embeddings"),
    )
    if scaling.high_freq_factor <= scaling.low_freq_factor:
        rope.fail("high_freq_factor", scaling.high_freq_factor, "must exceed low_freq_factor")
    return theta, scaling


def inverse_frequencies(head_dim: int, theta: float, scaling: RopeScaling | None) -> Tensor:
    """Radians per position, ``[head_dim / 2]`` in float32, as transformers computes them."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    frequencies = 1.0 / (theta**exponents)
    if scaling is None:
        return frequencies
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    wavelengths = 2 * math.pi / frequencies
    turns = scaling.original_max_position_embeddings / wavelengths
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    smooth = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - smooth) * frequencies / scaling.factor + smooth * frequencies


class Rope:
    """Cosines and sines by position, looked up once a step and used by every layer."""

    def __init__(
        self,
        head_dim: int,
        theta: float,
        scaling: RopeScaling | None,
        max_positions: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._frequencies = inverse_frequencies(head_dim, theta, scaling)
        self._dtype = dtype
        self._device = device
        self._max_positions = max_positions
        self._cosines, self._sines = self._piece(0)
        self._grow(min(max_positions, _COVERED_AT_START))

    def lookup(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Factors for :func:`rotate_` at ``positions [N]``: two tensors ``[N, 1, head_dim]``."""
        angles = (table.index_select(0, positions) for table in self.tables(positions))
        cosine, sine = (half.unsqueeze(1) for half in angles)
        return torch.cat((cosine, cosine), -1), torch.cat((-sine, sine), -1)

    def tables(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines by position, ``[P, head_dim / 2]`` each, beyond ``positions``."""
        if self._max_positions > len(self._cosines):
            self._grow(int(positions.max()) + 1)
        return self._cosines, self._sines

    def _grow(self, count: int) -> None:
        start = len(self._cosines)
        pieces = [self._piece(first) for first in range(start, count, _PIECE)]
        if pieces:
            self._cosines = torch.cat([self._cosines, *(cosines for cosines, _ in pieces)])
            self._sines = torch.cat([self._sines, *(sines for _, sines in pieces)])

    def _piece(self, first: int) -> tuple[Tensor, Tensor]:
        positions = torch.arange(first, first + _PIECE, dtype=torch.float32)
        angles = torch.outer(positions, self._frequencies)
        to = self._device, self._dtype
        return angles.cos().to(*to), angles.sin().to(*to)


def rotate_(heads: Tensor, cosine: Tensor, sine: Tensor) -> None:
    """Rotate ``heads [N, heads, head_dim]`` in place; the factors come from ``Rope.lookup``."""
    # (a, b) becomes (a cos - b sin, b cos + a sin): the sign is in the first half of the sine.
    other = heads.roll(heads.shape[-1] // 2, -1)
    heads.mul_(cosine).addcmul_(other, sine)
