"""Heads on the target's last hidden state that guess several places ahead at once (Medusa)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from outpace.model.heads.medusa import MedusaPass
from outpace.model.heads.vocabulary import HeadVocabulary
from outpace.spec.drafter import Ask, Seen
from outpace.spec.drafters.medusa_tree import RANKS, Accuracies, Node
from outpace.spec.ranking import Row, likeliest
from outpace.spec.tree import ROOT, DraftTree


@dataclass(slots=True)
class _Sequence:
    """What is known of one sequence.

    Attributes:
        last: the target's last hidden state at the newest token that it computed.
        end: how many tokens it computed.
        guessed: drafts that are not decided yet: the position of the first guess, and for each
            head the tokens at its ranks.
    """

    last: Tensor
    end: int
    guessed: list[tuple[int, list[list[int]]]] = field(default_factory=list)


class MedusaDrafter:
    """Drafts a tree out of the heads' likeliest tokens (Cai et al. 2024, arXiv 2401.10774).

    Heads do not see each other's guesses, so which of their ranks go together is decided by how
    often each is right: by a table of the checkpoint, moved by what is seen here. The nodes are
    never drawn: under rejection they are point masses.

    Args:
        heads: the heads.
        vocabulary: the tokens they can say.
    """

    name = "medusa"
    sources: tuple[str, ...] = ("medusa",)
    taps: tuple[int, ...] | None = ()

    def __init__(self, heads: MedusaPass, vocabulary: HeadVocabulary) -> None:
        self._heads = heads
        self._vocabulary = vocabulary
        self._accuracies = Accuracies(heads.config.num_heads, heads.config.accuracies)
        self._sequences: dict[int, _Sequence] = {}

    def observe(self, seen: Sequence[Seen]) -> None:
        """Keep the newest state, and learn which guesses were right."""
        for sight in seen:
            if sight.last is None or not sight.token_ids:
                continue
            end = sight.start + len(sight.token_ids)
            state = self._sequences.get(sight.seq_id)
            if state is None:
                self._sequences[sight.seq_id] = _Sequence(sight.last[-1], end)
                continue
            state.last, state.end = sight.last[-1], end
            self._learn(state, sight)

    def _learn(self, state: _Sequence, sight: Seen) -> None:
        """Compare old drafts with what became of them, where all of it is known."""
        undecided = []
        for begin, ranked in state.guessed:
            if begin + len(ranked) > len(sight.known):
                undecided.append((begin, ranked))
                continue
            for head, tokens in enumerate(ranked):
                right = int(sight.known[begin + head])
                self._accuracies.add(head, tokens.index(right) if right in tokens else None)
        state.guessed = undecided

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        """A tree within the budget for each sequence whose newest state is known."""
        fitting = [ask for ask in asks if self._is_ready(ask)]
        trees: dict[int, DraftTree] = {}
        if fitting:
            last = torch.stack([self._sequences[ask.seq_id].last for ask in fitting])
            num_heads = min(self._heads.config.num_heads, max(ask.budget for ask in fitting))
            logits = self._heads.logits(last, num_heads)
            for ask, rows in zip(fitting, logits, strict=True):
                trees[ask.seq_id] = self._draft(ask, rows)
        unready = DraftTree(reason="the heads have not seen the sequence up to its end")
        return [trees.get(ask.seq_id, unready) for ask in asks]

    def _is_ready(self, ask: Ask) -> bool:
        state = self._sequences.get(ask.seq_id)
        return state is not None and state.end == len(ask.token_ids) - 1

    def _draft(self, ask: Ask, logits: Tensor) -> DraftTree:
        rows = [Row(ask.history, depth) for depth in range(len(logits))]
        ranked = [ids for ids, _ in likeliest(ask, self._vocabulary, logits, rows, RANKS)]
        self._sequences[ask.seq_id].guessed.append((len(ask.token_ids), ranked))
        return _filled(self._accuracies.tree(ask.budget), ranked, self.name)

    def forget(self, seq_id: int) -> None:
        """The sequence ended, or begins anew."""
        self._sequences.pop(seq_id, None)


def _filled(nodes: Sequence[Node], ranked: Sequence[Sequence[int]], source: str) -> DraftTree:
    """Put the heads' tokens on a tree of ranks; what has no token is left out with all below."""
    index = {ROOT: ROOT}
    tokens: list[int] = []
    parents: list[int] = []
    for i, node in enumerate(nodes):
        there = node.depth < len(ranked) and node.rank < len(ranked[node.depth])
        if there and node.parent in index:
            index[i] = len(tokens)
            tokens.append(ranked[node.depth][node.rank])
            parents.append(index[node.parent])
    return DraftTree(tuple(tokens), tuple(parents), None, source)
