"""Calls in answers: every family's own way of writing them, whole and in any pieces."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.text.tools.family import GENERIC, HERMES, LLAMA, MISTRAL, CallFormat
from outpace.text.tools.parser import (
    ArgumentsDelta,
    Call,
    CallParser,
    CallStart,
    Delta,
    TextDelta,
    gathered,
    joined,
)

FORMATS = {form.family: form for form in (HERMES, LLAMA, MISTRAL, GENERIC)}
NAMES = ("get", "set")
A = Call("get", '{"x": {"y": [1, "}]</tool_call>\\""]}}')
B = Call("set", "{}")


def parse(form: CallFormat, *pieces: str) -> list[Delta]:
    parser = CallParser(form, NAMES)
    deltas = [delta for piece in pieces for delta in parser.push(piece)]
    return list(joined([*deltas, *parser.flush()]))


CASES = [
    # What, the answer, its text, its calls.
    ("hermes", "just text\n", "just text\n", ()),
    ("hermes", '<tool_call>\n{"name": "get", "arguments": ARGUMENTS}\n</tool_call>', "", (A,)),
    (
        "hermes",
        'Let me see.\n\n<tool_call>{"name": "get", "arguments": ARGUMENTS}</tool_call>\n',
        "Let me see.",
        (A,),
    ),
    (
        "hermes",
        '<tool_call>\n{"name": "get", "arguments": ARGUMENTS}\n</tool_call>\n<tool_call>\n'
        '{"name": "set", "arguments": {}}\n</tool_call>',
        "",
        (A, B),
    ),
    ("hermes", '<tool_call>{"arguments": ARGUMENTS, "name": "get"}</tool_call>', "", (A,)),
    ("hermes", '<tool_call>{"name": "set"}</tool_call> done', " done", (B,)),
    ("hermes", '<tool_call>{"id": 7, "name": "set", "arguments": null}</tool_call>', "", (B,)),
    (
        "hermes",
        '<tool_call>{"name": "set", "arguments": "{\\"a\\": 1}"}</tool_call>',
        "",
        (Call("set", '{"a": 1}'),),
    ),
    (
        "hermes",
        '<tool_call>{"name": "other", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "other", "arguments": {}}</tool_call>',
        (),
    ),
    ("hermes", "<tool_call>oops", "<tool_call>oops", ()),
    ("hermes", '<tool_call><tool_call>{"name": "set"}</tool_call>', "<tool_call>", (B,)),
    ("hermes", "a < b <tool", "a < b <tool", ()),
    ("hermes", '<tool_call>{"name": "get", "arguments": {"x": 1', "", (Call("get", '{"x": 1'),)),
    ("hermes", '<tool_call>{"name": "ge', '<tool_call>{"name": "ge', ()),
    ("hermes", '<tool_call>{"name": "set"}</tool_c', "", (B,)),
    ("hermes", '<tool_call>{"name": "set"} and text', "and text", (B,)),
    ("hermes", '<tool_call>{"name": "set"; 3', "; 3", (B,)),
    ("hermes", '{"name": "set", "arguments": {}}', '{"name": "set", "arguments": {}}', ()),
    ("llama", '{"name": "get", "parameters": ARGUMENTS}', "", (A,)),
    (
        "llama",
        ' {"name": "get", "parameters": ARGUMENTS}; {"name": "set", "parameters": {}}',
        "",
        (A, B),
    ),
    ("llama", '<|python_tag|>{"name": "get", "parameters": ARGUMENTS}', "", (A,)),
    (
        "llama",
        'Sure. <|python_tag|>{"type": "function", "name": "set", "parameters": {}}',
        "Sure.",
        (B,),
    ),
    ("llama", '<|python_tag|>search.call(query="x")', '<|python_tag|>search.call(query="x")', ()),
    ("llama", '{"answer": {"name": "set"}}', '{"answer": {"name": "set"}}', ()),
    ("llama", 'Like {"name": "set"}', 'Like {"name": "set"}', ()),
    ("mistral", '[TOOL_CALLS] [{"name": "get", "arguments": ARGUMENTS}]', "", (A,)),
    (
        "mistral",
        '[TOOL_CALLS][{"name": "get", "arguments": ARGUMENTS, "id": "abcdefghi"}, '
        '{"name": "set", "arguments": {}}]',
        "",
        (A, B),
    ),
    ("mistral", "[TOOL_CALLS]get[ARGS]ARGUMENTS[TOOL_CALLS]set{}", "", (A, B)),
    ("mistral", "[TOOL_CALLS]nothing", "[TOOL_CALLS]nothing", ()),
    ("mistral", "[TOOL_CALLS]other{}", "[TOOL_CALLS]other{}", ()),
    ("mistral", "[1] and [TOO", "[1] and [TOO", ()),
    ("generic", 'Yes.\n<tool_call>\n{"name": "set", "arguments": {}}\n</tool_call>', "Yes.", (B,)),
]


@pytest.mark.parametrize(("family", "answer", "text", "calls"), CASES)
def test_text_and_calls(family: str, answer: str, text: str, calls: tuple[Call, ...]) -> None:
    whole = parse(FORMATS[family], answer.replace("ARGUMENTS", A.arguments))
    assert gathered(whole) == (text, calls)


fragments = st.lists(
    st.sampled_from(
        [
            "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "[ARGS]", "{", "}",
            "[", "]", '"', '"name"', '"get"', '"arguments"', '"parameters"', ": ", ", ", ";", "\n",
            " ", "get", "set", "text", "\\", "1", "<", '{"name": "get", "arguments": {"a": "b"}}',
            '{"name": "set", "parameters": {}}', "ü",
        ]
    ),
    max_size=14,
).map("".join)  # fmt: skip
answers = st.one_of(
    fragments, st.sampled_from([a.replace("ARGUMENTS", A.arguments) for _, a, _, _ in CASES])
)


@given(family=st.sampled_from(sorted(FORMATS)), answer=answers, data=st.data())
def test_pieces_make_no_difference(family: str, answer: str, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(answer)), max_size=8).map(sorted))
    pieces = [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    whole = parse(FORMATS[family], answer)
    assert parse(FORMATS[family], *pieces) == whole
    assert parse(FORMATS[family], *answer) == whole


@given(family=st.sampled_from(sorted(FORMATS)), answer=answers)
def test_an_answer_without_calls_is_its_own_text(family: str, answer: str) -> None:
    """Nothing is lost: what is no call stays text, character for character."""
    text, calls = gathered(parse(FORMATS[family], answer))
    if not calls:
        assert text == answer
    for call in calls:
        assert call.name in NAMES


def test_text_comes_at_once_and_arguments_as_they_are_written() -> None:
    parser = CallParser(HERMES, NAMES)
    assert parser.push("Let me") == [TextDelta("Let me")]
    assert parser.push(" see <") == [TextDelta(" see")]
    assert parser.push("b> <tool_call>") == [TextDelta(" <b>")]
    assert parser.push('{"name": "get"') == [CallStart(0, "get")]
    assert parser.push(', "arguments": {"x"') == [ArgumentsDelta(0, '{"x"')]
    assert parser.push(": 1}") == [ArgumentsDelta(0, ": 1}")]
    assert parser.push("}</tool_call>") == []
    assert parser.flush() == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(
    family=st.sampled_from(sorted(FORMATS)),
    calls=st.lists(
        st.tuples(
            st.sampled_from(NAMES),
            st.dictionaries(st.text(max_size=4), json_values, max_size=3),
            st.booleans(),
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_what_a_family_writes_is_read_back(
    family: str, calls: list[tuple[str, dict[str, object], bool]]
) -> None:
    form = FORMATS[family]
    objects = [
        f'{{"name": "{name}", "{form.arguments}": {json.dumps(arguments, ensure_ascii=plain)}}}'
        for name, arguments, plain in calls
    ]
    if form.end:
        written = form.between.join(
            form.begin + form.lead + one + form.trail + form.end for one in objects
        )
    else:
        joined_objects = form.between.join(objects)
        written = f"{form.begin}[{joined_objects}]" if form.listed else joined_objects
    text, found = gathered(parse(form, written))
    assert text == ""
    assert [(call.name, json.loads(call.arguments)) for call in found] == [
        (name, arguments) for name, arguments, _ in calls
    ]
