"""Checking a draft against the target: walk down the tree, one token at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from outpace.sampling.choice import draw
from outpace.sampling.noise import Stream, uniform
from outpace.sampling.processors import TokenHistory
from outpace.sampling.sampler import TokenSampler
from outpace.spec.tree import ROOT, DraftTree


@dataclass(frozen=True, slots=True)
class TargetRows:
    """What the target said at the root and at each node of a draft.

    Attributes:
        logits: ``[1 + num_nodes, vocab]`` float32; row 0 is the root, row i + 1 node i.
        sampler: of the sequence.
        history: the sequence's own, live: whoever takes a token from the verifier appends it
            before asking for the next, so that every row sees the accepted tokens before it.
        position: of the first token to be emitted.
    """

    logits: Tensor
    sampler: TokenSampler
    history: TokenHistory
    position: int


@dataclass(frozen=True, slots=True)
class Emission:
    """One token that leaves the verifier.

    ``node`` is the draft node that it accepts, None for the token that ends the walk (vLLM's
    recovered token after a rejection, its bonus token after a full acceptance). ``parent`` is
    the node, or ``ROOT``, whose row decided it; ``rejected`` is whether draft tokens stood
    there and none was right.
    """

    token: int
    node: int | None
    parent: int
    rejected: bool


class Verifier(Protocol):
    """Yields the emitted tokens lazily; the caller may stop at any of them."""

    name: str

    def verify(self, tree: DraftTree, target: TargetRows) -> Iterator[Emission]:
        """Walk from the root along accepted nodes; the last emission has no node."""
        ...


class MatchVerifier:
    """Coupled verification: the emitted token is always the one plain decoding would choose.

    At each row the target's token is chosen with the noise of its position, and the walk goes
    on while a draft token equals it. Lossless for any drafter, chain or tree, greedy or sampled,
    and independent of the drafter: drafts can only save steps.
    """

    name = "coupled"

    def verify(self, tree: DraftTree, target: TargetRows) -> Iterator[Emission]:
        """See `Verifier.verify`."""
        parent, depth = ROOT, 0
        while True:
            row = target.logits[parent + 1]
            token = target.sampler.choose(row, target.history, target.position + depth)
            children = tree.children(parent)
            node = next((c for c in children if tree.tokens[c] == token), None)
            yield Emission(token, node, parent, rejected=node is None and bool(children))
            if node is None:
                return
            parent, depth = node, depth + 1


class RejectionVerifier:
    """The classical rule: emitted tokens have the target's distribution.

    A draft token x is accepted with probability min(1, p(x) / q(x)); after a rejection the
    target's distribution becomes norm(max(p - q, 0)) (Leviathan et al. 2023, arXiv 2211.17192,
    algorithm 1; Chen et al. 2023, arXiv 2302.01318). In a tree this goes from sibling to
    sibling, each drawn without replacement of the earlier ones (recursive rejection sampling:
    Jeon et al. 2024, arXiv 2402.14160). A draft without probabilities is a point mass.
    """

    name = "rejection"

    def verify(self, tree: DraftTree, target: TargetRows) -> Iterator[Emission]:
        """See `Verifier.verify`."""
        parent, depth = ROOT, 0
        while True:
            p = target.sampler.probs(target.logits[parent + 1], target.history)
            position = target.position + depth
            node, p = self._try_children(tree, parent, p, target.sampler.seed, position)
            if node is None:
                token = draw(p, uniform(target.sampler.seed, position, Stream.RESIDUAL))
                yield Emission(token, None, parent, rejected=bool(tree.children(parent)))
                return
            yield Emission(tree.tokens[node], node, parent, rejected=False)
            parent, depth = node, depth + 1

    @staticmethod
    def _try_children(
        tree: DraftTree, parent: int, p: Tensor, seed: int, position: int
    ) -> tuple[int | None, Tensor]:
        """The accepted child, or None and the residual distribution ``[vocab]`` to draw from."""
        earlier: list[int] = []
        for index, node in enumerate(tree.children(parent)):
            token = tree.tokens[node]
            q = _proposal(tree, node, p, earlier)
            u = uniform(seed, position, Stream.ACCEPT, index)
            if float(p[token]) > 0 and u * float(q[token]) <= float(p[token]):
                return node, p
            residual = (p - q).clamp_(min=0.0)
            mass = float(residual.sum())
            # All of p within q leaves no mass to rounding only: the residual is then p itself.
            p = residual / mass if mass > 0 else p
            earlier.append(token)
        return None, p


def _proposal(tree: DraftTree, node: int, p: Tensor, earlier: list[int]) -> Tensor:
    """What ``node`` was drawn from: its row of q without ``earlier`` siblings, or a point mass."""
    if tree.probs is None:
        q = p.new_zeros(p.shape)
        q[tree.tokens[node]] = 1.0
        return q
    q = tree.probs[node]
    if earlier:
        q = q.clone()
        q[earlier] = 0.0
        q = q / q.sum()
    return q
