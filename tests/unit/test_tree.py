from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from outpace.spec.tree import ROOT, DraftTree


@st.composite
def trees(draw: st.DrawFn, largest: int = 24) -> DraftTree:
    size = draw(st.integers(0, largest))
    parents = tuple(draw(st.integers(-1, node - 1)) for node in range(size))
    return DraftTree(tuple(range(100, 100 + size)), parents)


@given(trees())
def test_ancestors_depths_and_paths_agree(tree: DraftTree) -> None:
    for node, parent in enumerate(tree.parents):
        chain = [node]
        while tree.parents[chain[-1]] != ROOT:
            chain.append(tree.parents[chain[-1]])
        assert tree.path(node) == tuple(reversed(chain))
        assert tree.depths[node] == len(chain)
        assert tree.ancestors[node] == sum(1 << n for n in chain)
        assert node in tree.children(parent)


@given(trees())
def test_paths_cover_the_tree_and_end_in_its_leaves(tree: DraftTree) -> None:
    assert {node for path in tree.paths for node in path} == set(range(len(tree)))
    assert [path[-1] for path in tree.paths] == [
        n for n in range(len(tree)) if not tree.children(n)
    ]


@given(trees(), st.integers(0, 30), st.integers(0, 12))
def test_truncation_keeps_what_is_early_and_shallow(
    tree: DraftTree, nodes: int, depth: int
) -> None:
    cut = tree.truncated(nodes, depth)
    expected = [n for n in range(len(tree)) if tree.depths[n] <= depth][:nodes]
    assert list(cut.tokens) == [tree.tokens[n] for n in expected]
    for new, old in enumerate(expected):
        assert [cut.tokens[n] for n in cut.path(new)] == [tree.tokens[n] for n in tree.path(old)]


def test_truncation_keeps_the_probabilities_of_its_nodes() -> None:
    probs = torch.arange(6.0).reshape(3, 2)
    cut = DraftTree((5, 6, 7), (-1, 0, -1), probs).truncated(3, 1)
    assert cut.tokens == (5, 7)
    assert cut.probs is not None
    assert torch.equal(cut.probs, probs[[0, 2]])


@given(st.lists(st.integers(0, 9), max_size=12))
def test_a_chain_is_a_tree(tokens: list[int]) -> None:
    tree = DraftTree.chain(tokens)
    assert tree.is_chain
    assert tree.paths == ((tuple(range(len(tokens))),) if tokens else ())
    assert tree.depths == tuple(range(1, len(tokens) + 1))


@pytest.mark.parametrize(
    ("tokens", "parents", "complaint"),
    [
        ((1,), (0,), "before its child"),
        ((1, 2), (-1, 1), "before its child"),
        ((1,), (-2,), "before its child"),
        ((1, 1), (-1, -1), "equal siblings"),
        ((1, 2), (-1,), "2 tokens but 1 parents"),
    ],
)
def test_what_is_not_a_tree_is_refused(
    tokens: tuple[int, ...], parents: tuple[int, ...], complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        DraftTree(tokens, parents)
