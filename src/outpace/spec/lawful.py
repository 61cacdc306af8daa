"""Drafts of requests with a grammar: what the target could never accept is not computed."""

from __future__ import annotations

from outpace.sampling.processors import TokenHistory
from outpace.spec.tree import ROOT, DraftTree

# What the masks of one sequence may take in a step; a draft needs one for each of its depths.
MASK_BUDGET_SECONDS = 0.005


def lawful(tree: DraftTree, history: TokenHistory) -> DraftTree:
    """The part of a draft that the grammar allows and whose masks are affordable.

    Cutting changes no token. A guess without probabilities is cut where it leaves the grammar:
    there the target's choice is another one for certain. One with probabilities is not: under
    the rejection rule, whether a drawn token stands in the tree is a part of the distribution
    (its drafter draws within the grammar anyway). The depth is cut in either case where masks
    are slow, so that a difficult grammar costs its own request its drafts, and others little.
    """
    matcher = history.matcher
    if matcher is None or len(tree) == 0:
        return tree
    depth = len(tree)
    if matcher.mask_seconds > 0:
        depth = int(min(depth, MASK_BUDGET_SECONDS / matcher.mask_seconds))
    shallow = tree.truncated(len(tree), depth)
    if len(shallow) == 0:
        return DraftTree(reason="the grammar's masks are slow here")
    if shallow.probs is not None:
        return shallow
    lawful_nodes: set[int] = set()
    for path in shallow.paths:
        num_valid = matcher.num_valid([shallow.tokens[node] for node in path])
        lawful_nodes.update(path[:num_valid])
    if len(lawful_nodes) == len(shallow):
        return shallow
    return _only(shallow, sorted(lawful_nodes))


def _only(tree: DraftTree, nodes: list[int]) -> DraftTree:
    """A tree of some of the nodes, each of them with its ancestors."""
    if not nodes:
        return DraftTree(reason="the draft left the grammar")
    index = {old: new for new, old in enumerate(nodes)} | {ROOT: ROOT}
    return DraftTree(
        tuple(tree.tokens[node] for node in nodes),
        tuple(index[tree.parents[node]] for node in nodes),
        source=tree.source,
        confidence=tuple(tree.confidence[node] for node in nodes) if tree.confidence else (),
    )
