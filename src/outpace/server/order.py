"""From the body of a request to what the engine takes: token ids, parameters, a drafter."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from outpace.control.features import Features
from outpace.control.types import Typed
from outpace.errors import InvalidValueError
from outpace.grammar import Grammar
from outpace.llm import LLM
from outpace.request import Request, SamplingParams
from outpace.server.errors import ApiError, bad_request
from outpace.server.fields import ResponseFormat, SharedFields, joined
from outpace.server.keys import Caller
from outpace.server.requests import ChatRequest, CompletionRequest, Message, ToolChoice
from outpace.server.settings import ServerSettings
from outpace.text.tools.setup import ToolSetup

# What the engine calls by another name.
_FIELDS = {
    "regex": "guided_regex",
    "lark": "guided_grammar",
    "json_schema": "response_format.json_schema",
}
TYPE_HEADER, TYPE_FIELD = "X-Outpace-Request-Type", "request_type"
_USUAL_COMPLETION_TOKENS = 16  # OpenAI's default there; a chat goes on until the context ends


@dataclass(frozen=True, slots=True)
class Order:
    """A request of the API as the engine takes it.

    Attributes:
        requests: one for each prompt.
        typed: its type, and in words why it is that.
        predicted: whether the client said what it expects.
        tools: what the answers may call; None where nothing is read for calls.
    """

    order_id: str
    requests: tuple[Request, ...]
    typed: Typed
    predicted: bool
    tools: ToolSetup | None = None


@dataclass(frozen=True, slots=True)
class _Said:
    """What the rules for types may look at, beside numbers and parameters."""

    text: str
    messages: int = 0
    tools: int = 0


class OrderReader:
    """Reads bodies against what the model and the settings allow.

    Its methods do the slow work of a request (tokens, grammars): call them beside the event loop.
    Whatever cannot be honoured raises `InvalidValueError` or `ApiError`; nothing was started.
    """

    def __init__(self, llm: LLM, settings: ServerSettings) -> None:
        self._llm = llm
        self._settings = settings
        self._types = llm.types
        self._types_lock = threading.Lock()  # they count labels, and are asked from many threads

    def chat(self, body: ChatRequest, caller: Caller, label: str | None) -> Order:
        """A conversation to go on with."""
        if body.top_logprobs is not None and not body.logprobs:
            raise bad_request("top_logprobs", "top_logprobs: needs logprobs = true")
        limits = {body.max_tokens, body.max_completion_tokens} - {None}
        if len(limits) > 1:
            message = "max_tokens: differs from max_completion_tokens; give one of them"
            raise bad_request("max_tokens", message)
        tools = self._tools(body)
        messages = [_message(message) for message in body.messages]
        prompt = self._llm.tokenizer.encode_chat(messages, tools=tools.shown)
        logprobs = (body.top_logprobs or 0) if body.logprobs else None
        params = tools.constrain(self._params(body, next(iter(limits), None), logprobs))
        said = _Said(
            "\n".join(joined(message.content) for message in body.messages),
            len(messages),
            len(tools.shown),
        )
        order = self._order("chatcmpl", body, [("messages", prompt)], params, caller, label, said)
        return replace(order, tools=tools)

    def _tools(self, body: ChatRequest) -> ToolSetup:
        given = [tool.model_dump(exclude_unset=True) for tool in body.tools or ()]
        size = len(json.dumps(given)) if given else 0
        if size > self._settings.max_grammar_bytes:
            most = self._settings.max_grammar_bytes
            raise bad_request("tools", f"tools: {size} bytes; give at most {most}")
        choice = body.tool_choice
        plain = choice.model_dump() if isinstance(choice, ToolChoice) else choice
        parallel = body.parallel_tool_calls is not False
        setup = ToolSetup.read(self._llm.tokenizer, given or None, plain, parallel=parallel)
        if setup.shown and not parallel and setup.choice.kind == "auto":
            field = "parallel_tool_calls"
            message = f"{field}: false is only kept with a tool_choice that must call"
            raise bad_request(field, message)
        return setup

    def completion(self, body: CompletionRequest, caller: Caller, label: str | None) -> Order:
        """Texts to go on with."""
        if body.best_of is not None and body.best_of != (body.n or 1):
            raise bad_request("best_of", f"best_of = {body.best_of}: only as n; leave it out")
        if body.echo and body.logprobs is not None:
            raise bad_request("echo", "echo: has no logprobs of the prompt; leave one of them out")
        prompts = self._prompts(body.prompts)
        limit = body.max_tokens or _USUAL_COMPLETION_TOKENS
        params = self._params(body, limit, body.logprobs)
        named = [("prompt", prompt) for prompt in prompts]
        said = _Said("\n".join(one for one in body.prompts if isinstance(one, str)))
        return self._order("cmpl", body, named, params, caller, label, said)

    def _prompts(self, prompts: Sequence[str | list[int]]) -> list[list[int]]:
        if not prompts:
            raise bad_request("prompt", "prompt: is an empty list; give a text")
        if len(prompts) > self._settings.max_prompts:
            most = self._settings.max_prompts
            raise bad_request("prompt", f"prompt: {len(prompts)} of them; give at most {most}")
        encode = self._llm.tokenizer.encode
        return [encode(one) if isinstance(one, str) else one for one in prompts]

    def _order(
        self,
        kind: str,
        body: SharedFields,
        prompts: Sequence[tuple[str, Sequence[int]]],
        params: SamplingParams,
        caller: Caller,
        label: str | None,
        said: _Said,
    ) -> Order:
        samples = params.n * len(prompts)
        if samples > self._settings.max_samples:
            most = self._settings.max_samples
            raise bad_request("n", f"n: {samples} answers in all; ask for at most {most}")
        order_id = f"{kind}-{uuid4().hex}"
        expected = joined(body.prediction.content) if body.prediction else ""
        prediction = tuple(self._llm.tokenizer.encode(expected, special=False)) if expected else ()
        typed = self._typed(body, prompts, params, len(prediction), label, said)
        requests = []
        for i, (field, prompt) in enumerate(prompts):
            self._check_length(field, len(prompt))
            request = Request(
                request_id=f"{order_id}-{i}",
                prompt_token_ids=tuple(prompt),
                params=params,
                prediction=prediction,
                drafter=self._drafter(body),
                num_speculative_tokens=(
                    body.speculative.num_speculative_tokens if body.speculative else None
                ),
                tenant=self._tenant(caller, body.user),
                request_type=typed.name,
            )
            with _named_as_here():
                self._llm.engine.admission.check(request)
            requests.append(request)
        return Order(order_id, tuple(requests), typed, bool(prediction))

    def _typed(
        self,
        body: SharedFields,
        prompts: Sequence[tuple[str, Sequence[int]]],
        params: SamplingParams,
        prediction_tokens: int,
        label: str | None,
        said: _Said,
    ) -> Typed:
        """The type of a request; of several prompts, what all of them are together."""
        features = Features(
            prompt=said.text,
            prompt_tokens=max(len(prompt) for _, prompt in prompts),
            label=label if label is not None else (body.metadata or {}).get(TYPE_FIELD),
            structured=params.grammar is not None,
            tools=said.tools,
            prediction_tokens=prediction_tokens,
            messages=said.messages,
            greedy=params.greedy,
        )
        with self._types_lock:
            return self._types.of(features)

    def _check_length(self, field: str, tokens: int) -> None:
        """Too long a prompt has a code of its own, on which clients shorten conversations."""
        most = self._llm.max_model_len - 1
        if self._settings.max_prompt_tokens is not None:
            most = min(most, self._settings.max_prompt_tokens)
        if tokens > most:
            message = f"{field}: {tokens} tokens, of which {most} fit; shorten it"
            raise ApiError(400, message, "context_length_exceeded", param=field)

    def _drafter(self, body: SharedFields) -> str | None:
        chosen = body.speculative
        if chosen is not None and not chosen.enabled:
            return "none"
        if chosen is not None and chosen.drafter is not None:
            return chosen.drafter
        default = self._llm.engine.config.drafter.name
        if body.prediction is not None and "prediction" not in default.split("+"):
            return "auto"  # the server's own drafter would not look at it
        return None

    def _tenant(self, caller: Caller, user: str | None) -> str:
        if self._settings.tenant_by == "user":
            return json.dumps([caller.name, user])
        return caller.name

    def _params(
        self, body: SharedFields, max_tokens: int | None, logprobs: int | None
    ) -> SamplingParams:
        settings = self._settings
        if logprobs is not None and logprobs > settings.max_logprobs:
            most = settings.max_logprobs
            raise bad_request("logprobs", f"logprobs: {logprobs}; ask for at most {most}")
        given: dict[str, Any] = {
            "temperature": 1.0 if body.temperature is None else body.temperature,
            "top_p": body.top_p,
            "top_k": None if body.top_k is None else max(body.top_k, 0),
            "min_p": body.min_p,
            "presence_penalty": body.presence_penalty,
            "frequency_penalty": body.frequency_penalty,
            "repetition_penalty": body.repetition_penalty,
            "logit_bias": _biases(body.logit_bias),
            # Negative seeds are in use; each stands for one of its own.
            "seed": None if body.seed is None else body.seed % 2**64,
            "stop": self._stops(body.stop),
            "stop_token_ids": body.stop_token_ids,
            "ignore_eos": body.ignore_eos,
            "min_tokens": body.min_tokens,
            "n": body.n,
            "skip_special_tokens": body.skip_special_tokens,
            "grammar": self._grammar(body),
        }
        named = {name: value for name, value in given.items() if value is not None}
        return SamplingParams(max_tokens=max_tokens, logprobs=logprobs, **named)

    def _stops(self, stop: str | list[str] | None) -> list[str]:
        stops = [stop] if isinstance(stop, str) else stop or []
        if len(stops) > self._settings.max_stop_strings:
            most = self._settings.max_stop_strings
            raise bad_request("stop", f"stop: {len(stops)} strings; give at most {most}")
        longest = max(map(len, stops), default=0)
        if longest > self._settings.max_stop_length:
            most = self._settings.max_stop_length
            raise bad_request("stop", f"stop: {longest} characters; give at most {most}")
        return stops

    def _grammar(self, body: SharedFields) -> Grammar | None:
        with _named_as_here():
            found = {
                "response_format": _form(body.response_format),
                "guided_regex": body.guided_regex and Grammar.regex(body.guided_regex),
                "guided_grammar": body.guided_grammar and Grammar.lark(body.guided_grammar),
            }
        for name in ("guided_regex", "guided_grammar"):
            if getattr(body, name) == "":
                raise InvalidValueError(name, "", "must have at least one character")
        asked = {name: grammar for name, grammar in found.items() if grammar}
        if len(asked) > 1:
            names = " and ".join(asked)
            raise bad_request(next(iter(asked)), f"{names}: give one of them")
        for name, grammar in asked.items():
            most = self._settings.max_grammar_bytes
            size = len(grammar.text.encode("utf-8", "surrogatepass"))
            if size > most:
                raise bad_request(name, f"{name}: {size} bytes; give at most {most}")
            return grammar
        return None


@contextmanager
def _named_as_here() -> Iterator[None]:
    """Let errors name the fields that a client sent."""
    try:
        yield
    except InvalidValueError as error:
        field = _FIELDS.get(error.field, error.field)
        raise InvalidValueError(field, error.value, error.way_out) from error


def _form(form: ResponseFormat | None) -> Grammar | None:
    match form:
        case None | ResponseFormat(type="text", json_schema=None):
            return None
        case ResponseFormat(type="json_object", json_schema=None):
            return Grammar.json_object()
        case ResponseFormat(type="json_schema", json_schema=given) if given is not None:
            if given.json_schema is None:
                field = "response_format.json_schema.schema"
                raise bad_request(field, f"{field}: is missing")
            return Grammar.json_schema(given.json_schema)
        case _:
            field = "response_format.json_schema"
            raise bad_request(field, f"{field}: belongs to the type json_schema, and only there")


def _biases(given: dict[str, float] | None) -> dict[int, float]:
    biases = {}
    for token, bias in (given or {}).items():
        if not (token.isascii() and token.isdigit() and len(token) <= 9):
            raise InvalidValueError("logit_bias", token, "must be a token id")
        biases[int(token)] = bias
    return biases


def _message(message: Message) -> dict[str, Any]:
    """A message as the chat template takes it; the tokenizer checks the rest."""
    plain = message.model_dump(exclude_unset=True, exclude_none=True)
    if message.content is not None:
        plain["content"] = joined(message.content)
    return plain
