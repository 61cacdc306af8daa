"""In each step the draft of which its maker is surest, or several drafts in one tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from outpace.spec.drafter import Ask, Drafter
from outpace.spec.drafters.several import Several
from outpace.spec.lawful import lawful
from outpace.spec.tree import ROOT, DraftTree

# A guess of a drafter that does not say how sure it is.
_UNKNOWN = 0.5
# What one more draft counts in the mean of what a drafter usually promises.
_DECAY = 0.1
# A drafter that usually promises less than what is there is asked all the same once in so many
# steps: it may have become better.
_ASK_AGAIN = 16


def reach(tree: DraftTree) -> list[float]:
    """How likely each node is to be accepted: it and all before it are right."""
    result: list[float] = []
    for node, parent in enumerate(tree.parents):
        sure = tree.confidence[node] if tree.confidence else _UNKNOWN
        result.append(sure * (1.0 if parent == ROOT else result[parent]))
    return result


def promise(tree: DraftTree) -> float:
    """How many of its guesses are to be expected to be accepted."""
    return sum(reach(tree))


@dataclass(slots=True)
class _Usual:
    """What a drafter promised so far, and how long it has not been asked."""

    promise: float | None = None
    passed_over: int = 0

    def add(self, promise: float) -> None:
        before = promise if self.promise is None else self.promise
        self.promise = before + _DECAY * (promise - before)
        self.passed_over = 0

    def is_worth_asking(self, there: float) -> bool:
        """Whether a draft may be better than one that promises ``there``; 0: there is none."""
        hopeful = self.promise is None or self.promise > there or there <= 0
        if hopeful or self.passed_over >= _ASK_AGAIN:
            return True
        self.passed_over += 1
        return False


class BestOfDrafter(Several):
    """Chooses by the drafters' own confidence, or puts the likeliest guesses of all together.

    Drafters are asked in order. One is passed over where what it usually promises is no more
    than what there is already: a model need not run where a lookup is sure.

    A draft that was drawn from distributions q is taken whenever it was asked for, alone: to
    keep or drop it by what was drawn would make the q that it hands over a lie. There the choice
    is made before, by what the drafters usually promise.

    To the controller it is one source: which of its drafters were asked is not told by the draft
    that was chosen, and so neither is who took the time.

    Args:
        drafters: the cheap ones first.
        combine: whether drafts become one tree where none of them brings distributions.
    """

    def __init__(self, drafters: Sequence[Drafter], combine: bool = True) -> None:
        super().__init__(drafters, "|")
        self.sources: tuple[str, ...] = (self.name,)
        self._combine = combine
        self._usual = [_Usual() for _ in drafters]

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        """For each ask the tree that promises most."""
        found: list[list[DraftTree]] = [[] for _ in asks]
        for drafter, usual in zip(self._drafters, self._usual, strict=True):
            there = [max(map(promise, trees), default=0.0) for trees in found]
            chosen = [
                i
                for i, promised in enumerate(there)
                if not _drawn(found[i]) and usual.is_worth_asking(promised)
            ]
            if not chosen:
                continue
            wanted = [replace(asks[i], wants_confidence=True) for i in chosen]
            for i, proposed in zip(chosen, drafter.propose(wanted), strict=True):
                tree = lawful(proposed, asks[i].history)
                usual.add(promise(tree))
                found[i].append(tree)
        return [
            replace(self._best(trees, ask.budget), source=self.name)
            for trees, ask in zip(found, asks, strict=True)
        ]

    def _best(self, trees: Sequence[DraftTree], budget: int) -> DraftTree:
        making = [tree for tree in trees if len(tree)]
        if not making:
            return next((tree for tree in trees if tree.reason), DraftTree())
        best = _drawn(making) or max(making, key=promise)
        if not self._combine or len(making) == 1 or best.probs is not None:
            return best
        merged = merge(making, budget)
        return merged if promise(merged) > promise(best) else best


def _drawn(trees: Sequence[DraftTree]) -> DraftTree | None:
    """The tree that was drawn from distributions, if there is one; it is the last."""
    return trees[-1] if trees and trees[-1].probs is not None else None


def merge(trees: Sequence[DraftTree], budget: int) -> DraftTree:
    """The likeliest nodes of several trees, equal beginnings shared.

    Args:
        trees: without distributions, in order of preference among equals.
        budget: the most nodes.
    """
    sure: dict[tuple[int, ...], float] = {}  # by the tokens from the root to the node
    for tree in trees:
        texts: list[tuple[int, ...]] = []
        for node, parent in enumerate(tree.parents):
            before = () if parent == ROOT else texts[parent]
            text = (*before, tree.tokens[node])
            texts.append(text)
            mine = tree.confidence[node] if tree.confidence else _UNKNOWN
            sure[text] = max(sure.get(text, 0.0), mine)
    likely: dict[tuple[int, ...], float] = {}
    for text in sorted(sure, key=len):
        likely[text] = sure[text] * likely.get(text[:-1], 1.0)
    # The sort is stable and a parent is at least as likely as its child and shorter.
    kept = sorted(likely, key=lambda text: (-likely[text], len(text)))[:budget]
    place = {text: node for node, text in enumerate(kept)}
    return DraftTree(
        tuple(text[-1] for text in kept),
        tuple(place.get(text[:-1], ROOT) for text in kept),
        confidence=tuple(sure[text] for text in kept),
    )
