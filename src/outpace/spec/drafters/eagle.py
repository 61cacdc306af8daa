"""A head on the target's hidden states that runs ahead of it (EAGLE-3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outpace.cache.blocks import slots
from outpace.cache.pools import KVPool
from outpace.config import EagleConfig
from outpace.model.batch import Batch, View
from outpace.model.heads.eagle_pass import EaglePass
from outpace.model.heads.vocabulary import HeadVocabulary
from outpace.spec.drafter import Ask, Seen
from outpace.spec.drafters.written_rows import WrittenRows
from outpace.spec.growth import ChainGrowth, Growth, Leaf, TreeGrowth
from outpace.spec.tree import DraftTree

# So many tokens may wait for the next proposal before they are computed without one.
_MOST_WAITING = 128
# Below this budget a drawn chain, with its distributions, is accepted more often than a tree.
_SMALLEST_SAMPLED_TREE = 4


@dataclass(slots=True)
class _Context:
    """What the head has of one sequence.

    The row of token p needs the target's state of token p - 1. Rows before ``next`` are in the
    cache, but for those of ``missing``: the first token's, which nothing stands before, and those
    of tokens that were not computed while this head was listening.

    Attributes:
        next: the first token without a row.
        missing: ascending positions of earlier tokens that have none.
        waiting: tapped states of the tokens from ``next`` - 1 on, in pieces ``[n, taps * hidden]``.
            They are combined when they are needed: to listen costs next to nothing.
        num_waiting: how many these are.
    """

    next: int
    missing: NDArray[np.int64]
    waiting: list[Tensor] = field(default_factory=list)
    num_waiting: int = 0

    @property
    def end(self) -> int:
        """The first token whose row cannot be computed yet."""
        return self.next + self.num_waiting

    def positions(self, stop: int) -> NDArray[np.int64]:
        """The tokens before ``stop`` that have a row, or will have one when ``stop`` does."""
        there = np.ones(stop, dtype=bool)
        there[self.missing] = False
        return np.flatnonzero(there)


@dataclass(slots=True)
class _Draft:
    """One sequence being drafted for."""

    ask: Ask
    growth: Growth
    context: NDArray[np.int64]
    slots: NDArray[np.int64]
    hidden: Tensor  # [leaves of the last level, hidden]
    leaves: list[Leaf] = field(default_factory=list)


class EagleDrafter:
    """Drafts with an EAGLE-3 head: a chain, or the tree of the best total probability.

    The head has a cache of its own on the sequence's block table. A token's row goes to the
    token's slot and depends on no later token, just like the target's, so rows of shared blocks
    are shared. Rows of guesses lie behind the known tokens and are written over with those of
    the target's own states: nothing but these stays.

    Args:
        head: the head.
        vocabulary: the tokens it can say.
        pool: its cache, with a slot for each of the target's.
        block_size: tokens in a cache block.
        config: shape and width of the drafts.
    """

    name = "eagle"
    sources: tuple[str, ...] = ("eagle",)

    def __init__(
        self,
        head: EaglePass,
        vocabulary: HeadVocabulary,
        pool: KVPool,
        block_size: int,
        config: EagleConfig,
    ) -> None:
        self.taps: tuple[int, ...] | None = head.config.taps
        self._head = head
        self._vocabulary = vocabulary
        self._pool = pool
        self._block_size = block_size
        self._config = config
        self._contexts: dict[int, _Context] = {}
        self._written = WrittenRows(pool.num_slots)

    def observe(self, seen: Sequence[Seen]) -> None:
        """Take over the states of tokens that are the sequences' for good."""
        full: list[tuple[_Context, Seen]] = []
        for sight in seen:
            if sight.taps is None or not sight.token_ids:
                continue
            context = self._contexts.get(sight.seq_id)
            if context is None or context.end - 1 != sight.start:
                context = self._contexts[sight.seq_id] = self._joined(sight)
            context.waiting.append(sight.taps)
            context.num_waiting += len(sight.token_ids)
            if context.num_waiting >= _MOST_WAITING:
                full.append((context, sight))
        if full:
            self._compute_waiting(full)

    def _compute_waiting(self, full: Sequence[tuple[_Context, Seen]]) -> None:
        """Rows without a proposal, but for the newest token's, from which the next one starts."""
        batch, states = Batch(), []
        for context, sight in full:
            stop = min(context.end, len(sight.known) - 1)
            table = slots(tuple(sight.block_table), 0, stop, self._block_size)
            states.append(self._append_rows(batch, context, sight.known[:stop], table))
        self._head.write(batch, self._head.combine(torch.cat(states)), self._pool)

    def _joined(self, sight: Seen) -> _Context:
        """Begin where the target begins: at 0, or behind what the prefix cache had.

        Rows in cached blocks count if they were written for these very tokens. That of the first
        token behind them needs a state that was not computed now.
        """
        start = sight.start
        table = slots(tuple(sight.block_table), 0, start, self._block_size)
        there = self._written.holds(sight.known[:start], table)
        return _Context(start + 1, np.append(np.flatnonzero(~there), start))

    def _append_rows(
        self, batch: Batch, context: _Context, known: NDArray[np.int64], table: NDArray[np.int64]
    ) -> Tensor:
        """Add the rows of all known tokens that have none; returns the tapped states for them."""
        first, stop = context.next, len(known)
        fresh = np.arange(first, stop)
        places = context.positions(stop)
        row = batch.append(known[first:], fresh, table[first:stop])
        rows = np.arange(row, row + len(fresh))
        batch.views.append(View(rows, fresh, table[places], places, None))
        self._written.mark(known, first, table)
        waiting = torch.cat(context.waiting)
        context.next = stop
        # Usually all are used; the last one waits where its successor is not known yet.
        context.waiting = [waiting[len(fresh) :]]
        context.num_waiting -= len(fresh)
        return waiting[: len(fresh)]

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        """A draft within the budget for each sequence whose states are known up to its end."""
        fitting = [ask for ask in asks if self._is_ready(ask)]
        if not fitting:
            return [self._unready()] * len(asks)
        active = drafts = self._first_level(fitting)
        while active := [draft for draft in active if draft.leaves]:
            self._next_level(active)
        trees = {draft.ask.seq_id: draft.growth.tree() for draft in drafts}
        return [trees.get(ask.seq_id) or self._unready() for ask in asks]

    def _is_ready(self, ask: Ask) -> bool:
        context = self._contexts.get(ask.seq_id)
        return context is not None and context.next < len(ask.token_ids) <= context.end

    def _unready(self) -> DraftTree:
        return DraftTree(reason="the head has not seen the sequence up to its end")

    def _first_level(self, asks: Sequence[Ask]) -> list[_Draft]:
        """Catch up with what was decided; the last known token's row says the first guesses."""
        batch, tapped, last, drafts = Batch(), [], [], []
        for ask in asks:
            known = ask.token_ids
            context = self._contexts[ask.seq_id]
            stop = len(known) + ask.budget
            table = slots(tuple(ask.block_table), 0, stop, self._block_size)
            tapped.append(self._append_rows(batch, context, known, table))
            last.append(batch.num_rows - 1)
            self._written.erase(table[len(known) :])
            places = context.positions(len(known))
            drafts.append(_Draft(ask, self._growth(ask), places, table, tapped[-1][:0]))
        states = self._head.combine(torch.cat(tapped))
        hidden = self._head.forward(batch, states, self._pool)[last]
        for draft, row, logits in zip(drafts, hidden, self._logits(hidden), strict=True):
            draft.hidden = row.unsqueeze(0)
            draft.leaves = draft.growth.grow(logits.unsqueeze(0))
        return drafts

    def _next_level(self, drafts: Sequence[_Draft]) -> None:
        """Run the leaves of all drafts together."""
        batch, states = Batch(), []
        for draft in drafts:
            states.append(draft.hidden[[leaf.parent for leaf in draft.leaves]])
            self._append_leaves(batch, draft)
        hidden = self._head.forward(batch, torch.cat(states), self._pool)
        logits = self._logits(hidden)
        begin = 0
        for draft in drafts:
            end = begin + len(draft.leaves)
            draft.hidden = hidden[begin:end]
            draft.leaves = draft.growth.grow(logits[begin:end])
            begin = end

    def _append_leaves(self, batch: Batch, draft: _Draft) -> None:
        """A row for each leaf, that sees the context and its own path."""
        known = len(draft.ask.token_ids)
        depth = len(draft.leaves[0].places)
        keys = np.append(draft.context, np.arange(known, known + depth))
        context = draft.slots[draft.context]
        tokens = np.array([leaf.token for leaf in draft.leaves])
        places = np.array([leaf.places for leaf in draft.leaves])
        own = draft.slots[known + places]
        position = np.array([known + depth - 1])
        first = batch.append(tokens, np.repeat(position, len(tokens)), own[:, -1])
        for index, path in enumerate(own):
            seen = np.concatenate([context, path])
            batch.views.append(View(np.array([first + index]), position, seen, keys, None))

    def _logits(self, hidden: Tensor) -> Tensor:
        return self._head.logits(hidden).cpu()

    def _growth(self, ask: Ask) -> Growth:
        shape = self._config.shape
        if shape == "auto":
            drawn = ask.wants_probs and ask.budget < _SMALLEST_SAMPLED_TREE
            shape = "chain" if drawn else "tree"
        if shape == "chain":
            return ChainGrowth(ask, self._vocabulary, self.name)
        return TreeGrowth(ask, self._vocabulary, self._config.top_k, self.name)

    def forget(self, seq_id: int) -> None:
        """The blocks are gone; what is in them is found again if they come back."""
        self._contexts.pop(seq_id, None)
