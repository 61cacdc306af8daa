"""Nothing that a client sends brings the server down, or leaves anything behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from serving import ENOUGH, Running

CHAT: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "the quick"}],
    "max_tokens": 3,
}
COMPLETION: dict[str, Any] = {"model": "tiny", "prompt": "the quick", "max_tokens": 3}
FIELDS = [
    "messages model n seed temperature top_p stop max_tokens max_completion_tokens min_tokens",
    "presence_penalty frequency_penalty logit_bias stream stream_options top_k min_p metadata",
    "repetition_penalty ignore_eos stop_token_ids skip_special_tokens prediction speculative",
    "response_format guided_regex guided_grammar user logprobs top_logprobs tools tool_choice",
    "prompt echo best_of suffix store parallel_tool_calls modalities functions",
]
NAMES = " ".join(FIELDS).split()
ODD_NUMBERS = [0, -1, 1, 2, 2**31, 2**63, 2**64, -(2**70), 1e308, 5e-324, float("nan"), 1e999]
values = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from(ODD_NUMBERS)
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["\ud800", "\x00", "<|im_end|>", "é" * 300, "{{", "content", "text"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


def send(server: Running, path: str, content: bytes) -> httpx.Response:
    headers = {"Content-Type": "application/json", "X-Outpace-Timeout": "20"}
    return httpx.post(server.url + path, content=content, headers=headers, timeout=ENOUGH)


def is_answered(response: httpx.Response) -> None:
    assert response.status_code < 500, response.text
    if response.headers["content-type"].startswith("text/event-stream"):
        assert response.text.endswith("data: [DONE]\n\n")
    elif response.status_code >= 400:
        assert response.json()["error"]["message"]


@pytest.fixture
def clean(tiny_server: Running) -> Iterator[Running]:
    """The server, which must come to rest with clean books."""
    yield tiny_server
    tiny_server.wait_until_idle()
    assert tiny_server.get("/health").json() == {"status": "ok"}


CHECK = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@CHECK
@given(
    change=st.dictionaries(st.sampled_from(NAMES), values, min_size=1, max_size=3),
    chat=st.booleans(),
)
def test_requests_with_odd_values(clean: Running, change: dict[str, Any], chat: bool) -> None:
    body, path = (CHAT, "/v1/chat/completions") if chat else (COMPLETION, "/v1/completions")
    is_answered(send(clean, path, json.dumps({**body, **change}).encode()))


@CHECK
@given(body=st.binary(max_size=60) | values.map(lambda value: json.dumps(value).encode()))
def test_bodies_of_any_kind(clean: Running, body: bytes) -> None:
    is_answered(send(clean, "/v1/chat/completions", body))


@CHECK
@given(data=st.data())
def test_bodies_that_are_cut_or_broken(clean: Running, data: st.DataObject) -> None:
    whole = bytearray(json.dumps({**CHAT, "stop": ["a"], "logit_bias": {"5": 2}}).encode())
    place = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        del whole[place:]
    else:
        whole[place] = data.draw(st.integers(0, 255))
    is_answered(send(clean, "/v1/chat/completions", bytes(whole)))


def test_what_the_document_allows_is_answered(clean: Running) -> None:
    """Requests made from the OpenAPI document, valid and not: no answer of 500 or above."""
    schema = schemathesis.openapi.from_url(f"{clean.url}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations()]
    assert {operation.path for operation in operations} >= {
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/models",
        "/health",
        "/metrics",
    }
    for operation in operations:
        modes = [schemathesis.GenerationMode.POSITIVE]
        if operation.body:  # without one there is nothing that could be wrong
            modes.append(schemathesis.GenerationMode.NEGATIVE)
        for mode in modes:
            _try(operation.as_strategy(generation_mode=mode))


def _try(cases: st.SearchStrategy[Any]) -> None:
    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=cases)
    def holds(case: Any) -> None:
        case.headers = {**(case.headers or {}), "X-Outpace-Timeout": "5"}
        response = case.call(timeout=ENOUGH)
        assert response.status_code < 500, response.text

    holds()
