"""Trees of the best total probability, against all trees there could be."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from outpace.request import SamplingParams
from outpace.sampling.processors import TokenHistory
from outpace.sampling.sampler import TokenSampler
from outpace.spec import growth as module
from outpace.spec.drafter import Ask
from outpace.spec.drafters.medusa_tree import Accuracies, Node, best_tree
from outpace.spec.growth import ChainGrowth, Growth, TreeGrowth
from outpace.spec.tree import ROOT, DraftTree

VOCAB = 5


class AllTokens:
    """A head that says what the target does."""

    def targets(self, own: Tensor) -> Tensor:
        return own

    def full(self, logits: Tensor) -> Tensor:
        return logits


def ask(budget: int, params: SamplingParams | None = None, wants_probs: bool = False) -> Ask:
    return Ask(
        seq_id=1,
        token_ids=np.array([1, 2, 3]),
        num_prompt=3,
        budget=budget,
        block_table=[1, 2],
        sampler=TokenSampler(params or SamplingParams(), 5, frozenset()),
        history=TokenHistory((1, 2, 3)),
        wants_probs=wants_probs,
        prediction=(),
    )


def logits_after(path: tuple[int, ...], seed: int) -> Tensor:
    """What a head says depends on the whole path to a node."""
    generator = torch.Generator().manual_seed(hash((seed, *path)) % 2**31)
    return torch.randn(VOCAB, generator=generator) * 2


def grown(growth: Growth, budget: int, seed: int) -> DraftTree:
    """Run a growth to its end, and check where its leaves are put."""
    path_at: list[tuple[int, ...]] = [()]
    place_of: dict[tuple[int, ...], int] = {}
    leaves = growth.grow(logits_after((), seed)[None])
    while leaves:
        path_at = [(*path_at[leaf.parent], leaf.token) for leaf in leaves]
        for path, leaf in zip(path_at, leaves, strict=True):
            place_of[path] = leaf.places[-1]
            # It sees its own ancestors, each where it was written last.
            assert [place_of[path[: i + 1]] for i in range(len(path))] == list(leaf.places)
            assert len(set(leaf.places)) == len(leaf.places)
            assert all(0 <= place < budget for place in leaf.places)
        newest = {leaf.places[-1] for leaf in leaves}
        assert len(newest) == len(leaves)
        overwritten = [p for p, place in place_of.items() if place in newest and p not in path_at]
        for path in overwritten:
            del place_of[path]
        leaves = growth.grow(torch.stack([logits_after(path, seed) for path in path_at]))
    return growth.tree()


def paths_of(tree: DraftTree) -> set[tuple[int, ...]]:
    return {tuple(tree.tokens[i] for i in tree.path(node)) for node in range(len(tree))}


def log_probability(path: tuple[int, ...], seed: int) -> float:
    steps = (logits_after(path[:i], seed).log_softmax(-1)[path[i]] for i in range(len(path)))
    return float(sum(steps))


@given(budget=st.integers(1, 7), seed=st.integers(0, 10_000))
def test_a_tree_has_the_likeliest_nodes(budget: int, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_WORTH", 0.0)
        tree = grown(TreeGrowth(ask(budget), AllTokens(), VOCAB, "x"), budget, seed)
    # No deeper than the best chain of the budget can reach; all of these paths, ranked.
    everything = [
        path
        for depth in range(1, min(budget, 4) + 1)
        for path in itertools.product(range(VOCAB), repeat=depth)
    ]
    best = sorted(everything, key=lambda path: -log_probability(path, seed))[:budget]
    shallow = {path for path in paths_of(tree) if len(path) <= 4}
    if all(len(path) < 4 for path in paths_of(tree)):
        assert paths_of(tree) == set(best)
    assert len(tree) == budget
    worst = min(log_probability(path, seed) for path in paths_of(tree))
    left_out = [p for p in everything if p not in shallow]
    assert all(log_probability(path, seed) <= worst + 1e-4 for path in left_out)


def test_the_likeliest_branch_comes_first() -> None:
    tree = grown(TreeGrowth(ask(7), AllTokens(), 3, "x"), 7, 4)
    path: list[int] = []
    node = ROOT
    while children := tree.children(node):
        node = children[0]
        path.append(node)
    assert path == list(range(len(path)))


def test_levels_that_are_hardly_reached_are_not_drafted() -> None:
    growth = TreeGrowth(ask(64), AllTokens(), 2, "x")
    leaves, levels = growth.grow(torch.zeros(1, VOCAB)), 1
    while leaves:
        leaves, levels = growth.grow(torch.zeros(len(leaves), VOCAB)), levels + 1
    chance = (2 / VOCAB) ** (levels - 1)  # of reaching the last level's parents
    assert chance >= 0.04 * (2 / VOCAB)


def test_a_chain_takes_the_targets_noise() -> None:
    params = SamplingParams(temperature=1.0, seed=5)
    growth = ChainGrowth(ask(4, params), AllTokens(), "x")
    tree = grown(growth, 4, 7)
    sampler, history = TokenSampler(params, 5, frozenset()), TokenHistory((1, 2, 3))
    for i, token in enumerate(tree.tokens):
        logits = logits_after(tree.tokens[:i], 7)
        assert token == sampler.choose(logits, history, 3 + i)
    assert tree.probs is None


def test_a_drawn_chain_brings_what_it_was_drawn_from() -> None:
    params = SamplingParams(temperature=0.7, top_p=0.9)
    tree = grown(ChainGrowth(ask(4, params, wants_probs=True), AllTokens(), "x"), 4, 7)
    assert tree.probs is not None
    sampler, history = TokenSampler(params, 5, frozenset()), TokenHistory((1, 2, 3))
    for i in range(4):
        expected = sampler.probs(logits_after(tree.tokens[:i], 7), history)
        assert torch.equal(tree.probs[i], expected)
        assert expected[tree.tokens[i]] > 0


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_parameters_hold_on_every_branch(temperature: float) -> None:
    """A banned token is never proposed, and a penalty sees the branch it is on."""
    params = SamplingParams(
        temperature=temperature, logit_bias={0: -100.0}, presence_penalty=2.0, min_tokens=3
    )
    sampler = TokenSampler(params, 5, frozenset({4}))
    one = ask(12, params)
    fields = {name: getattr(one, name) for name in Ask.__slots__} | {"sampler": sampler}
    tree = grown(TreeGrowth(Ask(**fields), AllTokens(), 3, "x"), 12, 3)
    assert 0 not in tree.tokens
    for node in range(len(tree)):
        path = [tree.tokens[i] for i in tree.path(node)]
        assert not (path[-1] == 4 and len(path) <= 3)  # an end that may not come yet
        assert tree.depths[node] == len(path)


def test_noise_finds_the_targets_choice() -> None:
    """If the head is the target, the first branch is what will be emitted."""
    params = SamplingParams(temperature=1.0, seed=5)
    sampler, history = TokenSampler(params, 5, frozenset()), TokenHistory((1, 2, 3))
    for seed in range(20):
        tree = grown(TreeGrowth(ask(6, params), AllTokens(), 3, "x"), 6, seed)
        first = tree.tokens[0]
        assert first == sampler.choose(logits_after((), seed), history, 3)


# ---- Medusa's trees ----


@given(
    accuracies=st.lists(
        st.lists(st.floats(0.01, 1), min_size=1, max_size=4), min_size=1, max_size=3
    ),
    num_nodes=st.integers(1, 12),
)
def test_a_medusa_tree_has_the_best_products(accuracies: list[list[float]], num_nodes: int) -> None:
    nodes = best_tree(accuracies, num_nodes)

    def product(ranks: tuple[int, ...]) -> float:
        return math.prod(accuracies[head][rank] for head, rank in enumerate(ranks))

    def ranks(node: Node) -> tuple[int, ...]:
        before = () if node.parent == ROOT else ranks(nodes[node.parent])
        return (*before, node.rank)

    everything = [
        path
        for depth in range(1, len(accuracies) + 1)
        for path in itertools.product(*(range(len(row)) for row in accuracies[:depth]))
    ]
    assert len(nodes) == min(num_nodes, len(everything))
    assert len({ranks(node) for node in nodes}) == len(nodes)
    best = sorted(map(product, everything), reverse=True)[: len(nodes)]
    assert sorted((product(ranks(node)) for node in nodes), reverse=True) == pytest.approx(best)


def test_what_is_seen_moves_a_medusa_tree() -> None:
    accuracies = Accuracies(2)
    before = accuracies.tree(6)
    for _ in range(200):
        accuracies.add(0, 3)  # it is always the fourth that is right
        accuracies.add(1, None)
    after = accuracies.tree(6)
    assert before[0] == Node(ROOT, 0, 0)
    assert after[0] == Node(ROOT, 0, 3)
    assert accuracies.at(0)[3] > 0.8
