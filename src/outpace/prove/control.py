"""The negative control: a verifier that is wrong by a known amount and must be caught."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from torch import Tensor

from outpace.sampling.processors import TokenHistory
from outpace.sampling.sampler import TokenSampler
from outpace.spec.tree import DraftTree
from outpace.spec.verifier import Emission, RejectionVerifier, TargetRows


class BiasedSampler(TokenSampler):
    """Takes a share of the probability and gives it to the least likely possible token.

    Its distribution is within ``share`` of the right one in total variation, and nearly that
    far from it wherever the least likely token is rare.
    """

    def __init__(self, right: TokenSampler, share: float) -> None:
        self.params = right.params
        self.seed = right.seed
        self._right = right
        self._share = share

    def probs(self, logits: Tensor, history: TokenHistory) -> Tensor:
        """See `TokenSampler.probs`; wrong on purpose."""
        p = self._right.probs(logits, history)
        support = p.nonzero().flatten()
        biased = p * (1 - self._share)
        biased[support[p[support].argmin()]] += self._share
        return biased


class BiasedVerifier(RejectionVerifier):
    """Wrong on purpose wherever there is a draft, and right elsewhere."""

    def __init__(self, share: float) -> None:
        self._share = share

    def verify(self, tree: DraftTree, target: TargetRows) -> Iterator[Emission]:
        """See `Verifier.verify`."""
        if len(tree):
            target = replace(target, sampler=BiasedSampler(target.sampler, self._share))
        yield from super().verify(tree, target)
