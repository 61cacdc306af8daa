"""Which sequence holds which cache block, and which blocks hold a known beginning."""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

NULL_BLOCK = 0


@dataclass(slots=True)
class BlockTable:
    """The blocks of one sequence, in the order of its positions.

    ``keys`` names the content of each leading block that is full and computed: a digest of all
    tokens up to its end.
    """

    blocks: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)


class BlockManager:
    """Hands out blocks, shares those with an equal beginning, and evicts the oldest unused.

    Block 0 is never handed out: padding reads and writes there.

    Args:
        num_blocks: how many, the null block included.
        block_size: tokens in a block.
        prefix_caching: whether freed blocks stay findable by their content.
    """

    def __init__(self, num_blocks: int, block_size: int, prefix_caching: bool = True) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self._prefix_caching = prefix_caching
        self._references = [0] * num_blocks
        # Lowest first, so that a sequence tends to get a contiguous run.
        self._blank = list(range(1, num_blocks))
        self._unused: OrderedDict[int, None] = OrderedDict()  # content kept, oldest first
        self._by_key: dict[bytes, int] = {}
        self._key_of: dict[int, bytes] = {}

    @property
    def num_free(self) -> int:
        """Blocks that can be handed out now, those with reusable content included."""
        return len(self._blank) + len(self._unused)

    def blocks_for(self, num_tokens: int) -> int:
        """How many blocks hold so many tokens."""
        return -(-num_tokens // self.block_size)

    def reserve(self, table: BlockTable, num_tokens: int) -> bool:
        """Extend ``table`` to hold ``num_tokens``; False, and nothing changed, if it cannot."""
        missing = self.blocks_for(num_tokens) - len(table.blocks)
        if missing > self.num_free:
            return False
        table.blocks.extend(self._take() for _ in range(missing))
        return True

    def trim(self, table: BlockTable, num_tokens: int) -> None:
        """Give back what lies beyond ``num_tokens``: slots that a rejected draft had."""
        keep = self.blocks_for(num_tokens)
        for block in reversed(table.blocks[keep:]):
            self._release(block)
        del table.blocks[keep:]

    def free(self, table: BlockTable) -> None:
        """Give back everything; what was committed stays findable until it is evicted."""
        # Last first: a beginning is shared more often than an end, and should be evicted later.
        self.trim(table, 0)
        table.keys.clear()

    def match(self, table: BlockTable, token_ids: NDArray[np.int64], salt: bytes = b"") -> int:
        """Fill an empty ``table`` with the longest known beginning of ``token_ids``.

        Returns:
            How many tokens it holds; always fewer than there are, since the last one must be
            computed for its logits.
        """
        if not self._prefix_caching:
            return 0
        size = self.block_size
        key = salt
        for start in range(0, len(token_ids) - size, size):
            key = _content_key(key, token_ids[start : start + size])
            block = self._by_key.get(key)
            if block is None:
                break
            self._hold(block)
            table.blocks.append(block)
            table.keys.append(key)
        return len(table.blocks) * size

    def commit(self, table: BlockTable, token_ids: NDArray[np.int64], salt: bytes = b"") -> None:
        """Name the blocks that ``token_ids``, all computed, have filled since the last commit."""
        size = self.block_size
        for index in range(len(table.keys), len(token_ids) // size):
            parent = table.keys[index - 1] if index else salt
            key = _content_key(parent, token_ids[index * size : (index + 1) * size])
            table.keys.append(key)
            if self._prefix_caching and key not in self._by_key:
                self._by_key[key] = table.blocks[index]
                self._key_of[table.blocks[index]] = key

    def slots(self, table: BlockTable, start: int, stop: int) -> NDArray[np.int64]:
        """The cache slots of positions ``start`` to ``stop`` (excluded): ``[stop - start]``."""
        return slots(table.blocks, start, stop, self.block_size)

    def check_integrity(self, tables: Iterable[BlockTable]) -> None:
        """Hold the books against the tables of all living sequences.

        Raises:
            AssertionError: a block that leaked, is held twice, or is free and in use.
        """
        held = Counter(block for table in tables for block in table.blocks)
        assert NULL_BLOCK not in held, "the null block was handed out"
        for block in range(1, self.num_blocks):
            assert self._references[block] == held[block], f"block {block}: wrong references"
        blank, unused = set(self._blank), set(self._unused)
        assert len(blank) == len(self._blank), "a block is blank twice"
        assert not blank & unused, "a block is blank and has content"
        assert blank | unused | set(held) == set(range(1, self.num_blocks)), "a block leaked"
        assert not (blank | unused) & set(held), "a block is free and in use"
        assert not blank & set(self._key_of), "a blank block has a name"
        assert all(self._key_of[b] == key for key, b in self._by_key.items()), "names disagree"

    def _take(self) -> int:
        if self._blank:
            block = heapq.heappop(self._blank)
        else:
            block, _ = self._unused.popitem(last=False)
            del self._by_key[self._key_of.pop(block)]
        self._references[block] = 1
        return block

    def _hold(self, block: int) -> None:
        self._unused.pop(block, None)
        self._references[block] += 1

    def _release(self, block: int) -> None:
        self._references[block] -= 1
        if self._references[block] > 0:
            return
        if block in self._key_of:
            self._unused[block] = None
        else:
            heapq.heappush(self._blank, block)


def slots(
    blocks: list[int] | tuple[int, ...], start: int, stop: int, block_size: int
) -> NDArray[np.int64]:
    """The cache slots of positions ``start`` to ``stop`` (excluded) of a block table."""
    positions = np.arange(start, stop)
    table = np.asarray(blocks, dtype=np.int64)
    return table[positions // block_size] * block_size + positions % block_size


def _content_key(parent: bytes, token_ids: NDArray[np.int64]) -> bytes:
    """Names all tokens up to here; 16 bytes of BLAKE2b, so that no two contents collide."""
    return hashlib.blake2b(token_ids.tobytes(), digest_size=16, key=parent).digest()
