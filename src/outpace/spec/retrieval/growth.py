"""From earlier occurrences to a draft tree: the likeliest continuations, as far as they carry."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

from outpace.spec.retrieval.candidates import END, HALVING, Candidates
from outpace.spec.tree import ROOT, DraftTree

# How many occurrences "something else" is worth at a match of one token: fitted to what texts of
# many kinds did (at 2, 4, 8 tokens 0.51, 0.70, 0.82 of single occurrences were followed again).
_UNSEEN = 1.6


class _Shoot(NamedTuple):
    """A token that could be added: where it would hang, and which occurrences support it."""

    token: int
    parent: int
    depth: int
    rows: tuple[int, ...]


def grow(candidates: Candidates, budget: int, least: float, source: str) -> DraftTree:
    """The tree of the most probable continuations.

    Occurrences vote for the token that follows, with a weight that halves for each token by
    which their match is shorter than the longest. A token with weight w of W, after m tokens
    that agree, has the estimated probability ``w / (W + 1 / m)``: a text that was the same for
    m tokens goes on the same with m / (m + 1) if there is one witness (Laplace's rule of
    succession), and the match grows by a token with each node. Nodes are taken by the product
    along their path, the likeliest first, as SuffixDecoding does (Oliaro et al. 2024,
    arXiv 2411.04975); so both the length of the match and the votes decide how long the draft
    is, and how wide.

    Args:
        candidates: earlier occurrences; at equal probability the first in the list wins.
        budget: most nodes.
        least: estimated probability that a node must have.
        source: the drafter's name.
    """
    if len(candidates) == 0:
        return DraftTree()
    match = int(candidates.lengths.max())
    weights = (candidates.votes * HALVING ** (match - candidates.lengths)).tolist()
    following = candidates.following.tolist()
    tokens: list[int] = []
    parents: list[int] = []
    order = count()
    everything = tuple(range(len(weights)))
    queue = [
        (-probability, next(order), shoot)
        for probability, shoot in _shoots(ROOT, 0, everything, weights, following, match)
        if probability >= least
    ]
    heapq.heapify(queue)
    while queue and len(tokens) < budget:
        negative, _, shoot = heapq.heappop(queue)
        node = len(tokens)
        tokens.append(shoot.token)
        parents.append(shoot.parent)
        if shoot.depth == candidates.following.shape[1]:
            continue
        for share, child in _shoots(node, shoot.depth, shoot.rows, weights, following, match):
            probability = -negative * share
            if probability >= least:
                heapq.heappush(queue, (-probability, next(order), child))
    return DraftTree(tuple(tokens), tuple(parents), None, source)


def _shoots(
    parent: int,
    depth: int,
    rows: tuple[int, ...],
    weights: list[float],
    following: list[list[int]],
    match: int,
) -> Iterator[tuple[float, _Shoot]]:
    """What follows ``parent``, each with its probability given that ``parent`` is right."""
    unseen = _UNSEEN / (match + depth)
    if len(rows) == 1:
        token, weight = following[rows[0]][depth], weights[rows[0]]
        if token != END:
            yield weight / (weight + unseen), _Shoot(token, parent, depth + 1, rows)
        return
    voters: dict[int, list[int]] = {}
    for row in rows:
        voters.setdefault(following[row][depth], []).append(row)
    whole = unseen + sum(weights[row] for row in rows)
    for token, some in voters.items():
        if token != END:
            weight = sum(weights[row] for row in some)
            yield weight / whole, _Shoot(token, parent, depth + 1, tuple(some))
