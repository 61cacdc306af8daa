"""Verifiers on made-up distributions: exact walks, and distributions with stated power."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache

import numpy as np
import pytest
import torch
from scipy import stats

from outpace.request import SamplingParams
from outpace.sampling.choice import draw
from outpace.sampling.noise import Stream, uniform
from outpace.sampling.processors import TokenHistory
from outpace.sampling.sampler import TokenSampler
from outpace.spec.tree import ROOT, DraftTree
from outpace.spec.verifier import (
    Emission,
    MatchVerifier,
    RejectionVerifier,
    TargetRows,
    Verifier,
)

VOCAB = 8
ROUNDS = 6_000
# A right verifier fails one test in a million; see `test_power`.
FALSE_ALARM = 1e-6


def greedy_rows(tokens: list[int]) -> torch.Tensor:
    """One row for each token, whose likeliest is that token."""
    return torch.nn.functional.one_hot(torch.tensor(tokens), VOCAB).float()


def walk(
    verifier: Verifier, tree: DraftTree, logits: torch.Tensor, params: SamplingParams, seed: int
) -> list[Emission]:
    history = TokenHistory([0])
    sampler = TokenSampler(params, seed, frozenset())
    emissions = []
    for emission in verifier.verify(tree, TargetRows(logits, sampler, history, 1)):
        history.append(emission.token)
        emissions.append(emission)
    return emissions


@pytest.mark.parametrize("verifier", [MatchVerifier(), RejectionVerifier()])
@pytest.mark.parametrize(
    ("tokens", "parents", "target", "expected"),
    [
        ((), (), [5], [5]),
        ((1, 2, 3), (-1, 0, 1), [1, 2, 3, 4], [1, 2, 3, 4]),
        ((1, 2, 3), (-1, 0, 1), [1, 7, 3, 4], [1, 7]),
        ((1, 2, 3), (-1, 0, 1), [6, 2, 3, 4], [6]),
        ((1, 2, 3, 4), (-1, -1, 1, 0), [2, 7, 3, 5, 7], [2, 3, 5]),
        ((1, 2, 3, 4), (-1, -1, 1, 0), [1, 4, 7, 7, 6], [1, 4, 6]),
    ],
)
def test_greedy_walks(
    verifier: Verifier,
    tokens: tuple[int, ...],
    parents: tuple[int, ...],
    target: list[int],
    expected: list[int],
) -> None:
    emissions = walk(verifier, DraftTree(tokens, parents), greedy_rows(target), SamplingParams(), 0)
    assert [e.token for e in emissions] == expected
    assert [e.node is None for e in emissions] == [False] * (len(expected) - 1) + [True]
    last = emissions[-1]
    children = [n for n, p in enumerate(parents) if p == last.parent]
    assert last.rejected == bool(children)


def test_the_history_grows_between_tokens() -> None:
    """A penalty at a draft position sees the accepted tokens before it, and no others."""
    logits = torch.tensor([[0.0, 3.0, 2.5, 0, 0, 0, 0, 0]]).repeat(3, 1)
    params = SamplingParams(presence_penalty=2.0)
    tree = DraftTree.chain([1, 1])
    assert [e.token for e in walk(MatchVerifier(), tree, logits, params, 0)] == [1, 2]
    assert [e.token for e in walk(RejectionVerifier(), tree, logits, params, 0)] == [1, 2]


# ---- distributions ----


@cache
def target_logits(context: tuple[int, ...]) -> torch.Tensor:
    """A made-up target: its distribution depends on the whole context."""
    generator = torch.Generator().manual_seed(int("1" + "".join(map(str, context))))
    return torch.randn(VOCAB, generator=generator) * 1.2


@cache
def draft_logits(context: tuple[int, ...]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(int("2" + "".join(map(str, context))))
    return target_logits(context) + torch.randn(VOCAB, generator=generator)


PARAMS = SamplingParams(temperature=1.0, top_k=6, top_p=0.9)


def probs_of(row: torch.Tensor) -> torch.Tensor:
    return TokenSampler(PARAMS, 0, frozenset()).probs(row, TokenHistory([]))


@cache
def draft_probs(context: tuple[int, ...]) -> torch.Tensor:
    return probs_of(draft_logits(context))


def drawn_tree(seed: int, shape: tuple[int, ...], with_probs: bool) -> DraftTree:
    """A tree of that shape, drawn from the draft without replacement among siblings.

    Where the draft has no token left for a sibling, it and what hangs off it are left out.
    """
    tokens: list[int] = []
    parents: list[int] = []
    rows: list[torch.Tensor] = []
    index = {ROOT: ROOT}
    for node, parent in enumerate(shape):
        if parent not in index:
            continue
        here = index[parent]
        q = draft_probs(_context(tokens, parents, here))
        left = q.clone()
        left[[t for t, p in zip(tokens, parents, strict=True) if p == here]] = 0
        if float(left.sum()) == 0:
            continue
        index[node] = len(tokens)
        tokens.append(draw(left, uniform(seed, node, Stream.DRAFT)))
        parents.append(here)
        rows.append(q)
    return DraftTree(tuple(tokens), tuple(parents), torch.stack(rows) if with_probs else None)


def _context(tokens: Sequence[int], parents: Sequence[int], node: int) -> tuple[int, ...]:
    context: list[int] = []
    while node != ROOT:
        context.insert(0, tokens[node])
        node = parents[node]
    return tuple(context)


def emitted_pairs(
    verifier: Verifier, parents: tuple[int, ...], with_probs: bool = True
) -> np.ndarray:
    """Counts ``[VOCAB, VOCAB]`` of the first two tokens over many rounds."""
    counts = np.zeros((VOCAB, VOCAB))
    for seed in range(ROUNDS):
        tree = drawn_tree(seed, parents, with_probs)
        contexts = [(), *(_context(tree.tokens, tree.parents, n) for n in range(len(tree)))]
        logits = torch.stack([target_logits(context) for context in contexts])
        tokens = [e.token for e in walk(verifier, tree, logits, PARAMS, seed)]
        if len(tokens) == 1:  # the next step decides the second token, here without a draft
            row = target_logits((tokens[0],))
            history = TokenHistory([0], tokens)
            rows = TargetRows(row[None], TokenSampler(PARAMS, seed, frozenset()), history, 2)
            tokens += [e.token for e in verifier.verify(DraftTree(), rows)]
        counts[tokens[0], tokens[1]] += 1
    return counts


def p_value(counts: np.ndarray) -> float:
    """Chi-square of the pairs against the target's own joint distribution."""
    first = probs_of(target_logits(())).double().numpy()
    joint = np.stack(
        [first[a] * probs_of(target_logits((a,))).double().numpy() for a in range(VOCAB)]
    ).ravel()
    observed, expected = counts.ravel(), joint / joint.sum() * ROUNDS
    if observed[expected == 0].sum() > 0:  # a token that the filters exclude
        return 0.0
    observed, expected = observed[expected > 0], expected[expected > 0]
    rare = expected < 5  # pooled, as the test's approximation needs
    if rare.any():
        observed = np.append(observed[~rare], observed[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    return float(stats.chisquare(observed, expected).pvalue)


CHAIN = (-1, 0, 1)
TREE = (-1, -1, 0, 0, 1, -1)


@pytest.mark.parametrize("parents", [CHAIN, TREE], ids=["chain", "tree"])
@pytest.mark.parametrize("with_probs", [True, False], ids=["q", "point mass"])
def test_rejection_keeps_the_distribution(parents: tuple[int, ...], with_probs: bool) -> None:
    assert p_value(emitted_pairs(RejectionVerifier(), parents, with_probs)) > FALSE_ALARM


@pytest.mark.parametrize("parents", [CHAIN, TREE], ids=["chain", "tree"])
def test_coupled_keeps_the_distribution(parents: tuple[int, ...]) -> None:
    assert p_value(emitted_pairs(MatchVerifier(), parents)) > FALSE_ALARM


class NoResidual(RejectionVerifier):
    """Wrong on purpose: after a rejection it draws from p instead of norm(max(p - q, 0))."""

    @staticmethod
    def _try_children(
        tree: DraftTree, parent: int, p: torch.Tensor, seed: int, position: int
    ) -> tuple[int | None, torch.Tensor]:
        node, _ = RejectionVerifier._try_children(tree, parent, p, seed, position)
        return node, p


class AnotherProposal(RejectionVerifier):
    """Wrong on purpose: the ratio uses a q that is warmer than the one that was drawn from."""

    def verify(self, tree: DraftTree, target: TargetRows) -> Iterator[Emission]:
        if tree.probs is not None:
            warmer = tree.probs.sqrt() / tree.probs.sqrt().sum(-1, keepdim=True)
            tree = DraftTree(tree.tokens, tree.parents, warmer)
        yield from super().verify(tree, target)


class UnfilteredTarget(RejectionVerifier):
    """Wrong on purpose: top_k and top_p are ignored where there is a draft."""

    def verify(self, tree: DraftTree, target: TargetRows) -> Iterator[Emission]:
        if len(tree):
            plain = TokenSampler(SamplingParams(temperature=1.0), target.sampler.seed, frozenset())
            target = TargetRows(target.logits, plain, target.history, target.position)
        yield from super().verify(tree, target)


class BonusFromTheWrongRow(RejectionVerifier):
    """Wrong on purpose: the token after a full acceptance comes from the row before it."""

    def verify(self, tree: DraftTree, target: TargetRows) -> Iterator[Emission]:
        logits = torch.cat([target.logits[:1], target.logits[:-1]])
        rows = TargetRows(logits, target.sampler, target.history, target.position)
        yield from super().verify(tree, rows)


@pytest.mark.parametrize(
    ("wrong", "parents"),
    [
        (NoResidual, CHAIN),
        (NoResidual, TREE),
        (AnotherProposal, CHAIN),
        (AnotherProposal, TREE),
        (UnfilteredTarget, CHAIN),
        (BonusFromTheWrongRow, CHAIN),
    ],
)
def test_a_wrong_verifier_is_caught(
    wrong: Callable[[], Verifier], parents: tuple[int, ...]
) -> None:
    assert p_value(emitted_pairs(wrong(), parents)) < FALSE_ALARM


def test_power() -> None:
    """The test finds a shift of 8 % of total variation with a probability above 99 %.

    Under such a shift chi-square is noncentral with parameter n * sum(d^2 / p). Spread over
    the cells in proportion to p, which is hardest to see, this is n * (2 * TV)^2.
    """
    freedom = VOCAB * VOCAB - 1
    critical = stats.chi2.isf(FALSE_ALARM, freedom)
    assert stats.ncx2.sf(critical, freedom, ROUNDS * (2 * 0.08) ** 2) > 0.99
