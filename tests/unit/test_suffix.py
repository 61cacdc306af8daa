from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.config import FirstOfConfig, ModelDraftConfig, SuffixConfig, parse_drafter
from outpace.errors import InvalidValueError
from outpace.spec.drafter import Seen
from outpace.spec.drafters.suffix import SuffixDrafter
from outpace.spec.retrieval.candidates import END, Candidates
from outpace.spec.retrieval.growth import grow
from outpace.spec.retrieval.own import look_back
from outpace.spec.retrieval.store import OutputStore

from lookups import agree, ask


def said(drafter: SuffixDrafter, output: list[int], tenant: str = "", seq_id: int = 9) -> None:
    """A request of one prompt token that answers with ``output`` and ends."""
    drafter.propose([ask([0, *output], tenant=tenant, seq_id=seq_id)])
    drafter.forget(seq_id)


# ---- within the request ----


@given(st.lists(st.integers(0, 2), min_size=1, max_size=60), st.integers(1, 4), st.integers(1, 6))
def test_look_back_against_the_definition(tokens: list[int], shortest: int, depth: int) -> None:
    found = look_back(np.array(tokens), shortest, depth)
    n = len(tokens)
    lengths = {end: agree(tokens[:-1], end, tokens) for end in range(n - 1)}
    right = {end: length for end, length in lengths.items() if length >= shortest}
    if not right:
        assert len(found) == 0
        return
    assert found.lengths[0] >= shortest
    assert max(found.lengths) == max(right.values())
    kept = sorted(right, key=lambda end: (-right[end], -end))
    if len(right) <= 24:
        assert len(found) == len(right)
        ends = sorted(right, reverse=True)
        assert found.lengths.tolist() == [right[end] for end in ends]
        for row, end in zip(found.following.tolist(), ends, strict=True):
            following = list(tokens)
            for i in range(depth):  # a loop goes on with its own period
                following.append(following[len(tokens) + i - (n - 1 - end)])
            known = [*tokens[end + 1 :], *following[n:]]
            assert row == known[:depth]
    else:
        assert 0 < len(found) <= 24
        assert max(found.lengths) == right[kept[0]]


# ---- the tree ----


def tree_of(
    lengths: list[int], following: list[list[int]], budget: int = 9, least: float = 0.05
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    tree = grow(Candidates.here(np.array(lengths), np.array(following)), budget, least, "x")
    return tree.tokens, tree.parents


def test_occurrences_that_agree_share_a_branch() -> None:
    assert tree_of([4, 4, 4], [[7, 8], [7, 9], [7, 8]]) == ((7, 8, 9), (-1, 0, 0))


def test_the_likeliest_nodes_come_first_whatever_the_budget() -> None:
    rows = [[1, 2, 3], [1, 2, 4], [1, 5, 6], [8, 9, 9]]
    whole = tree_of([6] * 4, rows)
    for budget in range(1, len(whole[0])):
        assert tree_of([6] * 4, rows, budget) == (whole[0][:budget], whole[1][:budget])


def test_a_longer_match_outvotes_a_shorter_one() -> None:
    assert tree_of([3, 6], [[1], [2]])[0][0] == 2
    assert tree_of([5, 5, 6], [[1], [1], [2]])[0][0] == 1  # twice one half: the first of equals
    assert tree_of([4, 4, 6], [[1], [1], [2]])[0][0] == 2


def test_many_other_texts_speak_no_louder_than_the_text_itself() -> None:
    here = Candidates.here(np.array([4]), np.array([[7]]))
    others = Candidates.elsewhere(np.full(9, 4), np.full((9, 1), 8))
    tree = grow(Candidates.joined([others, here]), 9, 0.0, "x")
    assert tree.tokens == (7, 8)
    more_alike = Candidates.elsewhere(np.full(9, 8), np.full((9, 1), 8))
    assert grow(Candidates.joined([more_alike, here]), 9, 0.0, "x").tokens == (8, 7)


def test_the_draft_is_longer_after_a_longer_match() -> None:
    row = list(range(40))
    sizes = [len(tree_of([m], [row], 64, 0.3)[0]) for m in (1, 2, 4, 8, 32)]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[2] < sizes[3] < sizes[4]


def test_nothing_is_proposed_beyond_an_end() -> None:
    assert tree_of([5], [[3, END, END]]) == ((3,), (-1,))
    assert tree_of([5], [[END, END]]) == ((), ())


@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.lists(st.integers(END, 3), min_size=4, max_size=4)),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 12),
)
def test_every_path_is_one_that_was_seen(rows: list[tuple[int, list[int]]], budget: int) -> None:
    following = [[END if END in row[: i + 1] else t for i, t in enumerate(row)] for _, row in rows]
    candidates = Candidates.here(np.array([m for m, _ in rows]), np.array(following))
    tree = grow(candidates, budget, 0.0, "x")
    assert len(tree) <= budget
    for path in tree.paths:
        words = [tree.tokens[node] for node in path]
        assert any(row[: len(words)] == words for row in following)


# ---- earlier outputs ----


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b"]), st.lists(st.integers(0, 2), min_size=1, max_size=14)
        ),
        min_size=1,
        max_size=12,
    ),
    st.lists(st.integers(0, 2), min_size=3, max_size=12),
    st.integers(2, 60),
)
def test_the_store_against_the_definition(
    outputs: list[tuple[str, list[int]]], text: list[int], capacity: int
) -> None:
    """What is found is the tenant's own, still in the ring, and really follows the text."""
    store = OutputStore(capacity)
    ring: list[tuple[str, int]] = []
    for tenant, output in outputs:
        store.add(tenant, np.array(output))
        kept = output[-(capacity - 1) :]
        ring += [*((tenant, token) for token in kept), (tenant, END)]
    ring = ring[-capacity:]
    words = [token for _, token in ring]
    for tenant in ("a", "b", "c"):
        found = store.look_up(tenant, np.array(text), 5)
        right = {}
        for end, (owner, _) in enumerate(ring):
            length = agree(words, end, text)
            if owner == tenant and length >= 3:
                following = words[end + 1 : end + 6]
                row = [END if END in following[: i + 1] else t for i, t in enumerate(following)]
                right[end] = (max(length - 2, 1), tuple(row + [END] * (5 - len(row))))
        pairs = [
            (length, tuple(row))
            for length, row in zip(found.lengths.tolist(), found.following.tolist(), strict=True)
        ]
        for pair in pairs:
            assert pair in right.values()
        best = max((length for length, _ in right.values()), default=0)
        assert max((length for length, _ in pairs), default=0) == best


def test_the_oldest_output_makes_room() -> None:
    store = OutputStore(50)
    first = np.arange(100, 120)
    store.add("t", first)
    assert len(store.look_up("t", first[:10], 4)) == 1
    store.add("t", np.arange(200, 220))
    assert len(store.look_up("t", first[:10], 4)) == 1
    store.add("t", np.arange(300, 320))
    assert len(store.look_up("t", first[:10], 4)) == 0
    assert len(store.look_up("t", np.arange(300, 310), 4)) == 1


def test_an_output_longer_than_the_memory_leaves_its_end() -> None:
    store = OutputStore(20)
    store.add("t", np.arange(100))
    assert store.look_up("t", np.arange(80, 95), 4).following.tolist() == [[95, 96, 97, 98]]
    assert len(store.look_up("t", np.arange(30, 50), 4)) == 0


# ---- the drafter ----


def test_an_earlier_output_foretells_the_same_again() -> None:
    drafter = SuffixDrafter(SuffixConfig())
    said(drafter, list(range(20, 40)))
    [tree] = drafter.propose([ask([1, 2, *range(22, 27)], num_prompt=2, budget=4)])
    assert tree.tokens == (27, 28, 29, 30)
    assert tree.is_chain
    assert tree.source == "suffix"


def test_of_prompts_only_the_end_is_remembered_to_tell_what_followed_it() -> None:
    drafter = SuffixDrafter(SuffixConfig())
    drafter.propose([ask([*range(20, 90), 1, 2], num_prompt=70, seq_id=5)])
    drafter.forget(5)
    assert len(drafter.propose([ask([0, 24, 25, 26])])[0]) == 0
    assert drafter.propose([ask([0, 87, 88, 89], seq_id=2)])[0].tokens == (1, 2)


def test_a_prompt_whose_request_said_nothing_is_not_remembered() -> None:
    drafter = SuffixDrafter(SuffixConfig())
    drafter.propose([ask([*range(20, 90)], num_prompt=70, seq_id=5)])
    drafter.forget(5)
    assert len(drafter.propose([ask([0, 87, 88, 89], seq_id=2)])[0]) == 0


def test_no_tenant_is_drafted_for_with_the_texts_of_another() -> None:
    drafter = SuffixDrafter(SuffixConfig())
    secret = list(range(20, 40))
    said(drafter, secret, tenant="alice")
    for tenant in ("bob", "", "alice ", "Alice"):
        assert len(drafter.propose([ask([0, 24, 25, 26], tenant=tenant)])[0]) == 0
        drafter.forget(1)
    assert len(drafter.propose([ask([0, 24, 25, 26], tenant="alice")])[0]) > 0


@given(st.integers(0, 2**32))
def test_no_token_of_another_tenant_is_ever_proposed(seed: int) -> None:
    """Tenants speak of different things in between what they all say."""
    random = np.random.default_rng(seed)
    drafter = SuffixDrafter(SuffixConfig(max_tokens=300, min_probability=0.0))
    for seq_id in range(60):
        tenant = int(random.integers(0, 3))
        own = 100 * (tenant + 1)
        tokens = [0, 1, 2, 3]
        for _ in range(random.integers(1, 6)):
            tokens += [5, 6, 7, 8, own + int(random.integers(0, 9))][: random.integers(3, 6)]
        asked = ask(tokens, 4, f"tenant {tenant}", seq_id, budget=12)
        [tree] = drafter.propose([asked])
        assert all(token < 100 or token // 100 == tenant + 1 for token in tree.tokens)
        drafter.forget(seq_id)


def seen(tokens: list[int], start: int, seq_id: int = 3) -> Seen:
    """A step that computed the tokens from ``start`` on."""
    known = np.array(tokens)
    return Seen(seq_id, start, tuple(tokens[start:]), None, None, known, num_prompt=1)


def test_what_is_observed_is_learned_also_without_further_asks() -> None:
    drafter = SuffixDrafter(SuffixConfig(min_probability=0.0))
    tokens = [0, *range(20, 37)]
    drafter.propose([ask(tokens[:2], seq_id=7)])
    for end in range(3, len(tokens) + 1):
        drafter.observe([seen(tokens[:end], end - 1, 7)])
    drafter.forget(7)
    [tree] = drafter.propose([ask([0, 24, 25, 26], budget=20)])
    assert tree.tokens == tuple(range(27, 37))


def test_a_preempted_sequence_is_remembered_once() -> None:
    drafter = SuffixDrafter(SuffixConfig(min_probability=0.0))
    tokens = [0, *range(20, 40)]
    drafter.propose([ask(tokens[:11], seq_id=3)])
    drafter.forget(3)  # taken out
    drafter.observe([seen(tokens[:4], 0)])
    drafter.forget(3)  # and again, before it was where it had been
    drafter.observe([seen(tokens[:11], 0)])
    drafter.propose([ask(tokens, seq_id=3)])
    drafter.forget(3)
    store = drafter._store
    assert len(store.look_up("", np.array([22, 23, 24]), 4)) == 1
    assert len(store.look_up("", np.array([32, 33, 34]), 4)) == 1


def test_what_comes_behind_a_cached_beginning_is_learned() -> None:
    """Brought back by the prefix cache, a sequence goes on beyond what this drafter was told."""
    drafter = SuffixDrafter(SuffixConfig(min_probability=0.0))
    tokens = [0, *range(20, 60)]
    drafter.propose([ask(tokens[:11], seq_id=3)])
    drafter.forget(3)
    for end in range(20, len(tokens) + 1):
        drafter.observe([seen(tokens[:end], end - 1)])
    drafter.forget(3)
    assert len(drafter._store.look_up("", np.array([50, 51, 52]), 4)) == 1


def test_settings_and_spellings() -> None:
    assert parse_drafter("suffix") == SuffixConfig()
    assert parse_drafter("suffix+model:x") == FirstOfConfig((SuffixConfig(), ModelDraftConfig("x")))
    for wrong in ({"max_tokens": 1}, {"min_match": 0}, {"min_probability": 2.0}):
        with pytest.raises(InvalidValueError, match=next(iter(wrong))):
            SuffixConfig(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match="drafter"):
        parse_drafter("suffix:3")


# ---- where something stands for something else ----


def test_behind_a_gap_it_goes_on_as_the_text_did() -> None:
    drafter = SuffixDrafter(SuffixConfig())
    said(drafter, list(range(10, 40)))
    answer = [*range(10, 20)]
    assert drafter.propose([ask([0, *answer], num_prompt=1)])[0].tokens[:2] == (20, 21)
    answer += [20, 99]
    assert drafter.propose([ask([0, *answer], num_prompt=1)])[0].tokens[:2] == (22, 23)
    answer += [98]
    assert drafter.propose([ask([0, *answer], num_prompt=1)])[0].tokens[:2] == (23, 24)
    answer += [97, 96]
    assert drafter.propose([ask([0, *answer], num_prompt=1)])[0].tokens == ()


@pytest.mark.parametrize("gap", [[99, 22], [22], [99, 98, 97, 96, 95, 24]])
def test_it_finds_back_behind_more_or_fewer_tokens_than_there_were(gap: list[int]) -> None:
    drafter = SuffixDrafter(SuffixConfig())
    said(drafter, list(range(10, 40)))
    answer = [*range(10, 21)]
    drafter.propose([ask([0, *answer], num_prompt=1)])
    last = gap[-1]
    tree = drafter.propose([ask([0, *answer, *gap], num_prompt=1)])[0]
    assert tree.tokens[:2] == (last + 1, last + 2)


def test_without_a_long_match_before_it_a_gap_is_none() -> None:
    drafter = SuffixDrafter(SuffixConfig())
    said(drafter, list(range(10, 40)))
    drafter.propose([ask([0, 10, 11, 12, 13], num_prompt=1)])
    assert drafter.propose([ask([0, 10, 11, 12, 13, 99], num_prompt=1)])[0].tokens == ()


@given(st.lists(st.integers(0, 3), min_size=12, max_size=80), st.integers(1, 6))
def test_drafts_behind_gaps_are_within_the_budget(tokens: list[int], budget: int) -> None:
    drafter = SuffixDrafter(SuffixConfig())
    said(drafter, tokens)
    for end in range(2, len(tokens)):
        text = [*tokens[: end // 2], 4, *tokens[end // 2 : end]]
        tree = drafter.propose([ask(text, num_prompt=1, budget=budget)])[0]
        assert len(tree) <= budget
        assert all(0 <= token <= 4 for token in tree.tokens)
