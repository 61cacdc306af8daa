"""Searched scales: never worse than the plain ones, in any group."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from outpace.kernels.packing import Format, Quantized, quantize
from outpace.model.rounding import rounded

GROUPS = (32, 64, 128)
INPUTS = 328  # the last group is shorter, whatever the size


def weights() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    normal = torch.randn(48, INPUTS, generator=generator) * 0.02
    outliers = normal.clone()
    outliers[:, ::50] *= 30
    ramp = torch.linspace(-1, 1, 48 * INPUTS).view(48, INPUTS)
    return {
        "normal": normal,
        "bf16": normal.bfloat16(),
        "outliers": outliers,
        "one side": normal.abs() + 0.1,
        "far side": -normal.abs() - 5,
        "constant": torch.full((48, INPUTS), 0.37),
        "zero": torch.zeros(48, INPUTS),
        "ramp": ramp,
        "two values": torch.where(normal > 0, 1.0, -0.3),
        "tiny": normal * 1e-7,
    }


def errors(weight: Tensor, quantized: Quantized) -> Tensor:
    """Squared error of every group."""
    difference = (weight.double() - quantized.values().double()).square()
    pieces = difference.split(quantized.group, 1)
    return torch.stack([piece.sum(1) for piece in pieces], 1)


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("name", weights())
def test_no_group_is_worse_than_plain(name: str, group: int) -> None:
    weight = weights()[name]
    plain = errors(weight, quantize(weight, Format.INT4_OFFSET, group))
    searched = rounded(weight, Format.INT4_OFFSET, group)
    assert searched.stored.max() <= 15
    assert searched.values().isfinite().all()
    assert (errors(weight, searched) <= plain).all()


@pytest.mark.parametrize("group", GROUPS)
def test_the_error_is_smaller(group: int) -> None:
    weight = torch.randn(64, 1024, generator=torch.Generator().manual_seed(9))
    plain = errors(weight, quantize(weight, Format.INT4_OFFSET, group)).sum()
    assert errors(weight, rounded(weight, Format.INT4_OFFSET, group)).sum() < 0.9 * plain


@pytest.mark.parametrize("group", GROUPS)
def test_rows_are_rounded_alone_and_always_alike(group: int) -> None:
    weight = weights()["outliers"]
    whole = rounded(weight, Format.INT4_OFFSET, group)
    for begin, end in ((0, 48), (0, 1), (17, 32)):
        part = rounded(weight[begin:end], Format.INT4_OFFSET, group)
        assert torch.equal(part.stored, whole.stored[begin:end])
        assert torch.equal(part.scales, whole.scales[begin:end])
        assert part.offsets is not None
        assert whole.offsets is not None
        assert torch.equal(part.offsets, whole.offsets[begin:end])


@pytest.mark.parametrize("format", [Format.INT8, Format.INT8_GROUPS, Format.INT4_EVEN])
def test_other_formats_are_plain(format: Format) -> None:
    weight = weights()["outliers"]
    plain, found = quantize(weight, format, 32), rounded(weight, format, 32)
    assert torch.equal(plain.stored, found.stored)
    assert torch.equal(plain.scales, found.scales)
