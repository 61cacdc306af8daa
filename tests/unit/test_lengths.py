"""How long answers become: learned by type, bounded by the room, honest about cut-off ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.control.lengths import AnswerLengths


def test_nothing_known_is_the_prior() -> None:
    lengths = AnswerLengths()
    assert lengths.expected_more("chat", 0, 10_000) == pytest.approx(128, rel=0.01)
    assert lengths.expected_more("chat", 500, 10_000) == pytest.approx(128, rel=0.01)


def test_short_answers_are_learned_for_their_type() -> None:
    lengths = AnswerLengths()
    for _ in range(20):
        lengths.record("qa", 20, ended=True)
        lengths.record("story", 400, ended=True)
    assert 15 < lengths.expected_more("qa", 0, 1000) < 40
    assert 250 < lengths.expected_more("story", 0, 1000) < 420
    # Whoever is past where others ended is no longer expected to end there.
    assert lengths.expected_more("qa", 40, 1000) > lengths.expected_more("qa", 16, 1000)
    # Unknown types lean on all.
    assert 50 < lengths.expected_more("new", 0, 1000) < 300


def test_an_answer_that_was_cut_off_did_not_end() -> None:
    cut, ended = AnswerLengths(), AnswerLengths()
    for _ in range(20):
        cut.record("chat", 20, ended=False)
        ended.record("chat", 20, ended=True)
    assert cut.expected_more("chat", 0, 1000) > 100
    assert ended.expected_more("chat", 0, 1000) < 30


def test_old_answers_fade() -> None:
    lengths = AnswerLengths()
    for _ in range(200):
        lengths.record("qa", 10, ended=True)
    for _ in range(400):
        lengths.record("qa", 300, ended=True)
    assert lengths.expected_more("qa", 0, 1000) > 200


@given(
    st.lists(st.tuples(st.integers(0, 3000), st.booleans()), max_size=30),
    st.integers(0, 5000),
    st.integers(1, 5000),
)
def test_it_is_between_nothing_and_the_room(
    answers: list[tuple[int, bool]], emitted: int, most: int
) -> None:
    lengths = AnswerLengths()
    for length, ended in answers:
        lengths.record("chat", length, ended)
    more = lengths.expected_more("chat", emitted, most)
    assert 0 < more <= most * (1 + 1e-9)
    assert more <= lengths.expected_more("chat", emitted, most + 1) + 1e-9
