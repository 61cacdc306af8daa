"""How a draft grows, level by level, out of what a head says of its tips.

Whoever runs the head asks a growth which guesses it should run next (leaves), gives it the logits
of these, and goes on until there are none. A chain has one leaf a level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Protocol

import torch
from torch import Tensor

from outpace.sampling.choice import draw
from outpace.sampling.noise import Stream, uniform
from outpace.sampling.processors import TokenHistory
from outpace.spec.drafter import Ask
from outpace.spec.ranking import HeadTokens, Row, likeliest
from outpace.spec.tree import ROOT, DraftTree

# A further level is drafted while one of its parents is reached with at least this probability.
_WORTH = 0.04


@dataclass(frozen=True, slots=True)
class Leaf:
    """A guess whose followers are wanted.

    Attributes:
        token: guessed.
        places: of its ancestors and itself, from the root's child on: where in the room for
            drafts their keys and values are. The last one is its own, to be written.
        parent: which of the last level's rows it followed.
    """

    token: int
    places: tuple[int, ...]
    parent: int


class Growth(Protocol):
    """A draft in the making."""

    def grow(self, logits: Tensor) -> list[Leaf]:
        """Add what follows the last leaves (first of all, the root).

        Args:
            logits: ``[num_leaves, draft_vocab]`` float32, on the CPU.

        Returns:
            The next leaves; none when the draft is complete.
        """
        ...

    def tree(self) -> DraftTree:
        """The draft so far."""
        ...


class ChainGrowth:
    """One guess after the other: the target's own choice if the head were the target.

    Where the verifier can use distributions, each guess is drawn from the head's, which goes
    along with it; else it is chosen with the target's noise.
    """

    def __init__(self, ask: Ask, tokens: HeadTokens, source: str) -> None:
        self._ask = ask
        self._tokens = tokens
        self._source = source
        self._history = ask.history.copy()
        self._chain: list[int] = []
        self._probs: list[Tensor] = []

    def grow(self, logits: Tensor) -> list[Leaf]:
        """See `Growth.grow`."""
        token = self._next(logits)
        self._chain.append(token)
        self._history.append(token)
        if len(self._chain) == self._ask.budget:
            return []
        return [Leaf(token, tuple(range(len(self._chain))), 0)]

    def _next(self, logits: Tensor) -> int:
        sampler, position = self._ask.sampler, len(self._ask.token_ids) + len(self._chain)
        if self._ask.wants_probs:
            probs = sampler.probs(self._tokens.full(logits[0]), self._history)
            self._probs.append(probs)
            return draw(probs, uniform(sampler.seed, position, Stream.DRAFT))
        if sampler.params.greedy and sampler.leaves_alone(self._history):
            return int(self._tokens.targets(torch.tensor(int(logits[0].numpy().argmax()))))
        return sampler.choose(self._tokens.full(logits[0]), self._history, position)

    def tree(self) -> DraftTree:
        """See `Growth.tree`."""
        probs = torch.stack(self._probs) if self._probs else None
        return DraftTree.chain(self._chain, probs, self._source)


class TreeGrowth:
    """The nodes with the best total probability (EAGLE-2: Li et al. 2024, arXiv 2406.16858).

    A node's probability is the product of what the head says along its path. Each level runs the
    new nodes that are among the best ``budget`` so far; since no node is likelier than its parent,
    what falls out of these never comes back, and its place is free for another.

    Under coupled verification a sampled token is the target's choice with noise that is known
    beforehand, so guesses are ranked with that noise added. The nodes are never drawn: under
    rejection they are point masses.

    Args:
        ask: what is drafted for.
        tokens: of the head.
        top_k: children of a node, and leaves of a level, at most.
        source: name of the drafter.
    """

    def __init__(self, ask: Ask, tokens: HeadTokens, top_k: int, source: str) -> None:
        self._ask = ask
        self._head_tokens = tokens
        self._top_k = top_k
        self._source = source
        self._tokens: list[int] = []
        self._parents: list[int] = []
        self._scores: list[float] = []  # logarithms of the total probabilities
        self._depths: list[int] = []
        self._places: dict[int, int] = {}  # of the nodes that were run
        self._level = [ROOT]

    def grow(self, logits: Tensor) -> list[Leaf]:
        """See `Growth.grow`."""
        first = len(self._tokens)
        for parent, (tokens, scores) in zip(self._level, self._followers(logits), strict=True):
            base, depth = (0.0, 0) if parent == ROOT else self._standing(parent)
            self._tokens += tokens
            self._scores += [base + min(score, 0.0) for score in scores]
            self._parents += [parent] * len(tokens)
            self._depths += [depth + 1] * len(tokens)
        best = self._best()
        fresh = [node for node in best if node >= first][: self._top_k]
        if len(best) == self._ask.budget:
            # What follows the least of a full set is less likely still.
            fresh = [node for node in fresh if self._scores[node] > self._scores[best[-1]]]
        done = not fresh or self._depths[first] >= self._ask.budget
        if done or sum(math.exp(self._scores[node]) for node in fresh) < _WORTH:
            return []
        return self._opened(fresh, set(best))

    def _standing(self, node: int) -> tuple[float, int]:
        return self._scores[node], self._depths[node]

    def _best(self) -> list[int]:
        """The likeliest nodes; among equals the earlier, so that parents come with children."""
        ranked = sorted(range(len(self._tokens)), key=lambda node: (-self._scores[node], node))
        return ranked[: self._ask.budget]

    def _opened(self, fresh: Sequence[int], best: set[int]) -> list[Leaf]:
        """Leaves for new nodes, in places that nobody needs any more."""
        self._places = {node: place for node, place in self._places.items() if node in best}
        taken = set(self._places.values())
        free = (place for place in count() if place not in taken)
        row_of = {node: row for row, node in enumerate(self._level)}
        self._places |= dict(zip(fresh, free, strict=False))
        self._level = list(fresh)
        return [
            Leaf(
                self._tokens[node],
                tuple(self._places[one] for one in self._path(node)),
                row_of[self._parents[node]],
            )
            for node in fresh
        ]

    def _path(self, node: int) -> list[int]:
        path: list[int] = []
        while node != ROOT:
            path.append(node)
            node = self._parents[node]
        return path[::-1]

    def _followers(self, logits: Tensor) -> list[tuple[list[int], list[float]]]:
        """For each leaf its likeliest followers and the logarithms of their probabilities."""
        rows = [Row(self._history(n), 0 if n == ROOT else self._depths[n]) for n in self._level]
        return likeliest(self._ask, self._head_tokens, logits, rows, self._top_k)

    def _history(self, node: int) -> TokenHistory:
        """The tokens before a node's followers, where anybody looks at them."""
        ask = self._ask
        if node == ROOT or ask.sampler.leaves_alone(ask.history):
            return ask.history
        history = ask.history.copy()
        for one in self._path(node):
            history.append(self._tokens[one])
        return history

    def tree(self) -> DraftTree:
        """The best nodes, each branch whole before the next, the likeliest first.

        A draft whose likeliest path is accepted is then in place already.
        """
        children: dict[int, list[int]] = {}
        for node in self._best():
            children.setdefault(self._parents[node], []).append(node)
        order: list[int] = []
        stack = [ROOT]
        while stack:
            node = stack.pop()
            if node != ROOT:
                order.append(node)
            stack += reversed(children.get(node, []))
        index = {node: i for i, node in enumerate(order)} | {ROOT: ROOT}
        return DraftTree(
            tuple(self._tokens[node] for node in order),
            tuple(index[self._parents[node]] for node in order),
            None,
            self._source,
        )
