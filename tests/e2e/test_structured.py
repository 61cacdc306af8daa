"""Structured answers through the offline API, with real text."""

from __future__ import annotations

import json
import re

import jsonschema
import pytest

from outpace import LLM, Grammar, InvalidValueError, SamplingParams
from outpace.text.tools.parser import gathered
from outpace.text.tools.setup import ToolSetup

from tiny import write_checkpoint

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "kind": {"enum": ["dög", "cat"]},
        "ages": {
            "type": "array",
            "items": {"type": "integer", "minimum": 0, "maximum": 99},
            "maxItems": 2,
        },
    },
    "required": ["name", "kind", "ages"],
    "additionalProperties": False,
}
DRAFTERS = ["none", "ngram", "prediction", "grammar", "auto"]


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    """Tools in words are long where nearly every character is a token."""
    folder = tmp_path_factory.mktemp("long") / "model"
    write_checkpoint(folder, max_position_embeddings=2048)
    return LLM(str(folder), num_speculative_tokens=4, threads=1, kv_cache_tokens=4096)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_json_of_a_schema_whoever_drafts(llm: LLM, temperature: float) -> None:
    grammar = Grammar.json_schema(SCHEMA, compact=True)
    params = SamplingParams(temperature=temperature, seed=5, max_tokens=400, grammar=grammar)
    answers = {
        drafter: llm.generate("Once", params, drafter=drafter, prediction='{"name":"x"')[0]
        for drafter in DRAFTERS
    }
    assert len({answer.token_ids for answer in answers.values()}) == 1
    text = answers["none"].text
    jsonschema.validate(json.loads(text), SCHEMA)
    assert answers["none"].finish_reason == "stop"


def test_a_stream_gives_the_same(llm: LLM) -> None:
    params = SamplingParams(
        temperature=1.0, seed=2, n=2, max_tokens=60, grammar=Grammar.regex("[a-zä]{5,30}!")
    )
    [whole] = llm.generate("Once", params)
    chunks = list(llm.stream("Once", params))
    assert chunks[-1].output is not None
    for output in whole.outputs:
        assert re.fullmatch("[a-zä]{5,30}!", output.text)
        assert "".join(c.text for c in chunks if c.index == output.index) == output.text


def test_a_stop_text_still_cuts(llm: LLM) -> None:
    params = SamplingParams(grammar=Grammar.regex("aaa-bbb"), stop=("-",))
    [answer] = llm.generate("Once", params)
    assert (answer.text, answer.finish_reason, answer.stop_reason) == ("aaa", "stop", "-")


def test_log_probabilities_are_the_models_own(llm: LLM) -> None:
    free = SamplingParams(max_tokens=1, logprobs=3)
    bound = SamplingParams(grammar=Grammar.regex("zz"), logprobs=3)
    [one], [other] = llm.generate("Once", free), llm.generate("Once", bound)
    assert one.logprobs is not None
    assert other.logprobs is not None
    assert one.logprobs[0].top == other.logprobs[0].top


def test_what_does_not_compile_stops_nothing(llm: LLM) -> None:
    good = SamplingParams(max_tokens=2)
    bad = SamplingParams(grammar=Grammar.json_schema('{"type": "objct"}'))
    with pytest.raises(InvalidValueError, match="Invalid type: objct"):
        llm.generate(["Once", "Twice"], [good, bad])
    assert not llm.engine.has_work


def test_a_call_from_question_to_arguments(llm: LLM) -> None:
    tools = [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}]
    setup = ToolSetup.read(llm.tokenizer, tools, "required", parallel=False)
    prompt = llm.tokenizer.encode_chat([{"role": "user", "content": "Who?"}], tools=setup.shown)
    params = setup.constrain(SamplingParams(temperature=1.0, seed=1, max_tokens=200))
    parser = setup.parser()
    assert parser is not None
    deltas = [d for chunk in llm.stream(prompt, params) for d in parser.push(chunk.text)]
    text, [call] = gathered([*deltas, *parser.flush()])
    assert text == ""
    assert call.name == "look"
    jsonschema.validate(json.loads(call.arguments), SCHEMA)
