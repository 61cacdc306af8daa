"""Following a text that an answer resembles: differences, ways back, changes that recur."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from outpace.spec.retrieval.place import Place, replaced

TEXT = [*range(10, 20), 7, 8, *range(20, 30), 7, 8, *range(30, 40), 7, 9, *range(40, 50)]


def after(answer: list[int], text: list[int] = TEXT, most: int = 12, least: int = 3) -> list[int]:
    """What is expected after an answer that came token by token."""
    place = Place(np.array(text))
    for end in range(1, len(answer) + 1):
        place.advance(np.array(answer[:end]), least)
    return place.ahead(most).tolist()


def test_a_change_is_expected_to_recur() -> None:
    changed = after([*range(10, 20), 1, 2, 3, 20, 21, 22], most=99)
    assert changed == [*range(23, 30), 1, 2, 3, *range(30, 40), 7, 9, *range(40, 50)]


def test_one_token_for_another_recurs_too_and_what_is_left_out_does_not() -> None:
    assert after([*range(10, 20), 1, 8, 20], most=99) == [
        *range(21, 30), 1, 8, *range(30, 40), 1, 9, *range(40, 50),
    ]  # fmt: skip
    left_out = after([*range(10, 20), 20, 21, 22], most=99)
    assert left_out == [*range(23, 30), 7, 8, *range(30, 40), 7, 9, *range(40, 50)]
    put_in = after([*range(10, 20), 1, 7, 8, 20], most=99)
    assert put_in == [*range(21, 30), 7, 8, *range(30, 40), 7, 9, *range(40, 50)]


def test_a_long_difference_is_another_text_and_no_change_to_expect() -> None:
    assert after([*range(10, 20), *range(100, 109), 20, 21, 22], most=99) == TEXT[15:]


def test_the_only_token_of_its_kind_is_a_way_back_if_it_is_near() -> None:
    assert after([10, 11, 12, 15], most=3) == [16, 17, 18]
    assert after([10, 11, 12, 8], most=3) == [14, 15, 16]  # 8 occurs twice
    far = [*range(10, 100)]
    assert after([10, 11, 90], far, most=3) == [13, 14, 15]
    assert after([10, 11, 90, 91, 92], far, most=3) == [93, 94, 95]


def test_all_at_once_is_as_one_by_one_while_it_follows() -> None:
    answer = TEXT[:25]
    place = Place(np.array(TEXT))
    place.advance(np.array(answer), 3)
    assert place.ahead(12).tolist() == after(answer) == TEXT[25:37]


@given(
    st.lists(st.integers(0, 4), max_size=40),
    st.lists(st.integers(0, 5), max_size=40),
    st.integers(1, 4),
    st.integers(1, 8),
)
def test_whatever_comes_guesses_are_few_and_known_tokens(
    text: list[int], answer: list[int], least: int, most: int
) -> None:
    place = Place(np.array(text, dtype=np.int64))
    for end in range(len(answer) + 1):
        place.advance(np.array(answer[:end], dtype=np.int64), least)
        ahead = place.ahead(most).tolist()
        assert len(ahead) <= most
        assert set(ahead) <= set(text) | set(answer)
        assert len(place.candidates(most)) == (1 if ahead else 0)


@given(
    st.lists(st.integers(0, 3), max_size=40),
    st.lists(st.integers(0, 3), min_size=1, max_size=3),
    st.lists(st.integers(0, 3), max_size=4),
)
def test_replacing_is_as_in_texts(text: list[int], old: list[int], new: list[int]) -> None:
    arrays = [np.array(one, dtype=np.int64) for one in (text, old, new)]
    letters = ["".join(map(str, one)) for one in (text, old, new)]
    expected = letters[0].replace(letters[1], letters[2])
    assert "".join(map(str, replaced(*arrays).tolist())) == expected


def test_changes_of_changes_do_not_grow_without_end() -> None:
    """Each round puts eight tokens where one was, the next one changes what they end with."""
    text = np.array([*range(10, 13), *([1] * 7 + [2]) * 60, 3])
    place = Place(text)
    answer: list[int] = [10, 11, 12]
    symbol = 1
    for fresh in range(100, 140):
        for _ in range(400):
            ahead = place.ahead(7).tolist()
            if place.lost or ahead == [symbol] * 7:
                break
            answer.append(ahead[0] if ahead else symbol)
            place.advance(np.array(answer), 3)
        for token in ([fresh] * 7 + [fresh + 1000], [symbol] * 7):
            for one in token:
                answer.append(one)
                place.advance(np.array(answer), 3)
        symbol = fresh
    assert len(place.text) <= 2 * len(text)


def test_what_comes_all_at_once_finds_its_place_without_learning_all_of_it() -> None:
    text = list(range(1000))
    answer = [token if i % 2 else 5000 + i for i, token in enumerate(text[:600])]
    place = Place(np.array(text))
    place.advance(np.array(answer), 3)
    assert len(place.text) == len(text)
