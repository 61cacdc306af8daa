"""Servers around tiny models, in threads of the test's own process."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import uvicorn
from openai import OpenAI

from outpace.llm import LLM
from outpace.server.app import Service, make_app
from outpace.server.keys import ApiKeys
from outpace.server.settings import ServerSettings

ENOUGH = 60.0  # seconds after which something hangs


@dataclass
class Running:
    """A server that answers at ``url``."""

    url: str
    service: Service

    def client(self, key: str = "none") -> OpenAI:
        return OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=ENOUGH)

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        return httpx.post(f"{self.url}{path}", json=body, timeout=ENOUGH, **options)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", timeout=ENOUGH, **options)

    def engine(self) -> dict[str, Any]:
        """The books, between two steps."""
        value: dict[str, Any] = self.get("/debug/engine").json()
        return value

    def wait_until_idle(self) -> dict[str, Any]:
        """The books when nothing is running; they must be clean."""
        deadline = time.monotonic() + ENOUGH
        while time.monotonic() < deadline:
            books = self.engine()
            if not (books["running"] or books["waiting"] or books["unfinished"]):
                assert books["integrity"] == "ok"
                assert books["blocks_free"] == books["blocks"]
                return books
            time.sleep(0.01)
        raise AssertionError(f"the server does not come to rest: {books}")


def until(condition: Callable[[], bool]) -> None:
    """Wait for what must come true."""
    deadline = time.monotonic() + ENOUGH
    while not condition():
        assert time.monotonic() < deadline, "it does not come true"
        time.sleep(0.002)


@contextmanager
def paused(server: Running) -> Iterator[None]:
    """Keep the engine from making steps."""
    go = threading.Event()
    pause = server.service.desk.steps.ask(lambda engine: go.wait(ENOUGH))
    try:
        yield
    finally:
        go.set()
        pause.result(ENOUGH)


@contextmanager
def serving(
    llm: LLM, keys: dict[str, str] | None = None, admin_key: str = "", **settings: Any
) -> Iterator[Running]:
    """Serve a model; nobody else may use it meanwhile."""
    chosen = ServerSettings(**({"model_name": "tiny", "inspection": True} | settings))
    service = Service(llm, chosen, ApiKeys(keys), admin_key)
    config = uvicorn.Config(
        make_app(service), port=0, log_config=None, access_log=False, lifespan="on"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + ENOUGH
        while not server.started and thread.is_alive():
            assert time.monotonic() < deadline, "the server does not start"
            time.sleep(0.005)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Running(f"http://127.0.0.1:{port}", service)
    finally:
        server.should_exit = True
        thread.join(ENOUGH)
        assert not thread.is_alive(), "the server does not end"


def events(text: str) -> list[dict[str, Any]]:
    """The events of a stream, which must end as streams do."""
    lines = [line for line in text.split("\n\n") if line]
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def folded(pieces: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The choices that a client puts together from the events of a stream."""
    choices: dict[int, dict[str, Any]] = {}
    for event in pieces:
        for piece in event["choices"]:
            whole = choices.setdefault(
                piece["index"],
                {"text": "", "logprobs": None, "finish_reason": None, "role": None, "calls": []},
            )
            assert whole["finish_reason"] is None, "a piece after the end"
            delta = piece.get("delta", {})
            whole["text"] += piece.get("text", "") + (delta.get("content") or "")
            for call in delta.get("tool_calls") or ():
                function = call["function"]
                if call["index"] == len(whole["calls"]):
                    assert call["id"]
                    assert call["type"] == "function"
                    whole["calls"].append([function["name"], ""])
                whole["calls"][call["index"]][1] += function["arguments"]
            whole["role"] = delta.get("role", whole["role"])
            if piece["logprobs"] is not None:
                known = whole["logprobs"] = whole["logprobs"] or {}
                for name, values in piece["logprobs"].items():
                    known[name] = None if values is None else (known.get(name) or []) + values
            whole["finish_reason"] = piece["finish_reason"]
            whole["stop_reason"] = piece.get("stop_reason")
    return [choices[index] for index in sorted(choices)]
