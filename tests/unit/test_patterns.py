"""Patterns of an operator's: found, not found, refused, and never searched for without an end."""

from __future__ import annotations

import logging

import pytest

from outpace.control.patterns import searcher


def test_it_searches() -> None:
    found = searcher(r"(?i)\bselect\b")
    assert found("please SELECT one")
    assert not found("selected")


@pytest.mark.parametrize("pattern", ["(", "a{99999999999999999999}", "(" * 3000 + ")" * 3000, 7])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        searcher(pattern)


def test_a_search_without_an_end_is_none(caplog: pytest.LogCaptureFixture) -> None:
    found = searcher(r"(a|aa)+(b|a)*\1c$")
    evil = "a" * 2000 + "!"
    with caplog.at_level(logging.WARNING, "outpace"):
        assert not found(evil)
        assert not found(evil)
    assert len(caplog.records) == 1
    assert "counts as not found" in caplog.text
