from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from test_drafters import ask

from outpace.config import (
    BestOfConfig,
    EarlyExitConfig,
    FirstOfConfig,
    ModelDraftConfig,
    NgramConfig,
    NoDrafter,
    parse_drafter,
)
from outpace.errors import DraftError, InvalidValueError
from outpace.spec.drafter import Ask, Seen
from outpace.spec.drafters.best_of import BestOfDrafter, merge, promise, reach
from outpace.spec.drafters.ngram import NgramDrafter
from outpace.spec.drafters.track_record import TrackRecord
from outpace.spec.tree import ROOT, DraftTree


@dataclass
class Scripted:
    """Proposes what it is told, and notes how often it was asked."""

    name: str
    tree: DraftTree
    taps: tuple[int, ...] | None = None
    asked: int = 0
    seen: list[Seen] = field(default_factory=list)

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.name,)

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        assert all(one.wants_confidence for one in asks)
        self.asked += len(asks)
        return [self.tree] * len(asks)

    def observe(self, seen: Sequence[Seen]) -> None:
        self.seen += seen

    def forget(self, seq_id: int) -> None:
        self.seen.clear()


def chain(tokens: list[int], sure: float, source: str) -> DraftTree:
    return DraftTree.chain(tokens, source=source, confidence=[sure] * len(tokens))


def test_what_a_tree_promises() -> None:
    tree = DraftTree((1, 2, 3), (ROOT, 0, ROOT), confidence=(0.5, 0.4, 0.25))
    assert reach(tree) == [0.5, 0.2, 0.25]
    assert promise(tree) == pytest.approx(0.95, abs=1e-12)  # sums of decimals
    assert promise(DraftTree()) == 0
    assert promise(DraftTree.chain([1, 2])) == 0.75  # nobody says how sure it is


def test_the_surest_is_chosen_whatever_the_order() -> None:
    weak, sure = chain([1, 2, 3], 0.3, "weak"), chain([4, 5], 0.9, "sure")
    for trees in ((weak, sure), (sure, weak)):
        drafters = [Scripted(tree.source, tree) for tree in trees]
        [tree] = BestOfDrafter(drafters, combine=False).propose([ask([7])])
        assert (tree.tokens, tree.confidence) == (sure.tokens, sure.confidence)


def test_nothing_and_why() -> None:
    drafters = [Scripted("a", DraftTree()), Scripted("b", DraftTree(reason="closed"))]
    [tree] = BestOfDrafter(drafters).propose([ask([7])])
    assert (len(tree), tree.reason) == (0, "closed")


def test_who_usually_promises_less_is_passed_over_and_asked_again_later() -> None:
    cheap = Scripted("cheap", chain([1, 2, 3], 0.9, "cheap"))
    dear = Scripted("dear", chain([1], 0.5, "dear"))
    best = BestOfDrafter([cheap, dear])
    for _ in range(18):
        best.propose([ask([7])])
    assert (cheap.asked, dear.asked) == (18, 2)
    cheap.tree = DraftTree()
    [tree] = best.propose([ask([7])])
    assert tree.tokens == dear.tree.tokens


def test_who_had_nothing_is_asked_again_where_nobody_has_anything() -> None:
    first, second = Scripted("a", DraftTree()), Scripted("b", DraftTree())
    drafter = BestOfDrafter([first, second])
    for _ in range(10):
        drafter.propose([ask([7])])
    assert (first.asked, second.asked) == (10, 10)


def test_a_draft_with_probabilities_is_taken_once_it_was_asked_for() -> None:
    """To drop it for what was drawn would make its q a lie."""
    drawn = DraftTree.chain([3], torch.full((1, 9), 1 / 9), "drawn", [0.01])
    sure = chain([4, 5, 6], 0.6, "sure")
    first, last = Scripted("drawn", drawn), Scripted("sure", sure)
    [tree] = BestOfDrafter([first, last]).propose([ask([7], wants_probs=True)])
    assert tree.probs is drawn.probs
    assert last.asked == 0
    best = BestOfDrafter([Scripted("sure", sure), Scripted("drawn", drawn)])
    chosen = [best.propose([ask([7], wants_probs=True)])[0].tokens for _ in range(4)]
    assert chosen == [(3,), *3 * [(4, 5, 6)]]  # by what it promised before


def test_drafts_share_their_beginning_in_one_tree() -> None:
    one, two = chain([1, 2, 3], 0.5, "one"), chain([1, 9], 0.6, "two")
    tree = merge([one, two], budget=8)
    assert tree.tokens == (1, 9, 2, 3)
    assert tree.parents == (ROOT, 0, 0, 2)
    assert tree.confidence == (0.6, 0.6, 0.5, 0.5)
    assert promise(tree) > max(promise(one), promise(two))
    assert merge([one, two], budget=2).tokens == (1, 9)
    assert merge([one, chain([1, 2, 3], 0.1, "two")], 8).confidence == (0.5, 0.5, 0.5)


def test_merging_only_without_probabilities_and_where_it_is_wanted() -> None:
    one, two = chain([1, 2], 0.5, "one"), chain([3], 0.6, "two")
    drafters = [Scripted("one", one), Scripted("two", two)]
    [tree] = BestOfDrafter(drafters).propose([ask([7])])
    assert tree.tokens == (3, 1, 2)
    [tree] = BestOfDrafter(drafters, combine=False).propose([ask([7])])
    assert tree.tokens == (1, 2)


def test_everyone_learns() -> None:
    drafters = [Scripted("one", DraftTree()), Scripted("two", DraftTree(), taps=())]
    best = BestOfDrafter(drafters)
    assert (best.name, best.taps) == ("one|two", ())
    assert best.sources == ("one|two",)  # its trees come under this name
    best.observe([Seen(1, 0, (1,), None, None)])
    assert [len(one.seen) for one in drafters] == [1, 1]
    best.forget(1)
    assert [len(one.seen) for one in drafters] == [0, 0]
    with pytest.raises(DraftError, match="different hidden states"):
        BestOfDrafter([Scripted("a", DraftTree(), (1,)), Scripted("b", DraftTree(), (2,))])


# ---- how sure lookups are ----


def test_a_track_record() -> None:
    record = TrackRecord({"long": 0.8})
    assert record.propose(1, "long", 3, [7, 8, 9]) == [0.8] * 3
    assert record.confidence("new") == 0.5
    record.learn(1, np.array([1, 2, 3, 7, 8, 5]))  # two right, then one wrong
    assert record.confidence("long") == pytest.approx((2 + 0.8 * 4) / (3 + 4), abs=1e-12)
    before = record.confidence("long")
    record.learn(1, np.array([1, 2, 3, 7, 8, 5]))  # the proposal was judged already
    assert record.confidence("long") == before
    record.propose(1, "long", 6, [1, 1])
    record.learn(1, np.array([1, 2, 3]))  # a sequence that lost its place
    record.propose(2, "long", 3, [1, 1])
    record.forget(2)
    record.learn(2, np.array([1, 2, 3, 1, 1]))
    assert record.confidence("long") == before


def test_ngram_becomes_less_sure_where_it_is_wrong() -> None:
    ngram = NgramDrafter(NgramConfig())
    tokens = [1, 2, 3, 4]
    sure = []
    for i in range(12):
        tokens += [1, 2, 50 + i]  # what follows is new each time
        [tree] = ngram.propose([ask([*tokens, 1, 2])])
        sure.append(tree.confidence[0])
    assert sure[0] == 0.5  # what a match of two tokens is worth before anything was seen
    assert sure[-1] < 0.2


# ---- how it is written ----


def test_spellings() -> None:
    ngram, model = NgramConfig(), ModelDraftConfig("x")
    assert parse_drafter("ngram|model:x") == BestOfConfig((ngram, model))
    assert parse_drafter("ngram|model:x").name == "ngram|model"
    assert parse_drafter("ngram+model:x|early_exit:3") == BestOfConfig(
        (FirstOfConfig((ngram, model)), EarlyExitConfig(3))
    )
    assert parse_drafter("model:a|b") == ModelDraftConfig("a|b")


@pytest.mark.parametrize("spec", ["ngram|none", "|", "ngram|"])
def test_what_cannot_be_chosen_from(spec: str) -> None:
    with pytest.raises(InvalidValueError, match="drafter"):
        parse_drafter(spec)
    with pytest.raises(InvalidValueError, match="propose"):
        BestOfConfig((NgramConfig(), NoDrafter()))
    with pytest.raises(InvalidValueError, match="at least one"):
        BestOfConfig(())
