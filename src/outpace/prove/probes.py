"""Drafters that know more than any real one: they reach every branch of a verifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outpace.prove.replay import RecordedRunner
from outpace.spec.drafter import Ask, Seen
from outpace.spec.tree import ROOT, DraftTree


class _Stateless:
    """What a drafter needs that learns nothing."""

    name: str
    taps: tuple[int, ...] | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        """Itself alone."""
        return (self.name,)

    def observe(self, seen: Sequence[Seen]) -> None:
        """Nothing to learn."""

    def forget(self, seq_id: int) -> None:
        """Nothing to forget."""


@dataclass
class HiddenAnswerDrafter(_Stateless):
    """Proposes random trees in which the right continuation is hidden, often enough.

    Args:
        answers: the whole right answer by prompt.
        vocab_size: of the target.
        seed: of the trees.
        chance: that the next node continues the right answer.
    """

    answers: Mapping[tuple[int, ...], Sequence[int]]
    vocab_size: int
    seed: int = 0
    chance: float = 0.7
    name: str = "probe (random trees)"
    _random: np.random.Generator = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        """A random tree of at most ``budget`` nodes for each."""
        return [self._tree(ask) for ask in asks]

    def _tree(self, ask: Ask) -> DraftTree:
        prompt = tuple(ask.token_ids[: ask.num_prompt].tolist())
        right = list(self.answers.get(prompt, ()))[len(ask.token_ids) - ask.num_prompt :]
        nodes: dict[tuple[int, int], int] = {}  # (parent, token) to node
        tip, taken = ROOT, 0
        for _ in range(ask.budget):
            if taken < len(right) and self._random.random() < self.chance:
                node = nodes.setdefault((tip, right[taken]), len(nodes))
                tip, taken = node, taken + 1
            else:
                parent = int(self._random.integers(-1, len(nodes))) if nodes else ROOT
                token = int(self._random.integers(0, self.vocab_size))
                nodes.setdefault((parent, token), len(nodes))
        tokens = tuple(token for _, token in nodes)
        return DraftTree(tokens, tuple(parent for parent, _ in nodes), None, self.name)


@dataclass(frozen=True, slots=True)
class _Proposal:
    """A distribution q, ``probs`` [vocab], with its support: ``tokens`` and their ``weights``."""

    probs: Tensor
    tokens: NDArray[np.int64]
    weights: NDArray[np.float64]


@dataclass
class WarpedDrafter(_Stateless):
    """Draws from the target's own distribution, warped: a draft that is often, not always, right.

    Its q shares the target's support but for one token, and mixes p with the flat and with the
    reversed distribution, so that p < q and p > q both happen at every position. As a tree it
    draws two siblings without replacement.

    Args:
        record: the target.
        seed: of its draws, a stream apart from all of the target's noise.
        width: children of each node of the first level; 1 is a chain.
    """

    record: RecordedRunner
    seed: int
    width: int = 1
    name: str = "probe"
    _random: np.random.Generator = field(init=False, repr=False)
    _proposals: dict[tuple[int, ...], _Proposal] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        """A chain, or a tree with ``width`` branches, for each."""
        return [self._tree(ask) for ask in asks]

    def _tree(self, ask: Ask) -> DraftTree:
        tokens: list[int] = []
        parents: list[int] = []
        rows: list[Tensor] = []
        known = tuple(ask.token_ids.tolist())
        tips: list[tuple[int, tuple[int, ...]]] = [(ROOT, ())]
        for width in (self.width, *[1] * (ask.budget - 1)):
            tips = [
                (node, (*path, tokens[node]))
                for tip, path in tips
                for node in self._children(ask, known, tip, path, width, (tokens, parents, rows))
            ]
        probs = torch.stack(rows) if rows else None
        return DraftTree(tuple(tokens), tuple(parents), probs, self.name)

    def _children(
        self,
        ask: Ask,
        known: tuple[int, ...],
        tip: int,
        path: tuple[int, ...],
        width: int,
        tree: tuple[list[int], list[int], list[Tensor]],
    ) -> list[int]:
        """Draw up to ``width`` children of a node into the tree, within the budget."""
        tokens, parents, rows = tree
        q = self._proposal(ask, known, path)
        left, nodes = q.weights.copy(), []
        for _ in range(width):
            if len(tokens) >= ask.budget or left.sum() <= 0:
                break
            drawn = int(self._random.choice(len(left), p=left / left.sum()))
            left[drawn] = 0.0
            nodes.append(len(tokens))
            tokens.append(int(q.tokens[drawn]))
            parents.append(tip)
            rows.append(q.probs)
        return nodes

    def _proposal(self, ask: Ask, known: tuple[int, ...], path: tuple[int, ...]) -> _Proposal:
        """What is proposed after ``known`` and ``path``; all samples have the same parameters."""
        context = known + path
        if context not in self._proposals:
            history = ask.history.copy()
            for token in path:
                history.append(token)
            q = warped(ask.sampler.probs(self.record.logits(context), history))
            support = q.nonzero().flatten()
            self._proposals[context] = _Proposal(q, support.numpy(), q[support].double().numpy())
        return self._proposals[context]


def warped(p: Tensor) -> Tensor:
    """A distribution ``[vocab]`` near ``p``: another order of the same tokens, and one more."""
    support = p.nonzero().flatten()
    order = p[support].argsort()
    reverse = torch.zeros_like(p)
    reverse[support[order]] = p[support[order.flip(0)]]
    flat = (p > 0).to(p.dtype) / len(support)
    q = 0.55 * p + 0.2 * flat + 0.2 * reverse
    q[int(p.argmin())] += 0.05  # a token that the target excludes, if it excludes any
    return q / q.sum()
