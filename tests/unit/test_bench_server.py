"""Against a server that says what it was told to say, over a real socket."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from outpace.bench.arrival import Asked
from outpace.bench.policy import Policy
from outpace.bench.server import API_KEY, Server, ServerError, ServerTarget
from outpace.bench.workload import Entry
from outpace.cli.bench_run import named_servers
from outpace.config import NoDrafter
from outpace.errors import InvalidValueError
from outpace.request import SamplingParams

ENTRY = Entry("edit-1", "edit", (("user", "Change this."),), prediction="this", max_tokens=9)
ASKED = [Asked(ENTRY)]
OFF = Policy("off", NoDrafter(), 0)


def piece(text: str | None, finish: str | None = None, model: str = "m") -> dict[str, Any]:
    delta = {} if text is None else {"content": text}
    return {"model": model, "choices": [{"delta": delta, "finish_reason": finish}]}


USUAL = [
    {"model": "m", "choices": [{"delta": {"role": "assistant"}, "finish_reason": None}]},
    piece("Hel"),
    piece("lo"),
    piece(None, "stop"),
    {
        "model": "m",
        "choices": [],
        "usage": {"prompt_tokens": 4, "completion_tokens": 5},
        "metrics": {
            "speculative_decoding": {
                "num_spec_steps": 2,
                "num_draft_tokens": 6,
                "num_accepted_draft_tokens": 2,
            }
        },
    },
]


@contextmanager
def serving(
    events: list[Any] = USUAL,
    *,
    models: Any = None,
    status: int = 200,
    done: bool = True,
    silent: bool = False,
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that streams these events; yields its address and what it was asked."""
    seen: list[dict[str, Any]] = []
    quiet = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *arguments: Any) -> None:
            pass

        def do_GET(self) -> None:
            listed = {"data": [{"id": "m"}]} if models is None else models
            self.answer(200, json.dumps(listed).encode())

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            body = json.loads(self.rfile.read(length))
            seen.append(body | {"authorization": self.headers["Authorization"]})
            if silent:
                quiet.wait()
                return
            lines = [f"data: {e if isinstance(e, str) else json.dumps(e)}\n\n" for e in events]
            text = "".join(lines) + ("data: [DONE]\n\n" if done else "")
            text = text if status == 200 else '{"error": {"message": "no seeds here"}}'
            self.answer(status, text.encode())

        def answer(self, code: int, data: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        quiet.set()
        server.shutdown()
        thread.join()
        server.server_close()


def target(url: str, model: str | None = None, timeout: float = 30.0) -> ServerTarget:
    params = SamplingParams(max_tokens=20, seed=3)
    return ServerTarget({"off": Server.at(url, timeout)}, model, params)


def failure(url: str, **options: Any) -> str:
    with pytest.raises(ServerError) as caught:
        target(url, **options).run(ASKED, OFF)
    return str(caught.value)


def test_an_answer_is_read_with_all_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(API_KEY, "secret")
    with serving() as (url, seen):
        [answer] = target(url).run(ASKED, OFF)
    assert answer.content == "Hello"
    assert (answer.prompt_tokens, answer.tokens, answer.finish_reason) == (4, 5, "stop")
    assert 0 < answer.first_token_seconds <= answer.total_seconds
    assert answer.speculation is not None
    # Five tokens of which two were accepted are three target steps.
    assert answer.speculation.target_steps == 3
    assert (answer.speculation.drafted, answer.speculation.accepted) == (6, 2)
    [body] = seen
    assert body["messages"] == [{"role": "user", "content": "Change this."}]
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    assert (body["max_tokens"], body["seed"], body["temperature"]) == (9, 3, 0.0)
    assert body["prediction"] == {"type": "content", "content": "this"}
    assert body["authorization"] == "Bearer secret"


def test_several_at_once_come_back_in_order() -> None:
    with serving() as (url, seen):
        answers = target(url).run([Asked(ENTRY, 0.02), Asked(ENTRY), Asked(ENTRY)], OFF)
    assert [answer.content for answer in answers] == ["Hello"] * 3
    assert len(seen) == 3


def test_a_server_that_tells_little() -> None:
    with serving([piece("x")]) as (url, _):
        [answer] = target(url).run(ASKED, OFF)
    assert (answer.content, answer.tokens, answer.speculation) == ("x", None, None)


def test_a_server_that_is_down() -> None:
    with serving() as (url, _):
        pass
    assert "cannot be reached" in failure(url)


def test_a_server_that_is_slow() -> None:
    with serving(silent=True) as (url, _):
        assert "no answer within 0.2 seconds; give a longer --timeout" in failure(url, timeout=0.2)


def test_a_server_that_refuses_breaks_off_or_talks_nonsense() -> None:
    with serving(status=400) as (url, _):
        assert failure(url).endswith("answered 400: no seeds here")
    with serving(done=False) as (url, _):
        assert failure(url).endswith("the stream broke off before its end")
    with serving(["{"]) as (url, _):
        assert failure(url).endswith("sent an event that is not JSON")
    with serving(["3"]) as (url, _):
        assert failure(url).endswith("sent an event that is not an object")
    with serving([{"error": {"message": "out of memory"}}]) as (url, _):
        assert failure(url).endswith("out of memory")


def test_a_server_that_answers_with_another_model() -> None:
    with serving([piece("x", model="n")]) as (url, _):
        assert "answered with the model 'n' instead of 'm'" in failure(url)


def test_a_server_without_the_model_or_any() -> None:
    with serving() as (url, _):
        assert "does not serve 'n' but m" in failure(url, model="n")
    with serving(models={"data": []}) as (url, _):
        assert "serves no model" in failure(url)
    with serving(models=[3]) as (url, _):
        assert "its list of models cannot be read" in failure(url)


def test_servers_of_different_models_are_refused() -> None:
    other = {"data": [{"id": "n"}]}
    with serving() as (one, _), serving(models=other) as (two, _):
        servers = {"off": Server.at(one, 5.0), "fast": Server.at(two, 5.0)}
        with pytest.raises(ServerError, match="does not serve 'm' but n"):
            ServerTarget(servers, None, SamplingParams())


@pytest.mark.parametrize(
    "url", ["host:80", "ftp://host", "http://", "http://h:x", "http://a b", "http://h?q=1"]
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidValueError, match="write http://HOST:PORT"):
        Server.at(url, 1.0)


def test_servers_have_names() -> None:
    found = named_servers(["off=http://a:1", "new-1=http://b/v1/"], 5.0)
    assert {name: server.url for name, server in found.items()} == {
        "off": "http://a:1/v1",
        "new-1": "http://b/v1",
    }
    assert list(named_servers(["http://a"], 5.0)) == ["server"]
    with pytest.raises(InvalidValueError, match="name each server once"):
        named_servers(["http://a", "http://b"], 5.0)
