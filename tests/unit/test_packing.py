"""Packed weights: what goes in comes out, and rounding loses no more than it may."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from outpace.kernels.packing import (
    PANEL,
    Format,
    Quantized,
    group_of,
    pack,
    packed_bytes,
    quantize,
    unpack,
)

INTEGERS = [format for format in Format if not format.is_float]
GROUPS = st.sampled_from([32, 64, 128])
SIZES = st.integers(1, 300)
HALF_STEP = 2.0**-11  # the largest relative error of rounding to float16,
HALF_SMALLEST = 2.0**-25  # and the largest absolute one among its smallest numbers


def random_weight(outputs: int, inputs: int, seed: int, magnitude: int = 0) -> Tensor:
    """Normal numbers around powers of ten, some of them 0, and one row that is all 0."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(outputs, inputs, generator=generator) * 10.0**magnitude
    weight[torch.rand(outputs, inputs, generator=generator) < 0.1] = 0
    weight[seed % outputs] = 0
    return weight


def random_integers(format: Format, group: int, outputs: int, inputs: int, seed: int) -> Quantized:
    """Any stored values under any scales: also those that rounding would not choose."""
    generator = torch.Generator().manual_seed(seed)
    stored = torch.randint(0, 2**format.bits, (outputs, inputs), generator=generator)
    by_channel = format is Format.INT8
    groups = 1 if by_channel else -(-inputs // group)
    scales = torch.randn(outputs, groups, generator=generator)
    return Quantized(
        format,
        inputs if by_channel else group,
        stored.to(torch.uint8),
        scales if by_channel else scales.half(),
        torch.randn(outputs, groups, generator=generator).half()
        if format is Format.INT4_OFFSET
        else None,
    )


@given(st.sampled_from(INTEGERS), GROUPS, SIZES, SIZES, st.integers(0, 99))
def test_integers_come_out_as_they_went_in(
    format: Format, group: int, outputs: int, inputs: int, seed: int
) -> None:
    weight = random_integers(format, group, outputs, inputs, seed)
    packed = pack(weight, format)
    assert (packed.outputs, packed.inputs, packed.format) == (outputs, inputs, format)
    assert torch.equal(unpack(packed), weight.values())


@given(st.sampled_from([Format.FLOAT, Format.BFLOAT]), SIZES, SIZES, st.integers(0, 99))
def test_floats_come_out_as_they_went_in(
    format: Format, outputs: int, inputs: int, seed: int
) -> None:
    weight = random_weight(outputs, inputs, seed)
    dtype = torch.float32 if format is Format.FLOAT else torch.bfloat16
    assert torch.equal(unpack(pack(weight, format)), weight.to(dtype).float())


@given(st.sampled_from(Format), GROUPS, SIZES, SIZES, st.data())
def test_rows_and_size(
    format: Format, group: int, outputs: int, inputs: int, data: st.DataObject
) -> None:
    weight = random_weight(outputs, inputs, 1)
    packed = pack(weight if format.is_float else quantize(weight, format, group), format)
    assert packed.data.nbytes == packed_bytes(format, group, outputs, inputs)
    assert packed.data.shape[0] == -(-outputs // PANEL)
    assert packed.data.is_contiguous()
    assert packed.group == group_of(format, group)
    assert 0 <= packed.padded_inputs - inputs < packed.group
    ids = torch.tensor(
        data.draw(st.lists(st.integers(0, outputs - 1), min_size=1, max_size=5)), dtype=int
    )
    assert torch.equal(packed.rows(ids), unpack(packed)[ids])


@given(st.sampled_from(INTEGERS), GROUPS, SIZES, SIZES, st.integers(0, 99), st.integers(-3, 3))
def test_rounding_loses_at_most_half_a_step(
    format: Format, group: int, outputs: int, inputs: int, seed: int, magnitude: int
) -> None:
    """And what scales and offsets lose themselves, as numbers of 16 bits."""
    weight = random_weight(outputs, inputs, seed, magnitude)
    quantized = quantize(weight, format, group)
    lost = (quantized.values().double() - weight.double()).abs()

    def spread(x: Tensor) -> Tensor:
        return x.double().abs().repeat_interleave(quantized.group, 1)[:, :inputs]

    scale = spread(quantized.scales)
    steps = 127 if format.bits == 8 else 15
    bound = scale * (0.5 + 1e-4)  # the quotient is rounded too, in float32
    if format is not Format.INT8:
        bound += steps * (scale * HALF_STEP + HALF_SMALLEST)
    if quantized.offsets is not None:
        bound += 2 * (spread(quantized.offsets) * HALF_STEP + HALF_SMALLEST)
    assert (lost <= bound).all()


@pytest.mark.parametrize("format", INTEGERS)
def test_zeros_stay_zeros_and_extremes_stay_extreme(format: Format) -> None:
    weight = torch.zeros(2, 64)
    weight[1, :2] = torch.tensor([-1.0, 1.0])
    values = quantize(weight, format, 32).values()
    assert torch.equal(values[0], weight[0])
    assert torch.equal(values[1, 32:], weight[1, 32:])
    # Scales are rounded to 16 bits, except under INT8; 1/7 and 2/15 are not among them.
    assert torch.allclose(values[1, :2], weight[1, :2], rtol=0, atol=1e-3)


def test_the_middle_is_zero() -> None:
    for format in INTEGERS:
        stored = torch.full((1, 32), format.middle, dtype=torch.uint8)
        offsets = torch.zeros(1, 1).half() if format is Format.INT4_OFFSET else None
        assert not Quantized(format, 32, stored, torch.ones(1, 1), offsets).values().any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_any_floating_dtype_is_taken(dtype: torch.dtype) -> None:
    weight = random_weight(5, 70, 3).to(dtype)
    for format in Format:
        packed = pack(weight if format.is_float else quantize(weight, format, 32), format)
        other = weight.float()
        same = pack(other if format.is_float else quantize(other, format, 32), format)
        assert torch.equal(packed.data, same.data)
