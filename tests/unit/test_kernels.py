"""Products by the compiled kernels, against the same arithmetic in plain torch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from outpace.kernels import native
from outpace.kernels.native import KernelLinear, Source
from outpace.kernels.packing import Format, Packed, Quantized, pack, quantize, unpack

from kernel_builds import each_build, usable

INTEGERS = [format for format in Format if not format.is_float]
EPS = 1e-5


@pytest.fixture
def build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> native.Kernels:
    found = usable(request.param)
    monkeypatch.setattr(native, "kernels", lambda: found)
    return found


@pytest.fixture
def two_threads() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def make_weight(format: Format, outputs: int, inputs: int, group: int = 32) -> Packed:
    weight = normal(outputs, inputs, seed=1)
    return pack(weight if format.is_float else quantize(weight, format, group), format)


def product(weight: Packed, x: Tensor, source: Source = Source.PLAIN, **options: object) -> Tensor:
    """``f(x) W^T``, into memory that holds something else."""
    out = torch.full((x.shape[0], weight.outputs), 3.5)
    KernelLinear(weight, source=source, **options)(x, out)  # type: ignore[arg-type]
    return out


def rounded(weight: Packed, x: Tensor) -> Tensor:
    """The rows as the kernel multiplies them: float, bf16, or int8 with a unit for each group."""
    if weight.format.is_float:
        return x.to(torch.float32 if weight.format is Format.FLOAT else torch.bfloat16).double()
    groups = F.pad(x, (0, weight.padded_inputs - x.shape[1])).view(len(x), -1, weight.group)
    units = groups.abs().amax(2, keepdim=True) / 127
    bytes = (groups * torch.where(units > 0, 1 / units, 0.0)).round()
    return (bytes.double() * units.double()).flatten(1)[:, : x.shape[1]]


def assert_close(weight: Packed, x: Tensor, found: Tensor) -> None:
    """Within 1e-5 of the sum of all absolute products: float32 sums, 1000 terms at most."""
    rows, values = rounded(weight, x), unpack(weight).double()
    bound = 1e-5 * (rows.abs() @ values.abs().T)
    if weight.format is Format.INT4_OFFSET:  # stored values and offsets are multiplied apart
        bound *= 8
    assert found.isfinite().all()
    assert ((found.double() - rows @ values.T).abs() <= bound).all()


@each_build
@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize(
    ("outputs", "inputs", "group"), [(1, 1, 32), (32, 64, 64), (45, 100, 32), (97, 1000, 128)]
)
def test_products(
    build: native.Kernels, format: Format, outputs: int, inputs: int, group: int
) -> None:
    weight = make_weight(format, outputs, inputs, group)
    for rows in (1, 2, 5, 9):
        x = normal(rows, inputs, seed=rows)
        assert_close(weight, x, product(weight, x))


@each_build
@pytest.mark.parametrize("format", INTEGERS)
def test_integer_sums_are_exact(build: native.Kernels, format: Format) -> None:
    """Units and scales of 1, so that the result is the integer itself; extremes included."""
    generator = torch.Generator().manual_seed(2)
    inputs, group, top = 448, 64, 2**format.bits - 1
    stored = torch.randint(0, top + 1, (70, inputs), generator=generator)
    stored[0], stored[1], stored[2, ::2] = top, 0, top
    groups = 1 if format is Format.INT8 else inputs // group
    offsets = torch.full((70, groups), -3.0).half() if format is Format.INT4_OFFSET else None
    weight = Quantized(
        format,
        inputs if format is Format.INT8 else group,
        stored.to(torch.uint8),
        torch.ones(70, groups).to(torch.float32 if format is Format.INT8 else torch.float16),
        offsets,
    )
    x = torch.randint(-127, 128, (6, inputs), generator=generator)
    x[0], x[1], x[2, ::2] = 127, -127, -127
    x[:, ::group] = 127
    expected = x @ weight.values().long().T
    assert expected.abs().max() < 2**24
    assert torch.equal(product(pack(weight, format), x.float()), expected.float())


@each_build
@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize("source", [Source.NORM, Source.GATED])
@pytest.mark.parametrize("inputs", [1, 16, 45, 200])
def test_norm_and_gate_come_before(
    build: native.Kernels, format: Format, source: Source, inputs: int
) -> None:
    """The product with the identity shows what the rows become, and every format goes on so."""
    x = normal(3, inputs * (2 if source is Source.GATED else 1)) * 4
    norm = normal(inputs, seed=3) if source is Source.NORM else None
    became = product(pack(torch.eye(inputs), Format.FLOAT), x, source, norm=norm, eps=EPS)
    if norm is not None:
        expected = F.rms_norm(x.double(), (inputs,), norm.double(), EPS)
    else:
        expected = F.silu(x.double()[:, :inputs]) * x.double()[:, inputs:]
    torch.testing.assert_close(became.double(), expected, rtol=2e-6, atol=1e-9)
    weight = make_weight(format, 40, inputs)
    found = product(weight, x, source, norm=norm, eps=EPS)
    assert torch.equal(found, product(weight, became))


@each_build
@pytest.mark.parametrize("format", Format)
def test_bias_and_add(build: native.Kernels, format: Format) -> None:
    weight, x, bias = make_weight(format, 45, 100), normal(9, 100), normal(45, seed=5)
    plain = product(weight, x)
    assert torch.equal(product(weight, x, bias=bias), plain + bias)
    assert torch.equal(product(weight, x, add=True), plain + 3.5)
    assert torch.equal(product(weight, x, bias=bias, add=True), plain + bias + 3.5)


@each_build
@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize("source", Source)
def test_rows_do_not_matter_to_one_another(
    build: native.Kernels, format: Format, source: Source
) -> None:
    weight = make_weight(format, 45, 100)
    x = normal(64, 200 if source is Source.GATED else 100)
    options = {"norm": normal(100, seed=3) if source is Source.NORM else None, "eps": EPS}
    alone = torch.cat([product(weight, row, source, **options) for row in x.split(1)])
    for rows in range(1, 65):
        assert torch.equal(product(weight, x[:rows], source, **options), alone[:rows]), rows
        assert torch.equal(product(weight, x[-rows:], source, **options), alone[-rows:]), rows


@each_build
@pytest.mark.parametrize("format", Format)
def test_threads_do_not_matter(
    build: native.Kernels, format: Format, request: pytest.FixtureRequest
) -> None:
    weight = make_weight(format, 200, 100)
    rows = [normal(count, 100) for count in (1, 3, 64)]
    norm = normal(100, seed=3)
    one = [product(weight, x, Source.NORM, norm=norm) for x in rows]
    request.getfixturevalue("two_threads")
    for x, expected in zip(rows, one, strict=True):
        assert torch.equal(product(weight, x, Source.NORM, norm=norm), expected)


@each_build
@pytest.mark.parametrize("format", Format)
def test_strides_are_honoured_and_nothing_else_is_written(
    build: native.Kernels, format: Format
) -> None:
    weight, wide = make_weight(format, 45, 100), normal(7, 130)
    wide[:, :9] = wide[:, 109:] = torch.nan  # nothing beside the rows is read
    x, out = wide[:, 9:109], torch.full((7, 60), 2.0)
    KernelLinear(weight)(x, out[:, 5:50])
    assert torch.equal(out[:, 5:50], product(weight, x.contiguous()))
    out[:, 5:50] = 2
    assert (out == 2).all()


@each_build
@pytest.mark.parametrize("format", Format)
def test_zeros_and_huge_values(build: native.Kernels, format: Format) -> None:
    weight = make_weight(format, 45, 100)
    zeros = torch.zeros(2, 100)
    norm = torch.ones(100)
    assert not product(weight, zeros).any()
    assert not product(weight, zeros, Source.NORM, norm=norm, eps=EPS).any()
    assert not product(weight, torch.zeros(2, 200), Source.GATED).any()
    huge = normal(4, 100) * torch.tensor([[1e30], [1e-30], [1e4], [1.0]])
    assert_close(weight, huge, product(weight, huge))
    gates = normal(2, 200) * torch.tensor([[1e15], [1e4]])  # silu of -1e15 is 0, not NaN
    assert product(weight, gates, Source.GATED).isfinite().all()
    assert product(weight, torch.zeros(0, 100)).shape == (0, 45)


@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize("source", Source)
def test_builds_agree(format: Format, source: Source) -> None:
    """Bit for bit; only how a processor rounds within a product of bf16 pairs is its own affair."""
    modules = [usable(name).module for name in ("avx512", "avx2")]
    weight, norm = make_weight(format, 97, 1000), normal(1000, seed=3)
    x = normal(13, 2000 if source is Source.GATED else 1000)
    one, two = (product(weight, x, source, norm=norm, module=module) for module in modules)
    if format is Format.BFLOAT:
        torch.testing.assert_close(one, two, rtol=0, atol=1e-3)
    else:
        assert torch.equal(one, two)
