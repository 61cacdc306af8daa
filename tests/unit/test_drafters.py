from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from outpace.config import (
    FirstOfConfig,
    ModelDraftConfig,
    NgramConfig,
    NoDrafter,
    PredictionConfig,
    parse_drafter,
)
from outpace.errors import InvalidValueError
from outpace.request import SamplingParams
from outpace.sampling.processors import TokenHistory
from outpace.sampling.sampler import TokenSampler
from outpace.spec.drafter import Ask
from outpace.spec.drafters.first_of import FirstOfDrafter
from outpace.spec.drafters.model import ModelDrafter
from outpace.spec.drafters.ngram import NgramDrafter
from outpace.spec.drafters.prediction import PredictionDrafter
from outpace.spec.retrieval.lookup import longest_match

from engines import CONTEXT, VOCAB, make_runner


def ask(
    tokens: list[int],
    budget: int = 4,
    num_prompt: int = 1,
    prediction: tuple[int, ...] = (),
    wants_probs: bool = False,
    params: SamplingParams | None = None,
    seq_id: int = 1,
) -> Ask:
    return Ask(
        seq_id=seq_id,
        token_ids=np.array(tokens),
        num_prompt=num_prompt,
        budget=budget,
        block_table=list(range(1, 60)),
        sampler=TokenSampler(params or SamplingParams(), 5, frozenset()),
        history=TokenHistory(tokens[:num_prompt], tokens[num_prompt:]),
        wants_probs=wants_probs,
        prediction=prediction,
    )


# ---- lookup ----


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=40),
    st.lists(st.integers(0, 3), min_size=1, max_size=10),
    st.integers(1, 6),
)
def test_longest_match_against_the_definition(
    text: list[int], suffix: list[int], longest: int
) -> None:
    ends, length = longest_match(np.array(text), np.array(suffix), longest)

    def matches(end: int, size: int) -> bool:
        start = end - size + 1
        return start >= 0 and text[start : end + 1] == suffix[len(suffix) - size :]

    sizes = range(1, min(longest, len(suffix)) + 1)
    best = max((s for s in sizes for e in range(len(text)) if matches(e, s)), default=0)
    assert length == best
    assert ends.tolist() == ([e for e in range(len(text)) if matches(e, best)] if best else [])


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([1, 2, 3, 4, 5, 1, 2, 3], [4, 5, 1, 2]),  # what followed the last time
        ([1, 2, 3, 9, 1, 2, 3, 8, 1, 2, 3], [8, 1, 2, 3]),  # the most recent of equals
        ([9, 1, 2, 3, 4, 8, 2, 3, 5, 1, 2, 3], [4, 8, 2, 3]),  # longer beats more recent
        ([7, 6, 7, 6], [7, 6, 7, 6]),  # a loop goes on with its own period
        ([5, 5, 5], [5, 5, 5, 5]),
        ([1, 2, 3, 4], []),
        ([1], []),
        ([1, 1], []),  # a match of one token is below min_ngram
    ],
)
def test_ngram(tokens: list[int], expected: list[int]) -> None:
    [tree] = NgramDrafter(NgramConfig()).propose([ask(tokens)])
    assert list(tree.tokens) == expected
    assert tree.is_chain


# ---- prediction ----


def follow(expected: list[int], answer: list[int], budget: int = 4) -> tuple[int, int]:
    """Steps and accepted tokens of greedy decoding towards ``answer``."""
    drafter = PredictionDrafter(PredictionConfig())
    output: list[int] = []
    steps = accepted = 0
    while len(output) < len(answer):
        [tree] = drafter.propose([ask([0, *output], budget, 1, tuple(expected))])
        right = answer[len(output) :]
        n = 0
        while n < len(tree) and n + 1 < len(right) and tree.tokens[n] == right[n]:
            n += 1
        output += right[: n + 1]
        steps, accepted = steps + 1, accepted + n
    return steps, accepted


def test_a_right_prediction_is_followed_from_the_first_token() -> None:
    assert follow(list(range(10, 30)), list(range(10, 30))) == (4, 16)


def test_it_finds_back_after_an_insertion_a_deletion_and_a_substitution() -> None:
    text = list(range(10, 70))
    for edited in (
        [*text[:20], 1, 2, *text[20:]],
        [*text[:20], *text[25:]],
        [*text[:20], 3, *text[21:]],
    ):
        steps, accepted = follow(text, edited)
        assert accepted > 40
        assert steps < 22


def test_a_wrong_prediction_costs_nothing_after_the_first_try() -> None:
    drafter = PredictionDrafter(PredictionConfig())
    expected = tuple(range(10, 30))
    assert len(drafter.propose([ask([0], prediction=expected)])[0]) == 4
    assert len(drafter.propose([ask([0, 1], prediction=expected)])[0]) == 0
    assert len(drafter.propose([ask([0, 1, 2], prediction=expected)])[0]) == 0


def test_a_forgotten_sequence_is_found_again() -> None:
    drafter = PredictionDrafter(PredictionConfig(), default=tuple(range(10, 30)))
    drafter.propose([ask([0])])
    drafter.forget(1)
    [tree] = drafter.propose([ask([0, 10, 11, 12])])
    assert list(tree.tokens) == [13, 14, 15, 16]


def test_behind_a_word_that_stands_for_another_it_goes_on() -> None:
    drafter = PredictionDrafter(PredictionConfig())
    expected = tuple(range(1, 30))

    def next_guesses(output: list[int]) -> tuple[int, ...]:
        return drafter.propose([ask([0, *output], prediction=expected, num_prompt=1)])[0].tokens

    assert next_guesses([]) == (1, 2, 3, 4)
    assert next_guesses([1, 2, 3, 99]) == (5, 6, 7, 8)
    assert next_guesses([1, 2, 3, 99, 98]) == (6, 7, 8, 9)
    assert next_guesses([1, 2, 3, 99, 98, 6, 7]) == (8, 9, 10, 11)
    assert next_guesses([1, 2, 3, 99, 98, 6, 7, 97, 96, 95]) == (11, 12, 13, 14)
    assert next_guesses([1, 2, 3, 99, 98, 6, 7, 97, 96, 95, 94]) == ()
    assert next_guesses([1, 2, 3, 99, 98, 6, 7, 97, 96, 95, 94, 20]) == (21, 22, 23, 24)
    assert next_guesses([1, 2, 3, 99, 98, 6, 7, 97, 96, 95, 94, 20, 21]) == (22, 23, 24, 25)


def test_far_from_its_place_more_tokens_must_agree_to_find_back() -> None:
    drafter = PredictionDrafter(PredictionConfig())
    expected = tuple(range(1, 200))
    for output, found in (([100, 101], ()), ([100, 101, 102], (103, 104, 105, 106))):
        [tree] = drafter.propose([ask([0, 300, *output], prediction=expected)])
        assert tree.tokens == found


def test_without_a_prediction_nothing_is_proposed() -> None:
    assert len(PredictionDrafter(PredictionConfig()).propose([ask([0])])[0]) == 0


# ---- an independent model ----


def reference_chain(tokens: list[int], length: int) -> list[int]:
    """Greedy continuation of the draft model, computed anew for each token."""
    known = list(tokens)
    for _ in range(length):
        drafter = ModelDrafter(make_runner(seed=1), 16, VOCAB)
        [tree] = drafter.propose([ask(known, budget=1)])
        known.append(tree.tokens[0])
    return known[len(tokens) :]


@torch.inference_mode()
def test_the_draft_model_catches_up_whatever_was_decided() -> None:
    drafter = ModelDrafter(make_runner(seed=1), 16, VOCAB)
    known = [3, 1, 4, 1, 5]
    for decide in ("all", "none", "some", "elsewhere", "all", "none"):
        [tree] = drafter.propose([ask(known)])
        assert list(tree.tokens) == reference_chain(known, 4)
        accepted = {"all": 4, "none": 0, "some": 2, "elsewhere": 0}[decide]
        known += [*tree.tokens[:accepted], 7]
        if decide == "elsewhere":  # somebody else drafted in the meantime
            known += [9, 9, 2]


@torch.inference_mode()
def test_the_probabilities_are_those_drawn_from() -> None:
    params = SamplingParams(temperature=1.0, top_k=3)
    drafter = ModelDrafter(make_runner(seed=1), 16, VOCAB)
    [tree] = drafter.propose([ask([3, 1, 4], wants_probs=True, params=params)])
    assert tree.probs is not None
    assert tree.probs.shape == (4, VOCAB)
    for node, token in enumerate(tree.tokens):
        assert int((tree.probs[node] > 0).sum()) <= 3
        assert float(tree.probs[node, token]) > 0
        assert float(tree.probs[node].sum()) == pytest.approx(1, abs=1e-5)
    again = ModelDrafter(make_runner(seed=1), 16, VOCAB)
    [alone] = again.propose([ask([3, 1, 4, *tree.tokens[:2]], 1, wants_probs=True, params=params)])
    assert alone.probs is not None
    assert torch.equal(alone.probs[0], tree.probs[2])


@torch.inference_mode()
def test_beyond_the_drafts_own_context_only_that_request_goes_without() -> None:
    drafter = ModelDrafter(make_runner(seed=1), 16, VOCAB)
    trees = drafter.propose([ask([1] * (CONTEXT - 3), seq_id=1), ask([1, 2], seq_id=2)])
    assert [len(tree) for tree in trees] == [0, 4]
    assert str(CONTEXT) in trees[0].reason


@pytest.mark.parametrize("size", [VOCAB - 6, VOCAB + 6])
@torch.inference_mode()
def test_vocabularies_that_differ_in_padding(size: int) -> None:
    drafter = ModelDrafter(make_runner(seed=1), 16, size)
    params = SamplingParams(temperature=1.0)
    [tree] = drafter.propose([ask([1, 2], wants_probs=True, params=params)])
    assert tree.probs is not None
    assert tree.probs.shape[1] == size
    assert float(tree.probs[:, VOCAB:].sum()) == 0


@torch.inference_mode()
def test_a_text_with_tokens_that_the_draft_lacks() -> None:
    """The draft's vocabulary may be padded less than the target's."""
    drafter = ModelDrafter(make_runner(seed=1), 16, VOCAB + 8)
    trees = drafter.propose([ask([1, VOCAB + 2], seq_id=1), ask([1, 2], seq_id=2)])
    assert [len(tree) for tree in trees] == [0, 4]
    assert "vocabulary" in trees[0].reason


# ---- several ----


def test_first_of_asks_on_only_where_nothing_was_said() -> None:
    drafter = FirstOfDrafter([PredictionDrafter(PredictionConfig()), NgramDrafter(NgramConfig())])
    loop = [7, 6, 7, 6]
    trees = drafter.propose(
        [ask(loop, prediction=(1, 2), num_prompt=4), ask(loop, num_prompt=4), ask([1, 2])]
    )
    assert [tree.source for tree in trees] == ["prediction", "ngram", ""]


# ---- how they are written ----


def test_spellings() -> None:
    assert parse_drafter("none") == NoDrafter()
    assert parse_drafter("ngram") == NgramConfig()
    assert parse_drafter("model:some/path:1") == ModelDraftConfig("some/path:1")
    assert parse_drafter("ngram+model:x") == FirstOfConfig((NgramConfig(), ModelDraftConfig("x")))
    assert parse_drafter("prediction") == PredictionConfig()
    assert parse_drafter("prediction+grammar+ngram") == parse_drafter("auto")
    assert parse_drafter("auto").name == "prediction+grammar+ngram"
    assert parse_drafter("model:a+b") == ModelDraftConfig("a+b")
    assert parse_drafter("ngram+model:/") == FirstOfConfig((NgramConfig(), ModelDraftConfig("/")))


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "eagle9",
        "model:",
        "model",
        "ngram:3",
        "none+ngram",
        "prediction:/no/such/file",
        "a+b",
        "prediction:",
        "eagle:",
        "ngram:",
        "prediction:\0",
    ],
)
def test_what_is_no_drafter_is_refused_by_name(spec: str) -> None:
    with pytest.raises(InvalidValueError, match="drafter"):
        parse_drafter(spec)
