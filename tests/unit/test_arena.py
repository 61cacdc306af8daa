"""Memory for weights: lines of the cache, no overlap, alive as long as it is used."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.kernels.arena import Arena

MIB = 1 << 20


@given(st.lists(st.integers(1, 3 * MIB), min_size=1, max_size=8))
def test_pieces_are_aligned_and_apart(sizes: list[int]) -> None:
    arena = Arena()
    pieces = [arena.bytes((size,)) for size in sizes]
    for number, piece in enumerate(pieces):
        assert piece.data_ptr() % 64 == 0
        piece.fill_(number + 1)
    for number, (piece, size) in enumerate(zip(pieces, sizes, strict=True)):
        assert piece.shape == (size,)
        assert int(piece.min()) == int(piece.max()) == number + 1


def test_a_piece_may_be_larger_than_a_chunk_and_outlive_its_arena() -> None:
    arena = Arena()
    small, large = arena.bytes((3, 5)), arena.bytes((40, MIB))
    small.fill_(7)
    large.fill_(9)
    del arena
    gc.collect()
    assert int(small.sum()) == 105
    assert int(large[39, -1]) == 9


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_memory_is_of_the_kind_that_has_large_pages() -> None:
    piece = Arena().bytes((MIB,))  # kept, or it would be gone
    address = piece.data_ptr()
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, permissions = line.split()[:2]
        begin, end = (int(part, 16) for part in span.split("-"))
        if begin <= address < end:
            assert permissions.endswith("p"), "shared memory has none, unless an administrator asks"
            return
    pytest.fail("the memory is not mapped")
