"""The allocator under any order of events."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from outpace.cache.blocks import BlockManager, BlockTable


class Books(RuleBasedStateMachine):
    """Sequences over two token ids, so that equal beginnings are common."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 3
        self.manager = BlockManager(num_blocks=12, block_size=self.size)
        self.living: list[tuple[BlockTable, list[int]]] = []
        # What a block holds by our own account: the tokens up to its end, written when computed.
        self.content: dict[int, tuple[int, ...]] = {}

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=14))
    def admit(self, tokens: list[int]) -> None:
        table = BlockTable()
        cached = self.manager.match(table, np.array(tokens))
        assert cached < len(tokens)
        assert cached % self.size == 0
        for i, block in enumerate(table.blocks):
            assert self.content[block] == tuple(tokens[: (i + 1) * self.size])
        if not self.manager.reserve(table, len(tokens)):
            self.manager.free(table)
            return
        self._compute(table, tokens, cached)
        self.living.append((table, tokens))

    @precondition(lambda self: self.living)
    @rule(data=st.data(), extra=st.lists(st.integers(0, 1), max_size=5), rejected=st.integers(0, 7))
    def grow(self, data: st.DataObject, extra: list[int], rejected: int) -> None:
        table, tokens = data.draw(st.sampled_from(self.living))
        before = list(table.blocks)
        if not self.manager.reserve(table, len(tokens) + len(extra) + rejected):
            assert table.blocks == before
            return
        tokens.extend(extra)
        self._compute(table, tokens, len(tokens) - len(extra))
        self.manager.trim(table, len(tokens))
        assert len(table.blocks) == self.manager.blocks_for(len(tokens))

    def _compute(self, table: BlockTable, tokens: list[int], start: int) -> None:
        """Write what was not cached, and name what became full."""
        for i in range(start // self.size, len(tokens) // self.size):
            self.content[table.blocks[i]] = tuple(tokens[: (i + 1) * self.size])
        self.manager.commit(table, np.array(tokens))

    @precondition(lambda self: self.living)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.living) - 1))
        table, _ = self.living.pop(index)
        self.manager.free(table)
        assert table.blocks == []

    @invariant()
    def books_are_right(self) -> None:
        self.manager.check_integrity(table for table, _ in self.living)

    @invariant()
    def nobody_writes_into_shared_content(self) -> None:
        for table, tokens in self.living:
            for i in range(len(tokens) // self.size):
                assert self.content[table.blocks[i]] == tuple(tokens[: (i + 1) * self.size])


Books.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestBooks = Books.TestCase
