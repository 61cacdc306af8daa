"""Running requests against servers that speak OpenAI's protocol, over streams."""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

from outpace.bench.arrival import Asked
from outpace.bench.policy import Policy
from outpace.bench.record import Answer, SpeculationRecord
from outpace.bench.workload import Entry
from outpace.config.checks import server_root
from outpace.errors import OutpaceError
from outpace.request import SamplingParams

# The variable whose value is sent as the bearer token, if it is set.
API_KEY = "OUTPACE_BENCH_API_KEY"
_LONGEST_REASON = 300


class ServerError(OutpaceError):
    """A server cannot be reached, is too slow, refuses, or answers what it should not."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server's address, and how long to wait for its next word."""

    url: str
    timeout: float

    @classmethod
    def at(cls, url: str, timeout: float) -> Server:
        """Check an address; ``/v1`` may be left out.

        Raises:
            InvalidValueError: it is not one of HTTP.
        """
        return cls(f"{server_root('url', url)}/v1", timeout)

    def models(self) -> list[str]:
        """Return the names of the models that it serves."""
        with (
            closing(self._connect()) as connection,
            self._send(connection, "GET", "/models", None) as response,
        ):
            body = self._guarded(response.read)
        try:
            names = [str(model["id"]) for model in json.loads(body)["data"]]
        except (ValueError, KeyError, TypeError) as error:
            raise ServerError(f"{self.url}: its list of models cannot be read") from error
        if not names:
            raise ServerError(f"{self.url}: serves no model")
        return names

    def events(self, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Ask for a chat completion and yield the events of its stream."""
        with (
            closing(self._connect()) as connection,
            self._send(connection, "POST", "/chat/completions", body) as response,
        ):
            while True:
                line = self._guarded(response.readline)
                if not line:
                    raise ServerError(f"{self.url}: the stream broke off before its end")
                if not line.startswith(b"data:"):
                    continue
                data = line[5:].strip()
                if data == b"[DONE]":
                    return
                try:
                    event = json.loads(data)
                except ValueError as error:
                    raise ServerError(f"{self.url}: sent an event that is not JSON") from error
                if not isinstance(event, dict):
                    raise ServerError(f"{self.url}: sent an event that is not an object")
                if "error" in event:
                    raise ServerError(f"{self.url}: {_reason(event['error'])}")
                yield event

    def _connect(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        secure = parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        assert parts.hostname is not None
        return kind(parts.hostname, parts.port, timeout=self.timeout)

    def _send(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
    ) -> http.client.HTTPResponse:
        headers = {"Content-Type": "application/json", "Accept": "*/*"}
        if key := os.environ.get(API_KEY):
            headers["Authorization"] = f"Bearer {key}"
        data = None if body is None else json.dumps(body).encode()
        whole = urlsplit(self.url).path + path

        def send() -> http.client.HTTPResponse:
            connection.request(method, whole, data, headers)
            return connection.getresponse()

        response: http.client.HTTPResponse = self._guarded(send)
        if response.status != 200:
            with response:
                text = self._guarded(response.read).decode("utf-8", "replace")
            raise ServerError(f"{self.url}: answered {response.status}: {_reason(text)}")
        return response

    def _guarded(self, action: Any) -> Any:
        try:
            return action()
        except TimeoutError as error:
            raise ServerError(
                f"{self.url}: no answer within {self.timeout:g} seconds; give a longer --timeout"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise ServerError(f"{self.url}: cannot be reached: {reason}") from error


class ServerTarget:
    """Servers under the names of policies; all must serve the same model.

    Args:
        servers: by policy name.
        model: to ask for; None: the first that each serves, which must be the same.
        params: of every request, but for the length that an entry may bring.

    Raises:
        ServerError: a server cannot be reached, lacks the model, or they serve different ones.
    """

    def __init__(
        self, servers: Mapping[str, Server], model: str | None, params: SamplingParams
    ) -> None:
        self._servers = dict(servers)
        self._params = params
        served = {name: server.models() for name, server in servers.items()}
        first = next(iter(served.values()))[0]
        self.model = first if model is None else model
        for name, models in served.items():
            if self.model not in models:
                raise ServerError(
                    f"{servers[name].url}: does not serve {self.model!r} but "
                    f"{', '.join(models)}; name one that all serve with --served-model"
                )

    def run(self, asked: Sequence[Asked], policy: Policy) -> list[Answer]:
        """Run a group of requests, each sent when it is due; returns their answers in order."""
        answers: list[Answer | BaseException | None] = [None] * len(asked)
        began = perf_counter()

        def ask(i: int) -> None:
            try:
                time.sleep(max(0.0, asked[i].due - (perf_counter() - began)))
                answers[i] = self._ask(asked[i].entry, policy.name, began + asked[i].due)
            except BaseException as error:  # handed to the caller's thread below
                answers[i] = error

        # Daemons, so that Ctrl-C need not wait for answers that nobody wants any more.
        threads = [threading.Thread(target=ask, args=(i,), daemon=True) for i in range(len(asked))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        whole = []
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
            assert answer is not None
            whole.append(answer)
        return whole

    def _ask(self, entry: Entry, policy: str, due: float) -> Answer:
        server = self._servers[policy]
        pieces: list[str] = []
        first: float | None = None
        finish, told = "", None
        usage: dict[str, Any] = {}
        for event in server.events(self._body(entry)):
            if event.get("model", self.model) != self.model:
                raise ServerError(
                    f"{server.url}: answered with the model {event['model']!r} instead of "
                    f"{self.model!r}"
                )
            for choice in event.get("choices") or ():
                piece = (choice.get("delta") or {}).get("content")
                if piece:
                    first = perf_counter() if first is None else first
                    pieces.append(piece)
                finish = choice.get("finish_reason") or finish
            usage = event.get("usage") or usage
            told = (event.get("metrics") or {}).get("speculative_decoding") or told
        ended = perf_counter()
        return Answer(
            content="".join(pieces),
            first_token_seconds=(ended if first is None else first) - due,
            total_seconds=ended - due,
            prompt_tokens=usage.get("prompt_tokens"),
            tokens=usage.get("completion_tokens"),
            finish_reason=finish,
            speculation=_speculation(told, usage.get("completion_tokens")),
        )

    def _body(self, entry: Entry) -> dict[str, Any]:
        params = self._params
        body: dict[str, Any] = {
            "model": self.model,
            "messages": entry.conversation,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": params.temperature,
            "max_tokens": entry.max_tokens or params.max_tokens,
            "seed": params.seed,
        }
        if params.ignore_eos:
            body["ignore_eos"] = True
        if entry.prediction is not None:
            body["prediction"] = {"type": "content", "content": entry.prediction}
        return body


def _speculation(told: Any, tokens: int | None) -> SpeculationRecord | None:
    """Read what vLLM (and Outpace) tell about speculation in a response.

    Its ``num_spec_steps`` leaves out the steps that drafted nothing; each target step emits what
    was accepted and one token more, so all of them are the tokens that were not accepted.
    """
    try:
        accepted = int(told["num_accepted_draft_tokens"])
        steps = int(told["num_spec_steps"]) if tokens is None else tokens - accepted
        return SpeculationRecord(steps, int(told["num_draft_tokens"]), accepted)
    except (KeyError, TypeError, ValueError):
        return None


def _reason(error: Any) -> str:
    """The message of an error, in whichever of the usual shapes it comes."""
    if isinstance(error, str):
        try:
            error = json.loads(error)
        except ValueError:
            return str(error)[:_LONGEST_REASON]
    while isinstance(error, Mapping):
        inner = error.get("error", error.get("message", error.get("detail")))
        if inner is None:
            break
        error = inner
    return str(error)[:_LONGEST_REASON]
