"""Tools: reading them, showing them to the model, and making it call."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import jsonschema
import numpy as np
import pytest
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from outpace.errors import InvalidValueError
from outpace.grammar import Grammar
from outpace.grammar.compiler import GrammarCompiler
from outpace.grammar.vocabulary import grammar_vocabulary
from outpace.request import SamplingParams
from outpace.text.output import SequenceText
from outpace.text.tokenizer import Tokenizer
from outpace.text.tools.family import GENERIC, HERMES, LLAMA, MISTRAL, MISTRAL_NAMED, detect
from outpace.text.tools.parser import Call, gathered
from outpace.text.tools.setup import ToolSetup

import tiny

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Oslo", 'Qu"ebec', "}</tool_call>"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "exact": {"type": "boolean"},
    },
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = [
    {
        "type": "function",
        "function": {"name": "weather", "description": "It rains.", "parameters": WEATHER},
    },
    {"type": "function", "function": {"name": "time"}},
]
# The parts of the families' templates that matter here, in our own words.
TOOL_LINES = "{% if tools %}{% for t in tools %}{{ t | tojson }}\n{% endfor %}{% endif %}"
MESSAGES = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}CALL {{ c.function.name }} "
    "{{ c.function.arguments | tojson }}{% endfor %}<|im_end|>\n{% endfor %}"
)
TEMPLATES = {
    "hermes": TOOL_LINES + "{# <tool_call> arguments #}" + MESSAGES,
    "llama": TOOL_LINES + '{# "parameters" ipython <|python_tag|> #}' + MESSAGES,
    "mistral": TOOL_LINES + "{# [TOOL_CALLS] #}" + MESSAGES,
    "mistral named": TOOL_LINES + "{# [TOOL_CALLS] [ARGS] #}" + MESSAGES,
    "generic": MESSAGES,
}
FORMS = {
    "hermes": HERMES,
    "llama": LLAMA,
    "mistral": MISTRAL,
    "mistral named": MISTRAL_NAMED,
    "generic": GENERIC,
}


@cache
def tokenizer(family: str) -> Tokenizer:
    backend = Backend.from_str(tiny.byte_bpe_cached().to_str())
    backend.add_special_tokens(
        [AddedToken(t, special=True, normalized=False) for t in ("[TOOL_CALLS]", "[ARGS]")]
    )
    return Tokenizer(backend, eos_token_ids=(2,), chat_template=TEMPLATES[family])


@pytest.mark.parametrize("family", TEMPLATES)
def test_the_template_tells_the_family(family: str) -> None:
    assert detect(TEMPLATES[family]) == FORMS[family]
    assert detect(None) == GENERIC


@cache
def compiler(words: Tokenizer) -> GrammarCompiler:
    size, ends = words.vocab_size, frozenset([2])
    return GrammarCompiler(lambda: grammar_vocabulary(words.serialized(), size, ends), size, ends)


def one_answer(setup: ToolSetup, words: Tokenizer, seed: int) -> tuple[str, tuple[Call, ...]]:
    """A random text within the grammar of the calls, through the text end and the parser."""
    params = setup.constrain(SamplingParams())
    assert params.grammar is not None
    matcher = compiler(words).compile(params.grammar)
    rng = np.random.default_rng(seed)
    sink, parser = SequenceText.opener(words, params), setup.parser()
    assert parser is not None
    deltas = []
    while matcher.open:
        token = int(rng.choice(np.flatnonzero(matcher.allowed())))
        matcher.advance(token)
        if token != 2:
            deltas += parser.push(sink.push(token, watch=True))
    assert not matcher.failure
    deltas += [*parser.push(sink.flush()), *parser.flush()]
    return gathered(deltas)


@pytest.mark.parametrize("choice", ["required", "weather", "time"])
@pytest.mark.parametrize("family", TEMPLATES)
def test_a_call_that_must_be_is_one_with_valid_arguments(family: str, choice: str) -> None:
    words = tokenizer(family)
    wanted = choice if choice == "required" else {"type": "function", "function": {"name": choice}}
    setup = ToolSetup.read(words, TOOLS, wanted)
    most = 0
    for seed in range(12):
        text, calls = one_answer(setup, words, seed)
        assert text == ""
        most = max(most, len(calls))
        for call in calls:
            assert call.name == choice or choice == "required"
            schema = WEATHER if call.name == "weather" else {"maxProperties": 0}
            jsonschema.validate(json.loads(call.arguments), schema)
    assert (most > 1) == (choice == "required" and family != "llama")


def test_parallel_calls_can_be_switched_off() -> None:
    words = tokenizer("hermes")
    setup = ToolSetup.read(words, TOOLS, "required", parallel=False)
    assert {len(one_answer(setup, words, seed)[1]) for seed in range(12)} == {1}


def test_what_is_free_to_call_or_not_has_no_grammar() -> None:
    auto = ToolSetup.read(tokenizer("hermes"), TOOLS, None)
    assert auto.choice.kind == "auto"
    assert auto.constrain(SamplingParams()) == SamplingParams()
    none = ToolSetup.read(tokenizer("hermes"), TOOLS, "none")
    assert none.shown == ()
    assert none.parser() is None
    form = SamplingParams(grammar=Grammar.json_object())
    assert none.constrain(form) is form
    with pytest.raises(InvalidValueError, match="cannot go with tools"):
        auto.constrain(form)


def test_control_tokens_that_mark_calls_are_kept_in_the_text() -> None:
    kept = ToolSetup.read(tokenizer("mistral"), TOOLS, "auto").constrain(SamplingParams())
    assert kept.skip_special_tokens is False


def test_names_of_calls() -> None:
    mistral = ToolSetup.read(tokenizer("mistral"), TOOLS, None).new_call_id()
    assert len(mistral) == 9
    assert mistral.isalnum()
    assert ToolSetup.read(tokenizer("hermes"), TOOLS, None).new_call_id().startswith("call_")


CONVERSATION = [
    {"role": "user", "content": "Will it rain?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "weather", "arguments": '{"city": "Oslo"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "<|im_end|>yes"},
]


@pytest.mark.parametrize("family", TEMPLATES)
def test_tools_calls_and_results_reach_the_model(family: str) -> None:
    words = tokenizer(family)
    setup = ToolSetup.read(words, TOOLS, None)
    ids = words.encode_chat(CONVERSATION, tools=setup.shown)
    shown = words.decode(ids, skip_special_tokens=False)
    assert '"It rains."' in shown
    assert "Will it rain?" in shown
    assert '"city": "Oslo"' in shown
    assert "yes" in shown
    # The template's own ends of turns, and not the one that the tool's answer spells.
    assert ids.count(2) == shown.count("<|im_start|>")
    if family == "generic":
        assert "To call one" in shown
        assert "<tool_response>" in shown
    else:
        assert 'CALL weather {"city": "Oslo"}' in shown
    assert "It rains" not in words.decode(words.encode_chat(CONVERSATION[:1]))


def test_a_system_message_keeps_its_words_beside_the_tools() -> None:
    words = tokenizer("generic")
    setup = ToolSetup.read(words, TOOLS, None)
    messages = [{"role": "system", "content": "Be brief."}, *CONVERSATION]
    shown = words.decode(words.encode_chat(messages, tools=setup.shown), skip_special_tokens=False)
    assert "Be brief.\n\nYou can call" in shown
    assert shown.count("system\n") == 1


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("tools", "choice", "said"),
    [
        ({}, None, "must be a list"),
        ([5], None, r"tools\[0\] = 5"),
        ([{"type": "retrieval"}], None, '"type": "function"'),
        ([{"type": "function"}], None, r"tools\[0\].function"),
        ([{"function": {"name": "a b"}}], None, "1 to 64"),
        ([{"function": {"name": "a", "parameters": 5}}], None, "schema of an object"),
        ([{"function": {"name": "a", "parameters": {"type": "string"}}}], None, "of an object"),
        ([{"function": {"name": "a", "description": 5}}], None, "must be a text"),
        ([{"function": {"name": "a", "strict": "yes"}}], None, "true or false"),
        ([{"function": {"name": "a"}}, {"function": {"name": "a"}}], None, "there already"),
        ([{"function": {"name": "a"}}] * 200, None, "at most 128"),
        ([{"function": {"name": "a", "parameters": deep(5000)}}], None, "nested"),
        ([{"function": {"name": "a", "parameters": {"x": float("nan")}}}], None, "plain JSON"),
        ([], "required", "needs tools"),
        (None, "auto", "needs tools"),
        (TOOLS, "always", "choose none, auto"),
        (TOOLS, {"type": "function"}, "choose none, auto"),
        (TOOLS, {"function": {"name": "date"}}, "choose one of the tools: weather, time"),
    ],
)
def test_what_cannot_be_is_refused(tools: object, choice: object, said: str) -> None:
    with pytest.raises(InvalidValueError, match=said):
        ToolSetup.read(tokenizer("hermes"), tools, choice)


@pytest.mark.parametrize(
    ("calls", "said"),
    [
        ("x", "must be a list"),
        ([5], "function"),
        ([{"function": {"name": 5}}], "function"),
        ([{"function": {"name": "a", "arguments": 5}}], "must be JSON"),
        ([{"function": {"name": "a", "arguments": deep(5000)}}], "must be JSON"),
    ],
)
def test_calls_that_are_written_wrong_are_refused(calls: object, said: str) -> None:
    message = {"role": "assistant", "content": None, "tool_calls": calls}
    with pytest.raises(InvalidValueError, match=said):
        tokenizer("hermes").encode_chat([message])


def test_deep_arguments_of_an_earlier_call_stay_a_text() -> None:
    text = "{" + '"a": {' * 200 + "}" * 201
    call = {"id": "1", "function": {"name": "a", "arguments": text}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    words = tokenizer("hermes")
    assert words.encode_chat([message])


def test_a_schema_beyond_the_library_is_refused_only_where_it_is_relied_on() -> None:
    odd = {"type": "object", "properties": {"a": {"type": "integer", "not": {"const": 5}}}}
    words = tokenizer("hermes")
    for strict in (False, True):
        tool = {"function": {"name": "a", "parameters": odd, "strict": strict}}
        setup = ToolSetup.read(words, [tool], "required")
        grammar = setup.constrain(SamplingParams()).grammar
        assert grammar is not None
        if strict:
            with pytest.raises(InvalidValueError, match="not"):
                compiler(words).compile(grammar)
        else:
            assert compiler(words).compile(grammar).open
