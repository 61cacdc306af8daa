"""Types of requests: labels, rules, a file of rules, and a bound on how many there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from outpace.control.features import WINDOW, Features
from outpace.control.rules import BUILT_IN, read_rules
from outpace.control.types import RequestTypes
from outpace.errors import InvalidValueError

SUMMARY = "Summarize: The council meets on Monday. "
EXAMPLES = [
    (Features("Name three rivers.", 4, messages=1), "chat"),
    (Features("Once upon a time", 4), "other"),
    (Features("", 0), "other"),
    (Features("Name three rivers.", 4, structured=True, messages=1), "structured"),
    (Features("Name three rivers.", 4, tools=2, messages=1), "tools"),
    (Features("Change the name.", 4, prediction_tokens=9, structured=True), "prediction"),
    (Features("def add(a, b):\n    return a + b;\n\nimport os\n", 20), "code"),
    (Features("Write a function to find the majority element.", 9, messages=1), "code"),
    (Features("Refactor this Python class.", 5, messages=1), "code"),
    (Features("Which class of antibiotics helps here?", 7, messages=1), "chat"),
    (Features("Translate to French: the bridge is closed.", 9, messages=1), "translation"),
    (Features("Wie heißt der Fluss, und was ist mit der Brücke?", 12, messages=1), "translation"),
    (Features("東京の人口は何人ですか。", 12, messages=1), "translation"),
    (Features("Привет, что нового?", 12, messages=1), "translation"),
    (Features(SUMMARY * 20, 160, messages=1), "long-context"),
    (Features(SUMMARY, 8, messages=1), "chat"),
    (Features("It rains. " * 2000, 6000, messages=1), "long-context"),
]


@pytest.mark.parametrize(("features", "expected"), EXAMPLES)
def test_the_built_in_rules(features: Features, expected: str) -> None:
    assert RequestTypes().of(features).name == expected


def test_each_built_in_rule_is_tried_above() -> None:
    assert {rule.name for rule in BUILT_IN} == {name for _, name in EXAMPLES} - {"other"}


def test_only_head_and_tail_are_looked_at() -> None:
    long = "x" * WINDOW + "translate this" + "y" * 100_000 + "z" * WINDOW
    features = Features(long, 30_000)
    assert len(features.ends) == 2 * WINDOW + 1
    assert RequestTypes().of(features).name == "long-context"
    assert RequestTypes().of(Features("translate this " + long, 30_000)).name == "translation"


def test_a_label_decides_before_any_rule() -> None:
    typed = RequestTypes().of(Features("def f():\n    return 1;\n", 9, label=" Support-Mail "))
    assert (typed.name, typed.reason) == ("support-mail", "the client's label")


@pytest.mark.parametrize("label", ["", " ", "a b", "x" * 33, "é", "-a", "a\n", 3])
def test_a_label_that_is_none_is_refused(label: str) -> None:
    if label == "a\n":  # blanks around it are the client's manner, not a mistake
        assert RequestTypes().of(Features(label=label)).name == "a"
        return
    with pytest.raises(InvalidValueError, match="request_type"):
        RequestTypes().of(Features(label=label))


def test_labels_are_bounded() -> None:
    types = RequestTypes(most_labels=3)
    given = [types.of(Features(label=f"label-{i}")).name for i in range(10)]
    assert given == ["label-0", "label-1", "label-2", *["other"] * 7]
    assert types.refused_labels == 7
    assert types.of(Features(label="label-1")).name == "label-1"
    assert types.of(Features(label="code")).name == "code"
    assert len(types.names) == len(BUILT_IN) + 1 + 3


def test_rules_from_a_file_come_first(tmp_path: Path) -> None:
    file = tmp_path / "types.toml"
    file.write_text(
        '[[type]]\nname = "sql"\ncontains = ["SELECT ", "table"]\nprompt_tokens = [1, 50]\n'
        '[[type]]\nname = "ticket"\nmatches = "#[0-9]{4}"\nmessages = [1, 9]\ntools = false\n'
        '[[type]]\nname = "forms"\nstructured = true\nprediction = false\n',
        "utf-8",
    )
    types = RequestTypes(read_rules(file))
    assert types.of(Features("select a from TABLE b", 6)).name == "sql"
    assert types.of(Features("select a from TABLE b", 60)).name == "other"
    assert types.of(Features("Close #1234", 5, messages=2)).name == "ticket"
    assert types.of(Features("Close #1234", 5, messages=2, tools=1)).name == "tools"
    assert types.of(Features("", 5, structured=True)).name == "forms"
    assert types.names[:3] == ("sql", "ticket", "forms")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[type]", "cannot be read"),
        ("[types]\na = 1", "double brackets|alone"),
        ("type = 3", "double brackets"),
        ('[[type]]\ncontains = "a"', "type name"),
        ('[[type]]\nname = "Big Name"\ncontains = "a"', "type name"),
        ('[[type]]\nname = "a"', "at least one condition"),
        ('[[type]]\nname = "a"\nlooks_like = "b"', "is not a condition"),
        ('[[type]]\nname = "a"\ncontains = []', "list of texts"),
        ('[[type]]\nname = "a"\nmatches = "("', "no regular expression"),
        ('[[type]]\nname = "a"\nmatches = 3', "no regular expression"),
        ('[[type]]\nname = "a"\nprompt_tokens = [9, 1]', "least comes first"),
        ('[[type]]\nname = "a"\nprompt_tokens = 9', "whole numbers"),
        ('[[type]]\nname = "a"\nstructured = 1', "true or false"),
        ('[[type]]\nname = "a"\ntools = true\n' * 33, "at most 32"),
    ],
)
def test_a_file_that_says_what_it_cannot_is_refused(
    tmp_path: Path, text: str, complaint: str
) -> None:
    file = tmp_path / "types.toml"
    file.write_text(text, "utf-8")
    with pytest.raises(InvalidValueError, match=complaint):
        read_rules(file)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="cannot be read"):
        read_rules(tmp_path / "none.toml")


def test_the_work_does_not_grow_with_the_prompt() -> None:
    """Counted in characters that rules can see, since nothing is timed in a test."""
    for length in (10, 10**3, 10**6):
        assert len(Features("a " * length, length).ends) <= 2 * WINDOW + 1
