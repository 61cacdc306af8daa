from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.text.stops import StopText

short = st.text(alphabet="abc", max_size=30)
stop_lists = st.lists(st.text(alphabet="abc", min_size=1, max_size=4), max_size=4)


def truncate(text: str, stops: list[str], include: bool) -> tuple[str, str | None]:
    """The definition, read character by character."""
    for end in range(1, len(text) + 1):
        ended = [s for s in stops if text[:end].endswith(s)]
        if ended:
            stop = max(ended, key=len)
            return text[: end if include else end - len(stop)], stop
    return text, None


def run(pieces: list[str], stops: list[str], include: bool = False) -> tuple[str, str | None]:
    stream = StopText(stops, include_stop=include)
    out = ""
    for piece in pieces:
        out += stream.push(piece)
        if stream.hit is not None:
            break
    return out + stream.flush(), stream.hit


@given(text=short, stops=stop_lists, cuts=st.lists(st.integers(0, 30)), include=st.booleans())
def test_any_chunking_gives_the_truncated_text(
    text: str, stops: list[str], cuts: list[int], include: bool
) -> None:
    edges = sorted({0, len(text), *(c for c in cuts if c < len(text))})
    pieces = [text[a:b] for a, b in pairwise(edges)]
    assert run(pieces, stops, include) == truncate(text, stops, include)


@given(text=short, stops=stop_lists)
def test_nothing_is_held_without_need(text: str, stops: list[str]) -> None:
    stream = StopText(stops)
    shown = ""
    for character in text:
        shown += stream.push(character)
        if stream.hit is not None:
            return
        held = text[len(shown) :][: len(stream._held)]
        assert held == "" or any(stop.startswith(held) for stop in stops)


def test_fifty_stops() -> None:
    stops = [f"stop{i}!" for i in range(50)]
    assert run(["a sto", "p4", "2", "! b"], stops) == ("a ", "stop42!")


def test_held_text_is_given_out_at_the_end() -> None:
    assert run(["one\n"], ["\n\n"]) == ("one\n", None)


def test_push_after_a_hit_is_an_error() -> None:
    stream = StopText(["x"])
    assert stream.push("axb") == "a"
    assert stream.flush() == ""
    with pytest.raises(RuntimeError, match="'x'"):
        stream.push("more")


def test_empty_stop_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopText(["a", ""])
