"""Attention by the compiled kernels, against plain torch in float64."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from outpace.kernels import native
from outpace.kernels.native import HeadShape, attend, attention_fits

from kernel_builds import each_build, usable

BORDERS = (1, 2, 15, 16, 17, 255, 256, 257, 511, 512, 513, 530)
WIDTHS = (16, 32, 48, 64, 80, 96, 112, 128, 256)
EPS = 1e-6
DTYPES = [torch.float32, torch.bfloat16]


@pytest.fixture
def build(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> native.Kernels:
    found = usable(request.param)
    monkeypatch.setattr(native, "kernels", lambda: found)
    return found


@dataclass
class Step:
    """One row of each of several requests, whose slots are scattered over the cache."""

    shape: HeadShape
    cache: Tensor  # [slots, 2, Hkv, D], NaN where no row sees it
    slots: list[Tensor]  # of each row, in order of positions; the last is its own
    qkv: Tensor
    angles: tuple[Tensor, Tensor]
    norms: tuple[Tensor | None, Tensor | None, float] = (None, None, EPS)
    window: int = 0
    scale: float = 0.3

    def run(self, cache: Tensor, rows: slice = slice(None)) -> Tensor:
        """The kernel's result for some of the rows; writes ``cache``."""
        slots = self.slots[rows]
        lengths = torch.tensor([len(s) for s in slots])
        table = torch.stack((lengths.cumsum(0) - lengths, lengths), 1).int()
        out = torch.full((len(slots), self.shape.heads * self.shape.width), 3.5)
        positions = torch.arange(len(self.slots))[rows].contiguous()
        attend(
            self.shape,
            self.qkv[rows].contiguous(),
            (positions, *self.angles),
            self.norms,
            cache,
            torch.stack([s[-1] for s in slots]),
            (table, torch.cat(slots).int()),
            self.window,
            self.scale,
            out,
        )
        return out

    def reference(self) -> tuple[Tensor, Tensor]:
        """The cache and the result, float64 where the kernel sums."""
        shape, dtype = self.shape, self.cache.dtype
        heads = self.qkv.view(len(self.slots), -1, shape.width)
        parts = heads.split((shape.heads, shape.kv_heads, shape.kv_heads), 1)
        queries, keys = (
            self.rotated(x, norm).to(dtype)
            for x, norm in zip(parts[:2], self.norms[:2], strict=True)
        )
        cache = self.cache.clone()
        own = torch.stack([s[-1] for s in self.slots])
        cache[own] = torch.stack((keys, parts[2].to(dtype)), 1)
        out = []
        for query, slots in zip(queries.double(), self.slots, strict=True):
            seen = slots[-self.window :] if self.window else slots
            key, value = cache[seen].double().unbind(1)
            query = query.view(shape.kv_heads, -1, shape.width)
            weights = torch.einsum("hgd,nhd->hgn", query, key).mul(self.scale).softmax(-1)
            out.append(torch.einsum("hgn,nhd->hgd", weights, value).flatten())
        return cache, torch.stack(out)

    def rotated(self, x: Tensor, norm: Tensor | None) -> Tensor:
        if norm is not None:
            x = F.rms_norm(x.double(), x.shape[-1:], norm.double(), EPS).float()
        first, second = x.chunk(2, -1)
        cosine, sine = (angle.unsqueeze(1) for angle in self.angles)
        return torch.cat((first * cosine - second * sine, second * cosine + first * sine), -1)


def make_step(
    shape: HeadShape, dtype: torch.dtype, lengths: tuple[int, ...] = BORDERS, **options: object
) -> Step:
    generator = torch.Generator().manual_seed(sum(lengths))
    total = sum(lengths)
    cache = torch.randn(total + 50, 2, shape.kv_heads, shape.width, generator=generator).to(dtype)
    order = torch.randperm(total + 50, generator=generator)
    cache[order[total:]] = torch.nan
    angles = torch.rand(len(lengths), shape.width // 2, generator=generator) * 6
    return Step(
        shape,
        cache,
        list(order[:total].split(lengths)),
        torch.randn(len(lengths), shape.qkv_width, generator=generator),
        (angles.cos(), angles.sin()),
        **options,  # type: ignore[arg-type]
    )


def check(step: Step) -> None:
    cache, expected = step.reference()
    found_cache = step.cache.clone()
    found = step.run(found_cache)
    if step.norms[0] is None:  # the rotation is the same arithmetic
        assert torch.equal(found_cache.nan_to_num(7), cache.nan_to_num(7))
        tolerance = 3e-6  # float32 sums, exp to 2e-7
    else:  # a norm may round to another bf16
        close = {"rtol": 2.0**-7, "atol": 1e-6, "equal_nan": True}
        torch.testing.assert_close(found_cache, cache, **close)
        tolerance = 3e-6 if step.cache.dtype == torch.float32 else 2e-2
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=tolerance)


@each_build
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_width_over_all_borders(
    build: native.Kernels, width: int, dtype: torch.dtype
) -> None:
    check(make_step(HeadShape(6, 2, width), dtype, scale=width**-0.5))


@each_build
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("group", range(1, 17))
def test_every_group_size(build: native.Kernels, group: int, dtype: torch.dtype) -> None:
    check(make_step(HeadShape(2 * group, 2, 32), dtype, (1, 17, 270)))


@each_build
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("window", [1, 2, 16, 17, 100, 256, 257, 529])
def test_windows(build: native.Kernels, window: int, dtype: torch.dtype) -> None:
    check(make_step(HeadShape(3, 1, 64), dtype, window=window))


@each_build
@pytest.mark.parametrize("dtype", DTYPES)
def test_norms_of_queries_and_keys(build: native.Kernels, dtype: torch.dtype) -> None:
    norms = (torch.rand(64) + 0.5, torch.rand(64) + 0.5, EPS)
    check(make_step(HeadShape(4, 2, 64), dtype, (3, 40, 300), norms=norms))


@each_build
@pytest.mark.parametrize("dtype", DTYPES)
def test_large_scores_do_not_overflow(build: native.Kernels, dtype: torch.dtype) -> None:
    """Scores in the thousands: one key takes all, and the rest vanish without NaN."""
    step = make_step(HeadShape(2, 2, 64), dtype, (1, 30, 300))
    step.scale = 100.0
    _, expected = step.reference()
    found = step.run(step.cache.clone())
    # An error of float32 in a score of 5000 is one of 1e-3 in its weight.
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-2)


@each_build
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_and_threads_do_not_matter(build: native.Kernels, dtype: torch.dtype) -> None:
    """Few rows share chunks among threads, many do not: the same bits."""
    lengths = tuple(BORDERS) * 3  # more rows than share
    step = make_step(HeadShape(6, 2, 32), dtype, lengths)
    alone = torch.cat([step.run(step.cache.clone(), slice(i, i + 1)) for i in range(len(lengths))])
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            for rows in (slice(None), slice(0, 32), slice(3, 8)):
                assert torch.equal(step.run(step.cache.clone(), rows), alone[rows])
        finally:
            torch.set_num_threads(1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_builds_agree(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit in float32; how bf16 pairs are rounded is the processor's own affair."""
    step, found = make_step(HeadShape(6, 2, 80), dtype), []
    for name in ("avx512", "avx2"):
        kernels = usable(name)
        monkeypatch.setattr(native, "kernels", lambda kernels=kernels: kernels)
        found.append(step.run(step.cache.clone()))
    if dtype == torch.float32:
        assert torch.equal(*found)
    else:
        torch.testing.assert_close(*found, rtol=0, atol=3e-6)


def test_which_shapes_fit() -> None:
    assert all(attention_fits(HeadShape(16, 1, width)) for width in WIDTHS)
    assert not attention_fits(HeadShape(17, 1, 64))
    for width in (8, 24, 144, 192, 512):
        assert not attention_fits(HeadShape(4, 4, width))
