"""Paged attention against a naive reference, and its bits against itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from outpace.cache.pools import KVPool
from outpace.model.attention import AttentionPlan, PagedAttention
from outpace.model.batch import View

CPU = torch.device("cpu")


def causal(rows: Sequence[int], start: int, slots: np.ndarray) -> View:
    """Rows that are the positions from ``start`` on of a request with its keys in ``slots``."""
    positions = np.arange(start, start + len(rows))
    return View(np.array(rows), positions, slots, np.arange(len(slots)), None)


def filled_pool(num_slots: int, kv_heads: int, width: int, dtype: torch.dtype) -> KVPool:
    pool = KVPool(1, num_slots, kv_heads, width, dtype, CPU)
    generator = torch.Generator().manual_seed(1)
    pool.layers[0].copy_(torch.randn(pool.layers[0].shape, generator=generator))
    return pool


def attend(
    pool: KVPool,
    views: Sequence[View],
    mapping: np.ndarray,
    query: torch.Tensor,
    kv: torch.Tensor,
    window: int | None = None,
) -> torch.Tensor:
    plan = AttentionPlan(views, mapping, query.shape[1], kv.shape[2], query.dtype, CPU)
    scale = query.shape[2] ** -0.5
    return PagedAttention(pool, plan, (window,), scale)(0, query, kv)


def naive(
    cache: torch.Tensor, views: Sequence[View], query: torch.Tensor, window: int | None
) -> torch.Tensor:
    """The same in float64, a row and a head at a time."""
    result = torch.zeros(query.shape, dtype=torch.float64)
    group = query.shape[1] // cache.shape[2]
    for view in views:
        for index, row in enumerate(view.rows):
            seen = [
                slot
                for key, slot in enumerate(view.slots)
                if (
                    view.key_positions[key] <= view.positions[index]
                    if view.mask is None
                    else view.mask[index, key]
                )
                and (window is None or view.positions[index] - view.key_positions[key] < window)
            ]
            for head in range(query.shape[1]):
                keys, values = cache[seen, :, head // group].double().unbind(1)
                scores = keys @ query[row, head].double() * query.shape[2] ** -0.5
                result[row, head] = scores.softmax(0) @ values
    return result.flatten(1)


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[View], np.ndarray, int, int, int | None]:
    """Several views over disjoint slots: causal or masked, in a run or scattered."""
    kv_heads = draw(st.sampled_from([1, 2, 3]))
    group = draw(st.sampled_from([1, 2, 3, 6, 7]))
    window = draw(st.sampled_from([None, 1, 3, 40]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    counts = draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    total = sum(counts) + draw(st.integers(0, 3))
    order = rng.permutation(total) if draw(st.booleans()) else np.arange(total)
    mapping = np.zeros(total, dtype=np.int64)
    views, first_row, first_slot = [], 0, 1
    for count in counts:
        length = count + draw(st.integers(0, 30))
        slots = np.arange(first_slot, first_slot + length)
        if draw(st.booleans()):
            slots = rng.permutation(slots)
        rows = order[first_row : first_row + count]
        positions = np.arange(length - count, length)
        mask = None
        if draw(st.booleans()):
            mask = rng.random((count, length)) < 0.5
            mask[np.arange(count), positions] = True  # a row sees itself
        views.append(View(rows, positions, slots, np.arange(length), mask))
        mapping[rows] = slots[positions]
        first_row, first_slot = first_row + count, first_slot + length
    return views, mapping, kv_heads, group, window


@settings(max_examples=30, deadline=None)
@given(batches(), st.sampled_from([torch.float32, torch.bfloat16]))
def test_equals_the_naive_reference(
    batch: tuple[list[View], np.ndarray, int, int, int | None], dtype: torch.dtype
) -> None:
    views, mapping, kv_heads, group, window = batch
    pool = filled_pool(700, kv_heads, 16, dtype)
    # What no row may see would show at once.
    used = np.concatenate([view.slots for view in views])
    unused = np.setdiff1d(np.arange(700), used)
    pool.layers[0][torch.from_numpy(unused)] = 1e30
    generator = torch.Generator().manual_seed(2)
    query = torch.randn(len(mapping), kv_heads * group, 16, generator=generator).to(dtype)
    kv = torch.randn(len(mapping), 2, kv_heads, 16, generator=generator).to(dtype)
    result = attend(pool, views, mapping, query, kv, window)
    expected = naive(pool.layers[0], views, query, window)
    tolerance = 1e-5 if dtype == torch.float32 else 4e-2
    torch.testing.assert_close(result.double(), expected, atol=tolerance, rtol=tolerance)
    written = np.concatenate([view.rows for view in views])
    where = torch.from_numpy(mapping[written])
    assert torch.equal(pool.layers[0][where], kv[torch.from_numpy(written)])


def test_rows_of_no_view_get_zeros_and_rows_that_see_nothing_stay_finite() -> None:
    pool = filled_pool(600, 2, 16, torch.float32)
    query, kv = torch.randn(4, 4, 16), torch.randn(4, 2, 2, 16)
    blind = View(
        np.array([1]), np.array([5]), np.arange(1, 7), np.arange(6), np.zeros((1, 6), bool)
    )
    result = attend(pool, [blind], np.array([0, 6, 0, 0]), query, kv)
    assert torch.equal(result[[0, 2, 3]], torch.zeros(3, 64))
    assert result.isfinite().all()
    assert torch.equal(attend(pool, [], np.zeros(4, np.int64), query, kv), torch.zeros(4, 64))


LENGTHS = (1, 257, 511, 512, 513, 1023, 1024, 1025)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize(
    ("width", "kv_heads", "group"),
    [(16, 1, 1), (16, 1, 7), (32, 2, 6), (64, 3, 3), (64, 4, 1), (128, 1, 6), (128, 2, 1)],
)
def test_bits_do_not_depend_on_chunking(
    dtype: torch.dtype, width: int, kv_heads: int, group: int
) -> None:
    """One row, a few rows or all of them at once; keys in place or gathered."""
    total = 1100
    pool = filled_pool(2000, kv_heads, width, dtype)
    slots = np.arange(5, 5 + total)
    scattered = np.random.default_rng(0).permutation(np.arange(1, 2000))[:total]
    other = KVPool(1, 2000, kv_heads, width, dtype, CPU)
    other.layers[0][torch.from_numpy(scattered)] = pool.layers[0][torch.from_numpy(slots)]
    query = torch.randn(total, kv_heads * group, width).to(dtype)
    kv = pool.layers[0][torch.from_numpy(slots)].clone()

    def part(start: int, end: int, pool: KVPool, slots: np.ndarray) -> torch.Tensor:
        view = causal(range(end - start), start, slots[:end])
        return attend(pool, [view], slots[start:end], query[start:end], kv[start:end])

    whole = part(0, total, pool, slots)
    for end in LENGTHS:
        for count in (1, 3, 8, 65):
            start = max(0, end - count)
            expected = whole[start:end]
            assert torch.equal(part(start, end, pool, slots), expected), (start, end)
            if count in (1, 8):
                assert torch.equal(part(start, end, other, scattered), expected), (start, end)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("window", [None, 70])
def test_bits_do_not_depend_on_grouping(dtype: torch.dtype, window: int | None) -> None:
    """Requests of like and unlike sizes, in one call or each alone."""
    kv_heads, group, width = 2, 3, 32
    lengths = (513, 20, 512, 700, 33, 1025, 90, 1, 2)
    counts = (1, 1, 5, 1, 3, 1, 20, 1, 2)
    pool = filled_pool(4000, kv_heads, width, dtype)
    query = torch.randn(sum(counts), kv_heads * group, width).to(dtype)
    kv = torch.randn(sum(counts), 2, kv_heads, width).to(dtype)
    views, row, slot = [], 0, 1
    for count, length in zip(counts, lengths, strict=True):
        slots = np.arange(slot, slot + length)
        views.append(causal(range(row, row + count), length - count, slots))
        row, slot = row + count, slot + length
    mapping = np.concatenate([view.slots[view.positions] for view in views])
    together = attend(pool, views, mapping, query, kv, window)
    assert torch.equal(attend(pool, views[::-1], mapping, query, kv, window), together)
    for view in views:
        rows = torch.from_numpy(view.rows)
        alone = causal(range(len(rows)), int(view.positions[0]), view.slots)
        result = attend(pool, [alone], mapping[view.rows], query[rows], kv[rows], window)
        assert torch.equal(result, together[rows])
