"""The official client against a server: every field, streamed and whole, drafted and plain."""

from __future__ import annotations

import json
import math
from typing import Any

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outpace import SamplingParams

from serving import Running, events, folded

FOX = "the quick brown fox jumps over the lazy dog and the quick brown fox"
MESSAGES = [{"role": "user", "content": FOX}]
PLAIN = {"speculative": {"enabled": False}}

# What a request may ask for, beside what it is about.
FEATURES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "sampled": {"temperature": 0.9, "top_p": 0.8},
    "several samples": {"n": 3},
    "penalties": {"presence_penalty": 0.7, "frequency_penalty": -0.4},
    "biased": {"logit_bias": {"50": 100, "51": 99}},
    "stop text": {"stop": "\n"},
    "stop texts": {"stop": ["e", "q"], "temperature": 1.5},
    "extensions": {
        "extra_body": {
            "top_k": 20,
            "min_p": 0.01,
            "repetition_penalty": 1.1,
            "min_tokens": 4,
            "ignore_eos": True,
            "stop_token_ids": [70, 71],
            "skip_special_tokens": False,
        }
    },
    "labelled": {"user": "somebody", "extra_body": {"metadata": {"request_type": "summary"}}},
    "one of the drafters": {
        "extra_body": {"speculative": {"drafter": "ngram", "num_speculative_tokens": 2}}
    },
}
CHAT_ONLY: dict[str, dict[str, Any]] = {
    "log-probabilities": {"logprobs": True, "top_logprobs": 3},
    "the token's own alone": {"logprobs": True, "logit_bias": {"50": 100}},
    "predicted": {
        "prediction": {"type": "content", "content": FOX},
        "logprobs": True,
        "top_logprobs": 1,
        "n": 2,
        "presence_penalty": 0.5,
    },
    "predicted in parts": {
        "prediction": {"type": "content", "content": [{"type": "text", "text": FOX}]}
    },
}
COMPLETION_ONLY: dict[str, dict[str, Any]] = {
    "log-probabilities": {"logprobs": 3},
    "the token's own alone": {"logprobs": 0},
    "echo": {"echo": True, "n": 2},
    "several prompts": {"prompt": ["the quick", "brown fox"], "n": 2, "logprobs": 1},
    "token ids": {"prompt": [60, 61, 62]},
    "several lists of ids": {"prompt": [[60, 61], [70]], "echo": True},
}


def told(choice: Any) -> dict[str, Any]:
    """What a choice says, however it came."""
    value: dict[str, Any] = choice.to_dict()
    message = value.pop("message", {})
    logprobs = value["logprobs"]
    if logprobs is not None:
        logprobs.pop("refusal", None)
    return {
        "text": value.get("text", message.get("content")) or "",
        "calls": [
            [call["function"]["name"], call["function"]["arguments"]]
            for call in message.get("tool_calls") or ()
        ],
        "finish_reason": value["finish_reason"],
        "logprobs": logprobs,
        "stop_reason": value["stop_reason"],
    }


def plain(options: dict[str, Any]) -> dict[str, Any]:
    return {**options, "extra_body": {**options.get("extra_body", {}), **PLAIN}}


def whole_and_streamed(create: Any, options: dict[str, Any]) -> tuple[Any, list[dict[str, Any]]]:
    """A whole reply, and the choices and usage of the same streamed, which must agree."""
    whole = create(**options)
    pieces = [
        piece.to_dict()
        for piece in create(**options, stream=True, stream_options={"include_usage": True})
    ]
    assert pieces[-1]["choices"] == []
    assert all(piece["usage"] is None for piece in pieces[:-1])
    usage, streamed_usage = whole.usage.to_dict(), pieces[-1]["usage"]
    for one in (usage, streamed_usage):  # what the first has left there, the second finds
        one.pop("prompt_tokens_details")
    assert usage["prompt_tokens"] == streamed_usage["prompt_tokens"]
    assert usage["completion_tokens"] == streamed_usage["completion_tokens"]
    choices = folded(pieces)
    for choice, expected in zip(choices, map(told, whole.choices), strict=True):
        choice.pop("role")
        if choice["logprobs"] is not None:
            choice["logprobs"].pop("refusal", None)
        assert choice == expected
    return whole, choices


@pytest.mark.parametrize("name", FEATURES | CHAT_ONLY)
def test_chats(tiny_server: Running, name: str) -> None:
    options = {"model": "tiny", "messages": MESSAGES, "seed": 11, "max_completion_tokens": 24}
    options |= (FEATURES | CHAT_ONLY)[name]
    create = tiny_server.client().chat.completions.create
    whole, choices = whole_and_streamed(create, options)
    without, others = whole_and_streamed(create, plain(options))
    assert choices == others
    assert len(choices) == options.get("n", 1)
    assert without.metrics["speculative_decoding"]["num_draft_tokens"] == 0
    assert all(choice.message.role == "assistant" for choice in whole.choices)
    for choice in choices:
        if options.get("logprobs"):
            content = choice["logprobs"]["content"]
            assert all(len(e["top_logprobs"]) == options.get("top_logprobs", 0) for e in content)


@pytest.mark.parametrize("name", FEATURES | COMPLETION_ONLY)
def test_completions(tiny_server: Running, name: str) -> None:
    options = {"model": "tiny", "prompt": FOX, "seed": 11, "max_tokens": 24}
    options |= (FEATURES | COMPLETION_ONLY)[name]
    create = tiny_server.client().completions.create
    whole, choices = whole_and_streamed(create, options)
    _, others = whole_and_streamed(create, plain(options))
    assert choices == others
    prompt = options["prompt"]
    prompts = prompt if isinstance(prompt, list) and not isinstance(prompt[0], int) else [prompt]
    assert len(choices) == options.get("n", 1) * len(prompts)
    assert whole.usage.completion_tokens <= 24 * len(choices)


def test_a_reply_is_what_the_library_says(tiny_server: Running) -> None:
    llm = tiny_server.service.llm
    reply = tiny_server.client().chat.completions.create(
        model="tiny", messages=MESSAGES, temperature=0, max_tokens=16, logprobs=True
    )
    ids = llm.tokenizer.encode_chat(MESSAGES)
    tiny_server.wait_until_idle()
    params = SamplingParams(max_tokens=16, logprobs=0)
    [result] = tiny_server.service.desk.steps.ask(
        lambda engine: llm.generate([ids], params)
    ).result(60)
    assert reply.choices[0].message.content == result.text
    assert reply.usage.prompt_tokens == len(ids)
    logprobs = reply.choices[0].logprobs.content
    assert [entry.logprob for entry in logprobs] == [entry.logprob for entry in result.logprobs]
    shown = bytes(byte for entry in logprobs for byte in entry.bytes)
    assert shown == b"".join(map(llm.tokenizer.token_bytes().__getitem__, result.token_ids))


def test_the_record_of_speculation(tiny_server: Running) -> None:
    options: dict[str, Any] = {
        "model": "tiny",
        "messages": MESSAGES,
        "temperature": 0,
        "max_tokens": 24,
        "logit_bias": {"50": 100},
    }
    create = tiny_server.client().chat.completions.create
    reply = create(**options, extra_headers={"X-Outpace-Request-Type": "Code"})
    record = reply.metrics["speculative_decoding"]
    assert record["request_type"] == "code"
    assert "ngram" in record["drafter"]
    assert record["num_accepted_draft_tokens"] > 0
    drafts, accepted = record["num_spec_steps"], record["num_accepted_draft_tokens"]
    assert record["mean_acceptance_length"] == 1 + accepted / drafts
    assert sum(record["acceptance_histogram"]) == drafts
    assert sum(i * n for i, n in enumerate(record["acceptance_histogram"])) == accepted
    assert record["draft_acceptance_rate"] == accepted / record["num_draft_tokens"]
    assert reply.usage.completion_tokens == 24 <= accepted + record["target_steps"]
    off = create(**options, extra_body=PLAIN).metrics["speculative_decoding"]
    assert (off["drafter"], off["num_draft_tokens"], off["target_steps"]) == ("none", 0, 24)
    assert "no drafter" in off["reason"]


def test_a_prediction_is_counted(tiny_server: Running) -> None:
    create = tiny_server.client().chat.completions.create
    options: dict[str, Any] = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "1 2 3"}],
        "max_tokens": 30,
        "temperature": 1.0,
        "seed": 5,
    }
    answer = create(**options)
    text = answer.choices[0].message.content
    again = create(**options, prediction={"type": "content", "content": text})
    assert again.choices[0].message.content == text
    details = again.usage.completion_tokens_details
    assert details.accepted_prediction_tokens > 0
    other = create(**options, prediction={"type": "content", "content": "the dog " * 9})
    assert other.choices[0].message.content == text
    details = answer.usage.completion_tokens_details
    assert (details.accepted_prediction_tokens, details.rejected_prediction_tokens) == (0, 0)


def test_models(tiny_server: Running) -> None:
    client = tiny_server.client()
    [model] = client.models.list().data
    assert model.id == "tiny"
    assert client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_usage_with_every_event(tiny_server: Running) -> None:
    body = {"prompt": FOX, "max_tokens": 9, "ignore_eos": True, "stream": True}
    body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    pieces = events(tiny_server.post("/v1/completions", body).text)
    counts = [piece["usage"]["completion_tokens"] for piece in pieces]
    assert counts == sorted(counts)
    assert counts[-1] == 9


def test_without_stream_options_no_usage_is_sent(tiny_server: Running) -> None:
    pieces = events(tiny_server.post("/v1/completions", {"prompt": "a", "stream": True}).text)
    assert all("usage" not in piece and piece["choices"] for piece in pieces)


def test_texts_of_every_script_arrive_whole(tiny_server: Running) -> None:
    """Characters that are spread over tokens come when they are complete."""
    text = "grüße, 世界 👋 naïve"
    tokenizer = tiny_server.service.llm.tokenizer
    ids = tokenizer.encode(text)
    body = {
        "messages": MESSAGES,
        "prediction": {"type": "content", "content": text},
        "guided_regex": "grüße, 世界 👋 naïve",
        "max_tokens": 2 * len(ids) + 8,
        "stream": True,
        "logprobs": True,
    }
    response = tiny_server.post("/v1/chat/completions", body)
    [choice] = folded(events(response.text))
    assert choice["text"] == text
    shown = bytes(b for entry in choice["logprobs"]["content"] for b in entry["bytes"])
    assert shown.decode() == text


@pytest.mark.parametrize(
    ("form", "fits"),
    [
        ({"response_format": {"type": "json_object"}}, lambda text: isinstance(text, dict)),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {
                        "name": "answer",
                        "strict": True,
                        "schema": {
                            "type": "object",
                            "properties": {"ok": {"type": "boolean"}},
                            "required": ["ok"],
                            "additionalProperties": False,
                        },
                    },
                }
            },
            lambda text: list(text) == ["ok"] and isinstance(text["ok"], bool),
        ),
        ({"extra_body": {"guided_regex": "[1-9][0-9]{2}"}}, lambda text: 100 <= text <= 999),
        (
            {"extra_body": {"guided_grammar": 'start: "[" ("1" | "2") "]"'}},
            lambda text: len(text) == 1,
        ),
    ],
    ids=["object", "schema", "regex", "grammar"],
)
def test_the_form_of_an_answer(tiny_server: Running, form: dict[str, Any], fits: Any) -> None:
    create = tiny_server.client().chat.completions.create
    # Quotes and braces close what the random model would leave open.
    tokenizer = tiny_server.service.llm.tokenizer
    closing = {str(tokenizer.encode(text)[0]): 40 for text in ('"', "}", "]")}
    options: dict[str, Any] = {
        "model": "tiny",
        "messages": MESSAGES,
        "max_tokens": 200,
        "seed": 1,
        "logit_bias": closing,
        **form,
    }
    whole, choices = whole_and_streamed(create, options)
    assert whole.choices[0].finish_reason == "stop"
    assert fits(json.loads(choices[0]["text"]))
    assert whole_and_streamed(create, plain(options))[1] == choices


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Lindholm", "Oslo"]}, "hours": {"type": "integer"}},
            "required": ["city", "hours"],
            "additionalProperties": False,
        },
    },
}
TIME = {"type": "function", "function": {"name": "get_time"}}
NAMED = {"type": "function", "function": {"name": "get_weather"}}


@pytest.mark.parametrize("choice", ["required", NAMED], ids=["required", "named"])
def test_a_call_that_must_be_made(tiny_server: Running, choice: Any) -> None:
    create = tiny_server.client().chat.completions.create
    encode = tiny_server.service.llm.tokenizer.encode
    closing = {str(encode(text)[0]): 40 for text in ('"', "}", "]", "<")}
    options: dict[str, Any] = {
        "model": "tiny",
        "messages": MESSAGES,
        "max_tokens": 300,
        "seed": 4,
        "logprobs": True,
        "logit_bias": closing,
        "tools": [WEATHER, TIME],
        "tool_choice": choice,
        "parallel_tool_calls": False,
    }
    whole, [streamed] = whole_and_streamed(create, options)
    assert whole.choices[0].finish_reason == "tool_calls"
    [[name, arguments]] = streamed["calls"]
    if name == "get_weather":
        given = json.loads(arguments)
        assert given["city"] in ("Lindholm", "Oslo")
        assert isinstance(given["hours"], int)
    assert name == "get_weather" or choice == "required"
    assert whole.choices[0].message.content is None
    assert whole_and_streamed(create, plain(options))[1] == [streamed]


def test_the_result_of_a_call_is_understood(tiny_server: Running) -> None:
    call = {
        "id": "call_1",
        "type": "function",
        "function": {"name": "get_time", "arguments": "{}"},
    }
    conversation = [
        *MESSAGES,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "noon"},
    ]
    options = {"model": "tiny", "messages": conversation, "tools": [TIME], "max_tokens": 8}
    whole, _ = whole_and_streamed(
        tiny_server.client().chat.completions.create, {**options, "seed": 1}
    )
    assert whole.usage.prompt_tokens > 20


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(-(2**63), 2**64 - 1),
    stop=st.lists(st.text("abcdefghijklmnop qrst\n", min_size=1, max_size=2), max_size=3),
    max_tokens=st.integers(1, 24),
    n=st.integers(1, 3),
    loop=st.booleans(),
    chat=st.booleans(),
)
def test_streamed_and_whole_are_equal(
    tiny_server: Running,
    seed: int,
    stop: list[str],
    max_tokens: int,
    n: int,
    loop: bool,
    chat: bool,
) -> None:
    options: dict[str, Any] = {"model": "tiny", "seed": seed, "stop": stop, "n": n}
    options |= {"max_tokens": max_tokens, "logprobs": True if chat else 2}
    if loop:
        options["logit_bias"] = {"5": 100, "6": 99, "70": 99}
    client = tiny_server.client()
    create = client.chat.completions.create if chat else client.completions.create
    options |= {"messages": MESSAGES} if chat else {"prompt": FOX}
    _, choices = whole_and_streamed(create, options)
    assert whole_and_streamed(create, plain(options))[1] == choices
    for choice in choices:
        assert not any(text in choice["text"] for text in stop)
        content = choice["logprobs"]["content" if chat else "token_logprobs"]
        assert all(math.isfinite(e["logprob"] if chat else e) for e in content)
