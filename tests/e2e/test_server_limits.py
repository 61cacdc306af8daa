"""What a server refuses, whom it lets in, and that nothing is left behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from outpace import LLM

from serving import ENOUGH, Running, paused, serving, until

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "the quick brown fox"}]
TOOL = {"type": "function", "function": {"name": "get_time"}}
LONG = {"prompt": "the dog", "max_tokens": 480, "ignore_eos": True}
SHORT = {"prompt": "the dog", "max_tokens": 5}


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    """The error of an answer in OpenAI's shape."""
    assert response.status_code == status, response.text
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    return error


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0]"),
        ({"messages": [{"role": "wizard", "content": "a"}]}, "messages[0].role"),
        ({"messages": MESSAGES, "temperature": "0.5"}, "temperature"),
        ({"messages": MESSAGES, "temperature": -1}, "temperature"),
        ({"messages": MESSAGES, "top_p": 0}, "top_p"),
        ({"messages": MESSAGES, "max_tokens": 0}, "max_tokens"),
        ({"messages": MESSAGES, "max_tokens": 5, "max_completion_tokens": 6}, "max_tokens"),
        ({"messages": MESSAGES, "n": 99}, "n"),
        ({"messages": MESSAGES, "seed": 2**70}, "seed"),
        ({"messages": MESSAGES, "logit_bias": {"a": 1}}, "logit_bias"),
        ({"messages": MESSAGES, "logit_bias": {"99999": 1}}, "logit_bias (token id)"),
        ({"messages": MESSAGES, "stop": ["a"] * 17}, "stop"),
        ({"messages": MESSAGES, "stop": "a" * 1001}, "stop"),
        ({"messages": MESSAGES, "top_logprobs": 2}, "top_logprobs"),
        ({"messages": MESSAGES, "logprobs": True, "top_logprobs": 21}, "logprobs"),
        ({"messages": MESSAGES, "speculative": {"drafter": "medusa"}}, "drafter"),
        ({"messages": MESSAGES, "speculative": {"k": 3}}, "speculative.k"),
        ({"messages": MESSAGES, "stream_options": {"include_usage": True}}, "stream_options"),
        ({"messages": MESSAGES, "response_format": {"type": "json_schema"}}, "response_format"),
        ({"messages": MESSAGES, "guided_regex": "("}, "guided_regex"),
        ({"messages": MESSAGES, "guided_regex": "a", "guided_grammar": "b"}, "guided_regex"),
        ({"messages": MESSAGES, "guided_regex": "a" * 70_000}, "guided_regex"),
        ({"messages": MESSAGES, "tool_choice": "required"}, "tool_choice"),
        ({"messages": MESSAGES, "tools": [{"type": "retrieval"}]}, "tools[0].type"),
        ({"messages": MESSAGES, "tools": [TOOL, TOOL]}, "tools[1].function.name"),
        ({"messages": MESSAGES, "tools": [TOOL], "parallel_tool_calls": False}, "parallel"),
        ({"messages": MESSAGES, "tools": [TOOL], "guided_regex": "a"}, "response_format"),
        ({"messages": MESSAGES, "store": True}, "store"),
        ({"messages": MESSAGES, "reasoning_effort": "high"}, "reasoning_effort"),
        ({"messages": MESSAGES, "metadata": {"request_type": "a b"}}, "request_type"),
        ({"messages": [{"role": "user", "content": "a \ud800 b"}]}, "messages[0].content"),
        ({"messages": MESSAGES, "user": "\ud800"}, "user"),
        (
            {
                "messages": MESSAGES,
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"schema": {"const": "\ud800"}},
                },
            },
            "response_format.json_schema",
        ),
        ({"messages": [{"role": "user", "content": "fox " * 3000}]}, "messages"),
    ],
)
def test_a_chat_that_cannot_be_honoured(
    tiny_server: Running, change: dict[str, Any], param: str
) -> None:
    body = json.dumps(change).encode()
    headers = {"Content-Type": "application/json"}
    response = httpx.post(tiny_server.url + CHAT, content=body, headers=headers)
    error = error_of(response, 400)
    assert error["param"].startswith(param)
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": ["a", 1]}, "prompt"),
        ({"prompt": [400]}, "prompt (token id)"),
        ({"prompt": [-1]}, "prompt (token id)"),
        ({"prompt": ["a"] * 33}, "prompt"),
        ({"prompt": ["a"] * 9, "n": 2}, "n"),
        ({"prompt": "a", "best_of": 3}, "best_of"),
        ({"prompt": "a", "suffix": "b"}, "suffix"),
        ({"prompt": "a", "echo": True, "logprobs": 1}, "echo"),
        ({"prompt": "a", "messages": MESSAGES}, "messages"),
    ],
)
def test_a_completion_that_cannot_be_honoured(
    tiny_server: Running, change: dict[str, Any], param: str
) -> None:
    error = error_of(tiny_server.post("/v1/completions", change), 400)
    assert error["param"].startswith(param)


def test_too_long_a_prompt_has_a_code(tiny_server: Running) -> None:
    error = error_of(tiny_server.post("/v1/completions", {"prompt": "fox " * 3000}), 400)
    assert error["code"] == "context_length_exceeded"


def test_other_models_and_paths(tiny_server: Running) -> None:
    error = error_of(tiny_server.post(CHAT, {"model": "gpt-9", "messages": MESSAGES}), 404)
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert error_of(tiny_server.get("/v1/embeddings"), 404)["code"] == "not_found"
    assert error_of(tiny_server.get(CHAT), 405)["code"] == "method_not_allowed"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"\xff\xfe",
        b'{"messages": [{"role": "user", "content": "a"}], "temperature": NaN}',
        b'{"messages": [{"role": "user", "content": "a"}], "temperature": 1e999}',
        b'{"messages": [{"role": "user", "content": "a"}], "seed": ' + b"9" * 5000 + b"}",
        b'{"a":' * 5000,
        b"[" * 100_000,
        b'{"messages": [{"role": "user", "content": "a", "content": 5}]}',
        b'{"messages": [{"role": "user", "content": "a"}], "response_format": {"type": '
        b'"json_schema", "json_schema": {"schema": ' + b'{"a":' * 500 + b"1" + b"}" * 500 + b"}}}",
    ],
)
def test_bodies_that_are_no_request(tiny_server: Running, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    error = error_of(httpx.post(tiny_server.url + CHAT, content=body, headers=headers), 400)
    assert error["type"] == "invalid_request_error"
    assert error["param"]
    if b"json_schema" not in body:
        assert error["code"] == "invalid_body"
        assert "defect" not in error["message"]


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        ("\ud800", "prompt"),
        ("a \udfff b", "prompt"),
        (["a", "\ud800"], "prompt[1]"),
        (["a", 1], "prompt[1]"),
        (5, "prompt"),
    ],
)
def test_a_prompt_is_named_as_the_client_wrote_it(
    tiny_server: Running, prompt: object, param: str
) -> None:
    body = json.dumps({"prompt": prompt}).encode()
    headers = {"Content-Type": "application/json"}
    response = httpx.post(tiny_server.url + "/v1/completions", content=body, headers=headers)
    error = error_of(response, 400)
    assert (error["param"], error["code"]) == (param, "invalid_body")
    assert error["message"].startswith(f"{param}: ")


def test_half_a_character_in_a_prompt_is_said(tiny_server: Running) -> None:
    body = json.dumps({"prompt": "\ud800"}).encode()
    headers = {"Content-Type": "application/json"}
    response = httpx.post(tiny_server.url + "/v1/completions", content=body, headers=headers)
    assert "half a character" in error_of(response, 400)["message"]


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_load_balancers_may_ask_for_the_head_alone(tiny_server: Running, path: str) -> None:
    response = httpx.head(tiny_server.url + path, timeout=ENOUGH)
    assert (response.status_code, response.content) == (200, b"")
    assert response.headers["Content-Type"] == "application/json"


@pytest.mark.parametrize("kind", ["application/x-www-form-urlencoded", "text/plain", None])
def test_a_body_that_does_not_say_that_it_is_json(tiny_server: Running, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    response = httpx.post(tiny_server.url + CHAT, content=b'{"messages": []}', headers=headers)
    error = error_of(response, 400)
    assert error["message"] == ("body: was not read as JSON; send Content-Type: application/json")


def test_large_bodies(tiny_folder: Path) -> None:
    llm = LLM(str(tiny_folder), num_speculative_tokens=2, dtype="float32")
    with serving(llm, max_body_bytes=1000) as server:
        body = json.dumps({"prompt": "a", "user": "x" * 2000}).encode()
        headers = {"Content-Type": "application/json"}
        url = f"{server.url}/v1/completions"
        error_of(httpx.post(url, content=body, headers=headers), 413)
        # And without a stated length.
        error_of(httpx.post(url, content=iter([body[:900], body[900:]]), headers=headers), 413)
        assert server.post("/v1/completions", {"prompt": "a"}).status_code == 200


@pytest.fixture(scope="module")
def small_server(tiny_folder: Path) -> Iterator[Running]:
    """One seat, two places to wait, and keys."""
    llm = LLM(str(tiny_folder), num_speculative_tokens=2, dtype="float32", max_num_seqs=1)
    keys = {"first-secret": "first", "second-secret": "second"}
    options: dict[str, Any] = {"max_queue": 2, "max_requests_per_key": 2, "inspection": False}
    with serving(llm, keys, **options) as server:
        yield server


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_keys(small_server: Running) -> None:
    for headers in ({}, bearer("wrong-secret"), {"Authorization": "Basic first-secret"}):
        for response in (
            small_server.post(CHAT, {"messages": MESSAGES}, headers=headers),
            small_server.get("/v1/models", headers=headers),
            small_server.get("/metrics", headers=headers),
            small_server.post(CHAT, "x" * 10**6, headers=headers),
        ):
            error = error_of(response, 401)
            assert error["type"] == "authentication_error"
    for path in ("/health", "/ready", "/version", "/"):
        assert small_server.get(path).status_code == 200
    client = small_server.client("second-secret")
    assert client.chat.completions.create(model="tiny", messages=MESSAGES, max_tokens=2).choices
    with pytest.raises(openai.AuthenticationError):
        small_server.client("second-secre").models.list()
    assert error_of(small_server.get("/debug/engine", headers=bearer("first-secret")), 404)


def test_a_full_queue_and_a_busy_key(small_server: Running) -> None:
    server, desk = small_server, small_server.service.desk

    def ask(key: str, n: int = 1) -> httpx.Response:
        return server.post("/v1/completions", {**SHORT, "n": n}, headers=bearer(key))

    with ThreadPoolExecutor(2) as pool:
        with paused(server):
            taken = [pool.submit(ask, "first-secret") for _ in range(2)]
            until(lambda: desk.unfinished == 2)
            busy = ask("first-secret")
            assert error_of(busy, 429)["code"] == "too_many_requests"
            assert int(busy.headers["Retry-After"]) >= 1
            full = ask("second-secret", n=2)
            assert error_of(full, 429)["code"] == "queue_full"
            assert server.get("/ready").status_code == 200
        assert [one.result(ENOUGH).status_code for one in taken] == [200, 200]
    until(lambda: desk.unfinished == 0)
    assert ask("first-secret", n=3).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_what_it_held(tiny_server: Running, stream: bool) -> None:
    before = tiny_server.wait_until_idle()
    failed = 'request_failure_total{reason="abort"}'
    url = f"{tiny_server.url}/v1/completions"
    body = {**LONG, "stream": stream, "n": 3, "temperature": 1.3}
    count = sample(tiny_server, failed)
    with (
        paused(tiny_server),
        pytest.raises(httpx.ReadTimeout),
        httpx.stream("POST", url, json=body, timeout=0.3) as response,
    ):
        for _ in response.iter_lines():
            pass
    assert tiny_server.wait_until_idle()["blocks_free"] == before["blocks_free"]
    assert sample(tiny_server, failed) == count + 1


def sample(server: Running, name: str) -> float:
    """A figure of a scrape, 0 if it is not there yet."""
    for line in server.get("/metrics").text.splitlines():
        if line.startswith(f"outpace:{name} "):
            return float(line.split()[-1])
    return 0.0


def test_a_deadline_ends_a_request(tiny_server: Running) -> None:
    headers = {"X-Outpace-Timeout": "0.05"}
    with paused(tiny_server):
        response = tiny_server.post("/v1/completions", {**LONG, "n": 4}, headers=headers)
    error = error_of(response, 408)
    assert (error["code"], error["type"]) == ("deadline_exceeded", "timeout_error")
    assert response.headers["X-Should-Retry"] == "false"
    body = {**LONG, "n": 4, "stream": True}
    with paused(tiny_server):
        text = tiny_server.post("/v1/completions", body, headers=headers).text
    last = text.strip().split("\n\n")[-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "deadline_exceeded"
    client = tiny_server.client()
    with paused(tiny_server), pytest.raises(openai.APIError, match="took longer"):
        list(client.completions.create(model="tiny", **body_of(body), extra_headers=headers))
    tiny_server.wait_until_idle()
    for wrong in ("soon", "nan", "-1", "1e9"):
        response = tiny_server.post("/v1/completions", LONG, headers={"X-Outpace-Timeout": wrong})
        error_of(response, 400)


def body_of(body: dict[str, Any]) -> dict[str, Any]:
    rest = dict(body)
    return rest | {"extra_body": {"ignore_eos": rest.pop("ignore_eos")}}


def test_draining(tiny_folder: Path) -> None:
    llm = LLM(str(tiny_folder), num_speculative_tokens=2, dtype="float32")
    with serving(llm) as server, ThreadPoolExecutor(1) as pool:
        desk = server.service.desk
        with paused(server):
            running = pool.submit(server.post, "/v1/completions", {**SHORT, "n": 2})
            until(lambda: desk.unfinished == 1)
            desk.draining = True
            refused = server.post("/v1/completions", SHORT)
            assert error_of(refused, 503)["code"] == "draining"
            assert "Retry-After" in refused.headers
            assert server.get("/ready").status_code == 503
            assert server.get("/health").status_code == 200
        assert running.result(ENOUGH).status_code == 200


def test_a_failed_engine_is_seen(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = LLM(str(tiny_folder), num_speculative_tokens=2, dtype="float32")
    with serving(llm) as server:
        assert server.post("/v1/completions", SHORT).status_code == 200

        def broken() -> None:
            raise RuntimeError("the device is gone")

        monkeypatch.setattr(llm.engine, "step", broken)
        error = error_of(server.post("/v1/completions", SHORT), 503)
        assert "the device is gone" in error["message"]
        health = server.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "failed")
        error_of(server.post("/v1/completions", SHORT), 503)
        assert server.get("/ready").status_code == 503


def test_a_failure_in_one_request_is_its_own(
    tiny_server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    admission = tiny_server.service.llm.engine.admission
    usual = admission._open_text

    def opened(params: Any) -> Any:
        if params.top_k != 123:
            return usual(params)
        raise ZeroDivisionError("secret text of the request")

    monkeypatch.setattr(admission, "_open_text", opened)
    error = error_of(tiny_server.post("/v1/completions", {"prompt": "a", "top_k": 123}), 500)
    assert "secret" not in error["message"]
    assert tiny_server.post("/v1/completions", {"prompt": "a"}).status_code == 200
    tiny_server.wait_until_idle()


@pytest.mark.parametrize("by", ["key", "user"])
def test_tenants_do_not_share_what_was_cached(tiny_folder: Path, by: str) -> None:
    llm = LLM(str(tiny_folder), num_speculative_tokens=2, dtype="float32")
    prompt = "the quick brown fox jumps over the lazy dog and then the dog sleeps in the sun " * 2

    with serving(llm, {"key-one-1": "one", "key-two-2": "two"}, tenant_by=by) as server:

        def cached(key: str, user: str) -> int:
            body = {"prompt": prompt, "max_tokens": 2, "user": user, "temperature": 0}
            response = server.post("/v1/completions", body, headers=bearer(key))
            usage = response.json()["usage"]
            count: int = usage["prompt_tokens_details"]["cached_tokens"]
            return count

        assert cached("key-one-1", "anna") == 0
        assert cached("key-one-1", "anna") > 0
        assert cached("key-two-2", "anna") == 0
        assert (cached("key-one-1", "bert") == 0) == (by == "user")
