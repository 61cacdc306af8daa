"""Draft trees: the one shape in which every drafter hands over its guesses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

ROOT = -1


@dataclass(frozen=True)
class DraftTree:
    """Guessed tokens hanging off the last known token, which is the root.

    Attributes:
        tokens: one token id a node.
        parents: the parent of each node, ``ROOT`` (-1) for a child of the root; a parent comes
            before its children. A chain is ``-1, 0, 1, …``.
        probs: ``[num_nodes, vocab]``, float32: row i is the distribution that node i was drawn
            from, before its earlier siblings were taken out. None means that the guess was not
            drawn at all (a point mass).
        source: the drafter that made it.
        confidence: the drafter's estimate for each node that it is right, given that its parent
            is; empty where there is none.
        reason: if it is empty, why, where that is more than that nothing was found.

    Raises:
        ValueError: a parent that does not come before its child, or two equal siblings: the
            second could never be accepted; or a confidence in other than all nodes.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    probs: Tensor | None = None
    source: str = ""
    reason: str = ""
    confidence: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.parents):
            raise ValueError(f"{len(self.tokens)} tokens but {len(self.parents)} parents")
        if len(self.confidence) not in (0, len(self.tokens)):
            raise ValueError(f"{len(self.tokens)} tokens but confidence in {len(self.confidence)}")
        if any(not ROOT <= parent < node for node, parent in enumerate(self.parents)):
            raise ValueError(f"parents {self.parents}: each must come before its child")
        if len(set(zip(self.parents, self.tokens, strict=True))) < len(self.tokens):
            raise ValueError(f"tokens {self.tokens} with parents {self.parents}: equal siblings")

    @classmethod
    def chain(
        cls,
        tokens: Sequence[int],
        probs: Tensor | None = None,
        source: str = "",
        confidence: Sequence[float] = (),
    ) -> DraftTree:
        """A tree without branches: each token follows the one before it."""
        parents = tuple(range(-1, len(tokens) - 1))
        return cls(tuple(tokens), parents, probs, source, confidence=tuple(confidence))

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def is_chain(self) -> bool:
        """Whether there is one branch only, in order."""
        return self.parents == tuple(range(-1, len(self.tokens) - 1))

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Distance of each node from the root; a child of the root has depth 1."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent == ROOT else depths[parent] + 1)
        return tuple(depths)

    @cached_property
    def ancestors(self) -> tuple[int, ...]:
        """A bitmask of nodes for each node: itself and all its ancestors."""
        masks: list[int] = []
        for node, parent in enumerate(self.parents):
            masks.append((1 << node) | (0 if parent == ROOT else masks[parent]))
        return tuple(masks)

    @cached_property
    def _children(self) -> dict[int, tuple[int, ...]]:
        children: dict[int, list[int]] = {}
        for node, parent in enumerate(self.parents):
            children.setdefault(parent, []).append(node)
        return {parent: tuple(nodes) for parent, nodes in children.items()}

    def children(self, parent: int) -> tuple[int, ...]:
        """The nodes that hang off ``parent`` (or ``ROOT``), in the order they were drawn."""
        return self._children.get(parent, ())

    def path(self, node: int) -> tuple[int, ...]:
        """The nodes from the root's child down to ``node``, both included."""
        mask = self.ancestors[node]
        return tuple(i for i in range(node + 1) if mask >> i & 1)

    @cached_property
    def paths(self) -> tuple[tuple[int, ...], ...]:
        """The path to each leaf, in the order of the leaves; together they cover the tree."""
        return tuple(self.path(node) for node in range(len(self)) if not self.children(node))

    def truncated(self, num_nodes: int, depth: int) -> DraftTree:
        """The first ``num_nodes`` nodes that are at most ``depth`` deep.

        Dropping a node drops what hangs off it: it comes later and is deeper.
        """
        keep = [n for n, d in enumerate(self.depths) if d <= depth][: max(num_nodes, 0)]
        if len(keep) == len(self):
            return self
        index = {old: new for new, old in enumerate(keep)} | {ROOT: ROOT}
        return DraftTree(
            tuple(self.tokens[n] for n in keep),
            tuple(index[self.parents[n]] for n in keep),
            None if self.probs is None else self.probs[keep],
            self.source,
            confidence=tuple(self.confidence[n] for n in keep) if self.confidence else (),
        )
