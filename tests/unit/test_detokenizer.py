from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models
from tokenizers import Tokenizer as Backend

from outpace.text.detokenizer import Detokenizer
from outpace.text.tokenizer import Tokenizer

import tiny

BYTES = Tokenizer(tiny.byte_bpe())
SENTENCE = Tokenizer(tiny.sentencepiece_bpe())


def stream(detokenizer: Detokenizer, ids: list[int]) -> str:
    return "".join(detokenizer.push(i) for i in ids) + detokenizer.flush()


@given(ids=st.lists(st.integers(0, 420), max_size=40), skip=st.booleans())
def test_random_ids_byte_level(ids: list[int], skip: bool) -> None:
    # 400 and above do not exist (padding of the embedding): they have no text.
    decoded = BYTES.decode(ids, skip_special_tokens=skip)
    assert stream(BYTES.detokenizer(skip_special_tokens=skip), ids) == decoded


@given(text=st.text(max_size=40), skip=st.booleans())
def test_any_text_comes_back(text: str, skip: bool) -> None:
    ids = BYTES.encode(text, parse_special=False)
    assert stream(BYTES.detokenizer(skip_special_tokens=skip), ids) == text
    ids = SENTENCE.encode(text, parse_special=False)
    decoded = SENTENCE.decode(ids, skip_special_tokens=skip)
    assert stream(SENTENCE.detokenizer(skip_special_tokens=skip), ids) == decoded


# Bytes that begin no valid character, so that no character is taken back by a later byte.
wrong = st.integers(3 + 0x80, 3 + 0xBF)
words = st.integers(0, 2) | st.integers(259, SENTENCE.vocab_size - 1)
characters = st.characters(min_codepoint=0x80, exclude_categories=["Cs"]).map(
    lambda c: [3 + b for b in c.encode("utf-8")]
)
runs = st.lists(words, max_size=4) | characters | st.lists(wrong, min_size=1, max_size=3)


@given(parts=st.lists(runs, max_size=8), skip=st.booleans())
def test_sentencepiece_runs(parts: list[list[int]], skip: bool) -> None:
    # A word token between the runs, so that a wrong byte never follows a complete character.
    ids = [i for part in parts for i in (*part, 270)]
    decoded = SENTENCE.decode(ids, skip_special_tokens=skip)
    assert stream(SENTENCE.detokenizer(skip_special_tokens=skip), ids) == decoded


def test_first_space_only_is_dropped() -> None:
    ids = SENTENCE.encode("hello hello")
    detokenizer = SENTENCE.detokenizer()
    pieces = [detokenizer.push(i) for i in [1, *ids]]  # a begin token first: it has no text
    assert "".join(pieces) == "hello hello"
    assert pieces[0] == ""


@pytest.mark.parametrize("tokenizer", [BYTES, SENTENCE], ids=["byte level", "sentencepiece"])
def test_text_is_out_as_soon_as_it_is_certain(tokenizer: Tokenizer) -> None:
    emoji = "👋"
    ids = tokenizer.encode(f"h{emoji}h", parse_special=False)
    detokenizer = tokenizer.detokenizer()
    shown = [detokenizer.push(i) for i in ids]
    assert shown[-1] == "h"
    assert shown[-2].endswith(emoji)  # with its own last byte, not with the next token
    assert detokenizer.flush() == ""


def test_incomplete_bytes_become_replacement_characters() -> None:
    ids = BYTES.encode("👋", parse_special=False)[:-1]
    detokenizer = BYTES.detokenizer()
    assert [detokenizer.push(i) for i in ids] == [""] * len(ids)
    assert detokenizer.flush() == BYTES.decode(ids) != ""


def word_level() -> Tokenizer:
    words = ["[UNK]", "[CLS]", "hello", "wor", "##ld", "!"]
    backend = Backend(models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    backend.decoder = decoders.WordPiece(cleanup=False)
    backend.add_special_tokens([AddedToken("[CLS]", special=True)])
    return Tokenizer(backend)


@given(ids=st.lists(st.integers(0, 5), max_size=12))
def test_other_decoders_go_through_a_window(ids: list[int]) -> None:
    ids = [2, *ids]  # "##ld" right at the start is decoded in another way than later on
    tokenizer = word_level()
    assert stream(tokenizer.detokenizer(), ids) == tokenizer.decode(ids)
