from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.text.tokenizer import Tokenizer
from outpace.text.translation import RunningEncoding, SharedTokens, continuation

import tiny

KINDS = ("bytes", "fewer", "sentencepiece")
texts = st.lists(st.sampled_from([*tiny.ODD_TEXTS, *tiny.CORPUS]), max_size=5).map("".join)


@cache
def tokenizer(kind: str) -> Tokenizer:
    if kind == "sentencepiece":
        return Tokenizer(tiny.sentencepiece_bpe(), named={"eos_token": "</s>"})
    if kind == "fewer":
        return Tokenizer(tiny.byte_bpe(340), named={"eos_token": "<|endoftext|>"})
    return Tokenizer(tiny.byte_bpe(), named={"eos_token": "<|im_end|>"})


@pytest.mark.parametrize("kind", KINDS)
@given(text=texts, cuts=st.lists(st.integers(0, 400), max_size=12))
def test_a_growing_text_is_encoded_as_the_whole(kind: str, text: str, cuts: list[int]) -> None:
    running = RunningEncoding(tokenizer(kind))
    edges = sorted({min(cut, len(text)) for cut in cuts} | {0, len(text)})
    for start, stop in pairwise(edges):
        running.extend(text[start:stop])
        assert running.ids == tokenizer(kind).encode(text[:stop])


def test_only_the_end_is_encoded_again() -> None:
    running = RunningEncoding(tokenizer("bytes"), "the lazy dog " * 100)
    lengths: list[int] = []

    class Watched:
        all_special_ids: frozenset[int] = frozenset()

        def encode_aligned(self, text: str, *, special: bool = False) -> list[tuple[int, int, int]]:
            lengths.append(len(text))
            return tokenizer("bytes").encode_aligned(text, special=special)

    running._tokenizer = Watched()  # type: ignore[assignment]
    running.extend("sleeps")
    assert lengths == [lengths[0]]
    assert lengths[0] < 100
    assert running.ids == tokenizer("bytes").encode("the lazy dog " * 100 + "sleeps")


def test_a_begin_token_that_the_text_brings_is_there_once() -> None:
    from tokenizers.processors import TemplateProcessing

    backend = tiny.sentencepiece_bpe()
    backend.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    begun = Tokenizer(backend)
    assert RunningEncoding(begun, "hello").ids == begun.encode("hello")
    assert RunningEncoding(begun, "<s>hello").ids == begun.encode("<s>hello", special=False)


@pytest.mark.parametrize("kind", KINDS)
@given(before=texts, after=texts)
def test_a_continuation_says_the_text_and_nothing_else(kind: str, before: str, after: str) -> None:
    for control in tiny.CONTROL:
        after = after.replace(control, "")
    spelled = tokenizer(kind).token_bytes()
    ids = continuation(tokenizer(kind), before, after)
    said = b"".join(spelled[token] for token in ids)
    assert said == after.encode() or not ids


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("before", "after"), [("he", "llo hello"), ("a", " w"), ("", "hell")])
def test_a_continuation_is_not_encoded_as_a_beginning(kind: str, before: str, after: str) -> None:
    spelled = tokenizer(kind).token_bytes()
    ids = continuation(tokenizer(kind), before, after)
    assert b"".join(spelled[token] for token in ids) == after.encode()


@pytest.mark.parametrize("kind", KINDS)
@given(text=texts)
def test_the_bytes_of_tokens_are_the_text(kind: str, text: str) -> None:
    spelled = tokenizer(kind).token_bytes()
    ids = tokenizer(kind).encode(text)
    said = b"".join(spelled[token] for token in ids).decode()
    assert said.removeprefix(" " if kind == "sentencepiece" else "") == text


@pytest.mark.parametrize("draft", KINDS)
def test_shared_tokens_stand_for_the_same(draft: str) -> None:
    target = tokenizer("bytes")
    other = tokenizer(draft)
    shared = SharedTokens.of(target, other)
    mine, theirs = target.token_bytes(), other.token_bytes()
    ends = (shared.target_end, shared.draft_end)
    assert ends == (target.eos_token_ids[0], other.eos_token_ids[0])
    pairs = list(zip(shared.target, shared.draft, strict=True))
    assert ends in pairs
    assert all(mine[a] == theirs[b] for a, b in pairs if (a, b) != ends)
    assert len(set(shared.target)) == len(set(shared.draft)) == len(pairs)
    common = set(mine.values()) & set(theirs.values())
    assert len(pairs) >= len(common) - 3  # control tokens match by name, ends by their use


def test_control_tokens_that_the_draft_lacks_are_dropped() -> None:
    shared = SharedTokens.of(tokenizer("bytes"), tokenizer("sentencepiece"))
    assert shared.dropped == {0, 1}  # 2 ends a text, as "</s>" does there
