"""The parts of a layer: linear, norm, activation, rotary embedding."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F

from outpace.model import linear
from outpace.model.layers import make_norm, silu_and_mul
from outpace.model.linear import PackedLinear, PlainLinear, make_linear, packing_works, padded_rows
from outpace.model.rope import Rope, rotate_

CPU = torch.device("cpu")
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def rows_with(works: bool, dtype: torch.dtype, rows: int) -> int:
    """The row rule as it is where packing works, or does not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear, "packing_works", lambda dtype: works)
        return padded_rows(rows, dtype)


def test_padded_rows() -> None:
    numbers = (1, 4, 5, 64)
    assert [rows_with(False, torch.float32, rows) for rows in numbers] == [4, 4, 8, 64]
    assert [rows_with(True, torch.float32, rows) for rows in numbers] == [1, 4, 5, 64]
    assert [rows_with(False, torch.bfloat16, rows) for rows in numbers] == [1, 4, 5, 64]
    assert [rows_with(True, torch.bfloat16, rows) for rows in numbers] == [2, 4, 5, 64]


@DTYPES
@pytest.mark.parametrize(("inner", "outer"), [(48, 80), (576, 960), (192, 576), (96, 301)])
def test_linear_bits_do_not_depend_on_the_rows(dtype: torch.dtype, inner: int, outer: int) -> None:
    weight, bias = torch.randn(outer, inner).to(dtype), torch.randn(outer).to(dtype)
    x = torch.randn(256, inner).to(dtype)
    for offset in (None, bias):
        for layer in (make_linear(weight, offset), PlainLinear(weight, offset)):
            whole = layer(x)
            expected = F.linear(
                x.double(), weight.double(), None if offset is None else bias.double()
            )
            torch.testing.assert_close(whole.double(), expected, atol=0.3, rtol=2e-2)
            for rows in [*range(1, 65), 100, 128]:
                count = rows_with(isinstance(layer, PackedLinear), dtype, rows)
                assert torch.equal(layer(x[:count].clone()), whole[:count]), rows
                assert torch.equal(layer(x[-count:].clone()), whole[-count:]), rows


@DTYPES
def test_linear_falls_back_when_the_check_fails(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = torch.randn(32, 32).to(dtype)
    kind = PackedLinear if packing_works(dtype) else PlainLinear
    assert isinstance(make_linear(weight, None), kind)
    assert isinstance(make_linear(weight.double(), None), PlainLinear)
    monkeypatch.setattr(linear, "packing_works", lambda dtype: False)
    assert isinstance(make_linear(weight, None), PlainLinear)


@pytest.mark.parametrize("error", [AttributeError, RuntimeError, NotImplementedError])
def test_packing_check_survives_missing_operators(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def broken(*_: object) -> None:
        raise error("no such operator")

    monkeypatch.setattr(linear, "PackedLinear", broken)
    assert packing_works.__wrapped__(torch.bfloat16) is False


def test_packing_check_refuses_wrong_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "PackedLinear", lambda w, b: lambda x: F.linear(x, w, b) + 1)
    assert packing_works.__wrapped__(torch.bfloat16) is False
    monkeypatch.setattr(
        linear, "PackedLinear", lambda w, b: lambda x: F.linear(x, w, b) * (1 + len(x) % 2 / 128)
    )
    assert packing_works.__wrapped__(torch.bfloat16) is False
    monkeypatch.setattr(linear, "PackedLinear", PlainLinear)
    assert packing_works.__wrapped__(torch.bfloat16) is True


@DTYPES
@pytest.mark.parametrize("width", [48, 576, 100])
def test_norm_equals_the_formula_and_keeps_its_bits(dtype: torch.dtype, width: int) -> None:
    weight, x = torch.randn(width).to(dtype), torch.randn(70, width).to(dtype) * 3
    norm = make_norm(weight, 1e-5)
    whole = norm(x)
    torch.testing.assert_close(whole, F.rms_norm(x, (width,), weight, 1e-5), atol=1e-5, rtol=1e-2)
    assert norm(torch.zeros(2, width, dtype=dtype)).isfinite().all()
    for rows in (1, 2, 3, 7, 17, 64):
        assert torch.equal(norm(x[:rows]), whole[:rows])
        assert torch.equal(norm(x[-rows:]), whole[-rows:])


@DTYPES
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("inner", [100, 1000, 1536, 40_001])
def test_activation_bits_do_not_depend_on_rows(
    dtype: torch.dtype, inner: int, count: int, threads: None
) -> None:
    """Across the size at which the kernel takes more threads, for any number of them."""
    torch.set_num_threads(count)
    x = (torch.randn(40, 2 * inner) * 3).to(dtype)
    whole = silu_and_mul(x)
    expected = F.silu(x[:, :inner].float()) * x[:, inner:].float()
    torch.testing.assert_close(whole.float(), expected, atol=1e-2, rtol=2e-2)
    for rows in (1, 2, 3, 5, 8, 21, 33):
        assert torch.equal(silu_and_mul(x[:rows]), whole[:rows]), rows
        assert torch.equal(silu_and_mul(x[-rows:]), whole[-rows:]), rows


@DTYPES
def test_rotation_bits_do_not_depend_on_rows_or_on_the_table(dtype: torch.dtype) -> None:
    rope = Rope(20, 10_000.0, None, 100_000, dtype, CPU)
    positions = torch.randint(0, 30_000, (50,))
    heads = torch.randn(50, 5, 20).to(dtype)
    whole = heads.clone()
    rotate_(whole, *rope.lookup(positions))
    rope.lookup(torch.tensor([90_000]))  # the table grows
    for rows in (1, 2, 3, 9, 33):
        part = heads[-rows:].clone()
        rotate_(part, *rope.lookup(positions[-rows:]))
        assert torch.equal(part, whole[-rows:])
    norms = heads.float().norm(dim=-1)
    torch.testing.assert_close(whole.float().norm(dim=-1), norms, atol=0.05, rtol=0.02)
