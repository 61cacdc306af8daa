"""How a server is set up: where it listens, what it allows, how long it waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outpace.config import check_integer, check_number, check_type
from outpace.config.checks import check_choice
from outpace.errors import InvalidValueError

Logged = Literal["none", "requests", "prompts"]


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Everything about a server that is not its engine.

    Attributes:
        host, port: where it listens; port 0 takes a free one.
        model_name: how clients call the model.
        tenant_by: what separates cached text and learned guesses: the API ``"key"``, or the
            key and the request's ``"user"``.
        max_queue: samples that may wait for a seat in the batch; more are turned away.
        max_requests_per_key: unfinished requests of one key.
        max_body_bytes: of a request.
        max_prompt_tokens: of one prompt; None: as the context allows.
        max_prompts: of one completion request.
        max_samples: ``n``, times the number of prompts.
        max_logprobs: likeliest tokens beside each token.
        max_stop_strings: in one request.
        max_stop_length: characters of each.
        max_grammar_bytes: of a schema, a regular expression or a grammar.
        request_seconds: the longest that a request may take.
        drain_seconds: how long unfinished requests have after the signal to stop.
        log: a line for each request, also with the ``"prompts"`` and answers, or ``"none"``.
        inspection: whether ``/debug/engine`` answers.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    model_name: str = "model"
    tenant_by: Literal["key", "user"] = "key"
    max_queue: int = 128
    max_requests_per_key: int = 64
    max_body_bytes: int = 4 * 2**20
    max_prompt_tokens: int | None = None
    max_prompts: int = 32
    max_samples: int = 16
    max_logprobs: int = 20
    max_stop_strings: int = 16
    max_stop_length: int = 1000
    max_grammar_bytes: int = 64 * 2**10
    request_seconds: float = 600.0
    drain_seconds: float = 30.0
    log: Logged = "none"
    inspection: bool = False

    def __post_init__(self) -> None:
        check_type("host", self.host, str, "a text")
        check_integer("port", self.port, 0, 65535)
        if not self.model_name:
            raise InvalidValueError("served_model_name", self.model_name, "give it a name")
        check_choice("tenant_by", self.tenant_by, ("key", "user"))
        check_choice("log", self.log, ("none", "requests", "prompts"))
        check_integer("max_queue", self.max_queue, 0)
        for name in (
            "max_requests_per_key",
            "max_body_bytes",
            "max_prompts",
            "max_samples",
            "max_grammar_bytes",
            "max_stop_length",
        ):
            check_integer(name, getattr(self, name), 1)
        for name in ("max_logprobs", "max_stop_strings"):
            check_integer(name, getattr(self, name), 0)
        if self.max_prompt_tokens is not None:
            check_integer("max_prompt_tokens", self.max_prompt_tokens, 1)
        wanted = "must be a number of seconds above 0"
        check_number("request_seconds", self.request_seconds, wanted, 1e-3, 1e7)
        wanted = "must be a number of seconds, 0 or more"
        check_number("drain_seconds", self.drain_seconds, wanted, 0, 1e7)
