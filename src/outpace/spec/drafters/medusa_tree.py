"""Which ranks of which heads a draft tree is made of, by how often each is right."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

from outpace.spec.tree import ROOT

# Before anything is known: how often the first head's first rank is right, what each further
# head has of it, and what each further rank has of the first.
_FIRST, _FURTHER_HEAD = 0.5, 0.75
_BY_RANK = (1.0, 0.3, 0.15, 0.09, 0.06, 0.045, 0.035, 0.03)
RANKS = len(_BY_RANK)
# What a table is worth in observations, and after how many more a tree is chosen anew.
_PRIOR_STRENGTH = 30.0
_NEWS = 1.5


class Node(NamedTuple):
    """A node of a tree that has no tokens yet; its depth tells the head."""

    parent: int
    depth: int
    rank: int


class Accuracies:
    """How often the tokens at each rank of each head are right: a table, moved by what is seen.

    Args:
        num_heads: how many heads.
        table: ``[head][rank]`` from the checkpoint, or empty. Ranks that it lacks are never used.
    """

    def __init__(self, num_heads: int, table: Sequence[Sequence[float]] = ()) -> None:
        usual = [
            [_FIRST * _FURTHER_HEAD**head * share for share in _BY_RANK]
            for head in range(num_heads)
        ]
        self._prior = [list(row)[:RANKS] for row in table][:num_heads]
        self._prior += usual[len(self._prior) :]
        self._hits = [[0] * len(row) for row in self._prior]
        self._trials = [0] * num_heads
        self._looked_at = 0
        self._trees: dict[int, tuple[Node, ...]] = {}

    def add(self, head: int, rank: int | None) -> None:
        """A guess was decided: at which rank the right token stood, None if at none."""
        self._trials[head] += 1
        if rank is not None and rank < len(self._hits[head]):
            self._hits[head][rank] += 1

    def at(self, head: int) -> list[float]:
        """How often each rank of a head is right."""
        trials = self._trials[head] + _PRIOR_STRENGTH
        return [
            (hits + _PRIOR_STRENGTH * prior) / trials
            for hits, prior in zip(self._hits[head], self._prior[head], strict=True)
        ]

    def tree(self, num_nodes: int) -> tuple[Node, ...]:
        """The nodes with the best product of accuracies; a parent comes before its children."""
        if self._trials[0] > max(_NEWS * self._looked_at, self._looked_at + 16):
            self._looked_at = self._trials[0]
            self._trees.clear()
        if num_nodes not in self._trees:
            self._trees[num_nodes] = best_tree(
                [self.at(head) for head in range(len(self._prior))], num_nodes
            )
        return self._trees[num_nodes]


def best_tree(accuracies: Sequence[Sequence[float]], num_nodes: int) -> tuple[Node, ...]:
    """Add the node with the best product of accuracies along its path, one after the other.

    (Cai et al. 2024, arXiv 2401.10774, section 2.3.2.) Each path is reached from its parent or
    from the sibling of the next better rank, so none is met twice.
    """
    ranked = [
        sorted(range(len(row)), key=lambda rank, row=row: -row[rank])  # type: ignore[misc]
        for row in accuracies
    ]
    nodes: list[Node] = []
    # Entries: minus the product, order of entry, the parent, its product, depth, place in ranks.
    queue: list[tuple[float, int, int, float, int, int]] = []

    def offer(parent: int, product: float, depth: int, place: int) -> None:
        if depth < len(ranked) and place < len(ranked[depth]):
            score = product * accuracies[depth][ranked[depth][place]]
            if score > 0:
                heapq.heappush(queue, (-score, len(nodes), parent, product, depth, place))

    offer(ROOT, 1.0, 0, 0)
    while queue and len(nodes) < num_nodes:
        score, _, parent, product, depth, place = heapq.heappop(queue)
        nodes.append(Node(parent, depth, ranked[depth][place]))
        offer(len(nodes) - 1, -score, depth + 1, 0)
        offer(parent, product, depth, place + 1)
    return tuple(nodes)
