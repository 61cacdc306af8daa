"""Rows looked up and normed by the compiled kernels, against plain torch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from outpace.kernels import native, rows
from outpace.kernels.packing import Format, pack, quantize, unpack
from outpace.kernels.rows import KernelNorm, KernelTable

from kernel_builds import each_build, usable

EPS = 1e-5


@pytest.fixture
def build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> native.Kernels:
    found = usable(request.param)
    monkeypatch.setattr(native, "kernels", lambda: found)
    monkeypatch.setattr(rows, "kernels", lambda: found)
    return found


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@each_build
@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize(("inputs", "group"), [(64, 32), (131, 64), (2, 128)])
def test_a_row_of_a_table_is_what_the_weight_stands_for(
    build: native.Kernels, format: Format, inputs: int, group: int
) -> None:
    weight = normal(75, inputs)
    packed = pack(weight if format.is_float else quantize(weight, format, group), format)
    ids = torch.tensor([74, 0, 31, 32, 17, 15, 16, 74])
    assert torch.equal(KernelTable(packed)(ids), unpack(packed)[ids])


@each_build
@pytest.mark.parametrize("wrong", [-1, 75, 1 << 40])
def test_a_row_that_a_table_does_not_have_is_refused(build: native.Kernels, wrong: int) -> None:
    table = KernelTable(pack(normal(75, 8), Format.FLOAT))
    with pytest.raises(IndexError, match=f"row {wrong} of 75"):
        table(torch.tensor([3, wrong]))


@each_build
@pytest.mark.parametrize("width", [1, 16, 47, 576])
def test_norm(build: native.Kernels, width: int) -> None:
    x, weight = normal(5, width), normal(width)
    found = KernelNorm(weight, EPS)(x)
    assert torch.allclose(found, F.rms_norm(x, (width,), weight, EPS), rtol=1e-5, atol=1e-6)
    alone = torch.cat([KernelNorm(weight, EPS)(x[i : i + 1]) for i in range(5)])
    assert torch.equal(found, alone)
