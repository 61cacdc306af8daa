"""A completion server as it looks from outside: plain HTTP, clear errors, nothing assumed."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from outpace.config.checks import server_root
from outpace.errors import InvalidValueError, OutpaceError

_LARGEST_ANSWER = 64 << 20  # bytes
_SHOWN = 200  # characters of a server's own message


class ServerError(OutpaceError):
    """A server cannot be reached, is too slow, or answers with something else than was asked.

    ``status`` is its HTTP status if it answered with an error.
    """

    def __init__(self, url: str, what: str, status: int | None = None) -> None:
        self.url = url
        self.status = status
        super().__init__(f"{url}: {what}")


@dataclass(frozen=True, slots=True)
class Token:
    """One token of an answer; ``top`` holds the likeliest texts there with their logprobs."""

    text: str
    logprob: float | None
    top: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer. ``tokens`` is None where the server gives no log-probabilities."""

    text: str
    finish_reason: str | None
    tokens: tuple[Token, ...] | None


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Makes a redirect an error with its status."""

    def redirect_request(self, *args: object, **kwargs: object) -> None:
        """Go nowhere."""


@dataclass(frozen=True, slots=True)
class Server:
    """An OpenAI-compatible server.

    Args:
        url: its address, with or without ``/v1``.
        model: the name it is asked for; see `named`.
        api_key: sent as a bearer token, if given.
        timeout: seconds to wait for each answer.
    """

    url: str
    model: str = ""
    api_key: str | None = None
    timeout: float = 120.0

    def __post_init__(self) -> None:
        try:
            server_root("url", self.url)
        except InvalidValueError as error:
            raise ServerError(self.url, error.way_out) from error

    @property
    def base(self) -> str:
        """The address that paths are added to."""
        return f"{server_root('url', self.url)}/v1"

    def models(self) -> list[str]:
        """The names of the models that it serves.

        Raises:
            ServerError: it does not answer, or with something else.
        """
        answer = self._ask("GET", "/models", None)
        data = answer.get("data")
        if not isinstance(data, list):
            raise ServerError(self.base, "/models answers without a list of models")
        return [str(one["id"]) for one in data if isinstance(one, dict) and "id" in one]

    def complete(self, prompt: str, **options: Any) -> list[Choice]:
        """Complete a prompt.

        Raises:
            ServerError: no answer, an error, or an answer of another model.
        """
        body = {"model": self.model, "prompt": prompt, **options}
        answer = self._ask("POST", "/completions", body)
        served = answer.get("model")
        # Some append a version to the name that they were asked for.
        if isinstance(served, str) and not served.startswith(self.model):
            raise ServerError(self.base, f"asked for {self.model!r}, answers as {served!r}")
        choices = answer.get("choices")
        if not isinstance(choices, list) or not choices:
            raise ServerError(self.base, "/completions answers without choices")
        return [_choice(self.base, choice) for choice in choices]

    def _ask(self, method: str, path: str, body: object) -> dict[str, Any]:
        headers = {"Accept": "application/json"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(self.base + path, data, headers, method=method)
        try:
            with self._opener().open(request, timeout=self.timeout) as response:
                raw = response.read(_LARGEST_ANSWER)
        except urllib.error.HTTPError as error:
            message = error.read(4096).decode("utf-8", "replace")
            raise ServerError(
                self.base, f"{path} answers {error.code}: {message[:_SHOWN]}", error.code
            ) from None
        except (OSError, HTTPException) as error:
            raise ServerError(self.base, self._reason(error)) from None
        return _object(self.base, path, raw)

    def _opener(self) -> urllib.request.OpenerDirector:
        """Without redirects, which could carry the key elsewhere, and without a proxy to here."""
        local = urlsplit(self.url).hostname in ("localhost", "127.0.0.1", "::1")
        proxies = [urllib.request.ProxyHandler({})] if local else []
        return urllib.request.build_opener(_NoRedirect, *proxies)

    def _reason(self, error: Exception) -> str:
        cause = getattr(error, "reason", error)
        if isinstance(cause, TimeoutError):
            return f"no answer within {self.timeout:g} s; raise --timeout if it is just slow"
        return f"cannot be reached ({cause or type(cause).__name__}); is it running there?"


def _object(base: str, path: str, raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise ServerError(base, f"{path} does not answer with a JSON object; is this its address?")
    return value


def _choice(base: str, choice: object) -> Choice:
    if not isinstance(choice, dict) or not isinstance(choice.get("text"), str):
        raise ServerError(base, "/completions answers with a choice that has no text")
    reason = choice.get("finish_reason")
    return Choice(
        choice["text"], None if reason is None else str(reason), _tokens(choice.get("logprobs"))
    )


def _tokens(logprobs: object) -> tuple[Token, ...] | None:
    """The tokens of an answer in the layout of /v1/completions; None if there are none."""
    if not isinstance(logprobs, dict):
        return None
    texts, values = logprobs.get("tokens"), logprobs.get("token_logprobs")
    tops = logprobs.get("top_logprobs") or []
    if not isinstance(texts, list) or not isinstance(values, list) or len(texts) != len(values):
        return None
    return tuple(
        Token(
            str(text),
            float(value) if isinstance(value, int | float) else None,
            _numbers(tops[i]) if i < len(tops) else {},
        )
        for i, (text, value) in enumerate(zip(texts, values, strict=True))
    )


def _numbers(top: object) -> dict[str, float]:
    if not isinstance(top, dict):
        return {}
    return {str(k): float(v) for k, v in top.items() if isinstance(v, int | float)}
