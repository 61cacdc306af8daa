"""What operators write, in files and on the command line, is refused in their own words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from outpace.config import parse_drafter
from outpace.control.policy import read_policy
from outpace.control.rules import read_rules
from outpace.errors import InvalidValueError


@pytest.mark.parametrize(
    "pattern", ["(", "a{99999999999999999999}", "(" * 5000 + ")" * 5000, "*", 5, [1]]
)
def test_what_is_no_regular_expression_is_refused(pattern: object, tmp_path: Path) -> None:
    file = tmp_path / "types.toml"
    file.write_text(f"[[type]]\nname = 'mine'\nmatches = {pattern!r}\n", "utf-8")
    with pytest.raises(InvalidValueError, match="is no regular expression"):
        read_rules(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pin = ''", "give the name of one drafter"),
        ("order = ['ngram', 'suffix', 'ngram']", "'ngram': is named twice"),
        ("order = ['']", "list of drafters' names"),
    ],
)
@pytest.mark.parametrize("table", ["default", "types.code"])
def test_a_policy_that_says_nothing_or_the_same_twice_is_refused(
    table: str, text: str, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(f"[{table}]\n{text}\n", "utf-8")
    with pytest.raises(InvalidValueError, match=message):
        read_policy(file)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("none+ngram", "none stands alone"),
        ("ngram+none", "none stands alone"),
        ("none|ngram", "none stands alone"),
        ("auto+ngram", "auto stands alone"),
        ("auto+none|ngram", "auto stands alone"),
        ("ngram+ngram", "ngram is named twice"),
        ("ngram+suffix+ngram", "ngram is named twice"),
        ("ngram|ngram", "ngram is named twice"),
        ("suffix+ngram|suffix+ngram", "suffix.ngram is named twice"),
        ("model:a+model:a", "model:a is named twice"),
    ],
)
def test_drafters_that_cannot_be_joined_are_refused_as_they_were_typed(
    spec: str, message: str
) -> None:
    with pytest.raises(InvalidValueError, match=message) as caught:
        parse_drafter(spec)
    assert "Config(" not in str(caught.value)
    assert str(caught.value.value) in spec


def test_others_can_be_joined() -> None:
    for spec in ("ngram+suffix", "model:a+model:b", "auto|suffix", "ngram+suffix|ngram"):
        assert parse_drafter(spec).name


@pytest.mark.parametrize("read", [read_policy, read_rules])
def test_a_file_that_is_nested_without_end_is_refused(
    read: Callable[[Path], object], tmp_path: Path
) -> None:
    file = tmp_path / "deep.toml"
    file.write_text("a = " + "[" * 100_000, "utf-8")
    with pytest.raises(InvalidValueError, match="cannot be read"):
        read(file)
