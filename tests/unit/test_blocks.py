from __future__ import annotations

import numpy as np
import pytest

from outpace.cache.blocks import BlockManager, BlockTable


def tokens(n: int) -> np.ndarray:
    return np.arange(n)


def test_an_equal_beginning_is_shared_and_the_last_token_is_left_to_compute() -> None:
    manager = BlockManager(10, 4)
    first = BlockTable()
    assert manager.reserve(first, 8)
    manager.commit(first, tokens(8))
    second = BlockTable()
    assert manager.match(second, tokens(8)) == 4  # not 8: the last one must yield logits
    third = BlockTable()
    assert manager.match(third, tokens(9)) == 8
    assert third.blocks == first.blocks


def test_freed_content_is_found_again_until_it_is_evicted() -> None:
    manager = BlockManager(5, 4)
    table = BlockTable()
    assert manager.reserve(table, 8)
    manager.commit(table, tokens(8))
    manager.free(table)
    assert manager.num_free == 4
    again = BlockTable()
    assert manager.match(again, tokens(9)) == 8
    manager.free(again)
    other = BlockTable()
    assert manager.reserve(other, 16)  # needs all four blocks
    manager.free(other)
    assert manager.match(BlockTable(), tokens(9)) == 0


def test_the_beginning_outlives_the_end_under_eviction() -> None:
    manager = BlockManager(5, 4)
    table = BlockTable()
    assert manager.reserve(table, 16)
    manager.commit(table, tokens(16))
    manager.free(table)
    other = BlockTable()
    assert manager.reserve(other, 8)
    assert manager.match(BlockTable(), tokens(17)) == 8


def test_other_salt_other_content() -> None:
    manager = BlockManager(10, 4)
    table = BlockTable()
    manager.reserve(table, 8)
    manager.commit(table, tokens(8), salt=b"a")
    assert manager.match(BlockTable(), tokens(9), salt=b"b") == 0
    assert manager.match(BlockTable(), tokens(9), salt=b"a") == 8


def test_without_prefix_caching_nothing_is_found() -> None:
    manager = BlockManager(10, 4, prefix_caching=False)
    table = BlockTable()
    manager.reserve(table, 8)
    manager.commit(table, tokens(8))
    assert manager.match(BlockTable(), tokens(9)) == 0


def test_a_reservation_that_fails_changes_nothing() -> None:
    manager = BlockManager(4, 4)
    table = BlockTable()
    assert manager.reserve(table, 4)
    assert not manager.reserve(table, 100)
    assert len(table.blocks) == 1
    assert manager.num_free == 2


def test_integrity_notices_a_leak() -> None:
    manager = BlockManager(4, 4)
    manager.reserve(BlockTable(), 4)
    with pytest.raises(AssertionError, match="block 1"):
        manager.check_integrity([])
