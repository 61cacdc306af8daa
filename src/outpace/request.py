"""What goes into an engine and what comes out: sampling parameters, requests and results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from outpace.config import check_integer, check_number, check_type
from outpace.errors import InvalidValueError
from outpace.grammar import Grammar

MAX_STOP_STRINGS = 64
MAX_TOP_LOGPROBS = 100
MAX_SAMPLES = 128

# The type of requests that have none.
OTHER = "other"


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen and when a sequence ends.

    Each parameter is honoured at every draft position. The order in which they act on the
    logits is: ``logit_bias``, penalties, ``grammar``, ``min_tokens``, ``temperature``,
    ``min_p``, ``top_k``, ``top_p``.

    Attributes:
        temperature: 0 is greedy; otherwise logits are divided by it.
        top_k: keep the k most likely tokens; 0 keeps all.
        top_p: keep the smallest set whose probability reaches this; in (0, 1].
        min_p: keep tokens at least this fraction as likely as the likeliest; in [0, 1].
        presence_penalty: subtracted from every token already in the output; in [-2, 2].
        frequency_penalty: subtracted once per occurrence in the output; in [-2, 2].
        repetition_penalty: positive logits of tokens in prompt or output are divided by it,
            negative ones multiplied (Keskar et al. 2019, arXiv 1909.05858); above 0.
        logit_bias: token id to a number added to its logit; in [-100, 100].
        seed: makes a sampled result repeatable: the noise is a function of seed and position
            alone. None draws a fresh one.
        stop: texts that end the sequence; they are not part of the result.
        stop_token_ids: tokens that end the sequence; part of the ids, not of the text.
        ignore_eos: go on past the model's end-of-sequence token.
        min_tokens: neither an end-of-sequence nor a stop token, nor a stop text, ends the
            sequence before so many tokens.
        max_tokens: at most so many tokens; None: until the context ends.
        logprobs: return the model's own log-probability of each token, with this many of the
            likeliest tokens beside it; None returns none. They are those of the unmodified
            logits, before any parameter above.
        n: how many samples of the same prompt.
        skip_special_tokens: leave control tokens out of the text.
        grammar: what the answer must belong to; None leaves it free. The sequence ends where
            the grammar does, also before ``min_tokens``; a stop text, a stop token or a limit
            may still cut it short.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0
    max_tokens: int | None = 256
    logprobs: int | None = None
    n: int = 1
    skip_special_tokens: bool = True
    grammar: Grammar | None = None

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        for name in ("stop", "stop_token_ids"):
            object.__setattr__(self, name, _as_tuple(name, getattr(self, name)))
        if not isinstance(self.logit_bias, Mapping):
            raise InvalidValueError("logit_bias", self.logit_bias, "must map token ids to numbers")
        for name in ("ignore_eos", "skip_special_tokens"):
            check_type(name, getattr(self, name), bool, "True or False")
        check_type("grammar", self.grammar, Grammar | None, "a Grammar or None")
        self._check_numbers()
        self._check_lengths()
        self._check_stops()
        for token, bias in self.logit_bias.items():
            check_integer("logit_bias (token id)", token, 0)
            check_number(f"logit_bias[{token}]", bias, "must be a number in [-100, 100]", -100, 100)

    def _check_numbers(self) -> None:
        check_number("temperature", self.temperature, "must be a number in [0, 100]", 0, 100)
        check_number("top_p", self.top_p, "must be a number in (0, 1]", 1e-9, 1)
        check_number("min_p", self.min_p, "must be a number in [0, 1]", 0, 1)
        for name in ("presence_penalty", "frequency_penalty"):
            check_number(name, getattr(self, name), "must be a number in [-2, 2]", -2, 2)
        wanted = "must be a number in (0, 100]"
        check_number("repetition_penalty", self.repetition_penalty, wanted, 1e-6, 100)
        check_integer("top_k", self.top_k, 0)
        if self.seed is not None:
            check_integer("seed", self.seed, 0, 2**64 - 1)

    def _check_lengths(self) -> None:
        check_integer("n", self.n, 1, MAX_SAMPLES)
        check_integer("min_tokens", self.min_tokens, 0)
        if self.max_tokens is not None:
            check_integer("max_tokens", self.max_tokens, 1)
            if self.min_tokens > self.max_tokens:
                raise InvalidValueError(
                    "min_tokens", self.min_tokens, f"exceeds max_tokens = {self.max_tokens}"
                )
        if self.logprobs is not None:
            check_integer("logprobs", self.logprobs, 0, MAX_TOP_LOGPROBS)

    def _check_stops(self) -> None:
        if len(self.stop) > MAX_STOP_STRINGS:
            raise InvalidValueError(
                "stop", f"{len(self.stop)} strings", f"give at most {MAX_STOP_STRINGS}"
            )
        for text in self.stop:
            if not isinstance(text, str) or not text:
                raise InvalidValueError("stop", text, "must be a text of at least one character")
        for token in self.stop_token_ids:
            check_integer("stop_token_ids", token, 0)

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is always taken."""
        return self.temperature == 0

    @property
    def filtered(self) -> bool:
        """Whether some tokens are excluded by their probability."""
        return self.min_p > 0 or self.top_k > 0 or self.top_p < 1

    @property
    def penalised(self) -> bool:
        """Whether a token's logit depends on the tokens before it."""
        return (
            self.presence_penalty != 0
            or self.frequency_penalty != 0
            or self.repetition_penalty != 1
        )


def _as_tuple(name: str, value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    if isinstance(value, Iterable):
        return tuple(value)
    raise InvalidValueError(name, value, "must be a list")


class FinishReason(StrEnum):
    """Why a sequence ended; ``error`` is a failure of this sequence alone, as its grammar's."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt in token ids and what is wanted of it.

    Attributes:
        request_id: unique within an engine.
        prompt_token_ids: at least one token.
        params: how to sample and when to stop.
        prediction: token ids that the caller expects as the answer, for that drafter.
        drafter: the name of one of the engine's drafters, or None for its default.
        num_speculative_tokens: overrides the engine's k for this request; None: the engine's.
        tenant: whose request it is; cached text and learned guesses are not shared between
            tenants.
        request_type: what it is counted and routed as; see `control.types`. Without one it is
            ``OTHER``.
    """

    request_id: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams = field(default_factory=SamplingParams)
    prediction: tuple[int, ...] = ()
    drafter: str | None = None
    num_speculative_tokens: int | None = None
    tenant: str = ""
    request_type: str = OTHER


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural log-probability of one emitted token and of the likeliest ones beside it."""

    token_id: int
    logprob: float
    top: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one request, over all its samples."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int

    @property
    def total_tokens(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, slots=True)
class DrafterChoice:
    """Who was chosen to draft, from which emitted token on, and why, in words."""

    drafter: str
    at_token: int
    reason: str


@dataclass(frozen=True, slots=True)
class Speculation:
    """What speculation did for one sequence; the definitions are design promise 5.

    Attributes:
        drafter: who proposed; the last one, where a router chose.
        verification: ``coupled`` or ``rejection``.
        guarantee: ``bit-exact``, ``near-tie`` or ``distribution``: what holds on this machine.
        target_steps: forward passes of the target that yielded at least one token.
        drafted: draft tokens that the target checked: all nodes of all drafts.
        accepted: drafted tokens that were emitted.
        rejections: steps at which a draft token stood beside the target's choice and lost.
        drafted_per_position, accepted_per_position: index 0 is the first draft position; in a
            tree a position is a depth, counted once a step.
        draft_seconds, verify_seconds, rest_seconds: this sequence's share of the time spent
            proposing, in the target's forward pass, and in everything else.
        off_reason: why nothing was drafted at some or all steps; empty if always on.
        by_source: drafted and accepted tokens by the drafter that proposed them, where a
            drafter asks others, or several took turns.
        choices: the drafters that a router chose, in their order; empty where nobody had a choice.
    """

    drafter: str
    verification: str
    guarantee: str
    target_steps: int
    drafted: int
    accepted: int
    rejections: int
    drafted_per_position: tuple[int, ...]
    accepted_per_position: tuple[int, ...]
    acceptance_length: float
    draft_acceptance_rate: float | None
    alpha: float | None
    alpha_interval: tuple[float, float] | None
    draft_seconds: float
    verify_seconds: float
    rest_seconds: float
    off_reason: str
    by_source: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    choices: tuple[DrafterChoice, ...] = ()


@dataclass(frozen=True, slots=True)
class CompletionOutput:
    """One sample of a request, whole.

    ``stop_reason`` is the stop text or token that ended it, or what went wrong after ``error``.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    stop_reason: str | int | None
    logprobs: tuple[TokenLogprob, ...] | None
    accepted: tuple[bool, ...]
    speculative: Speculation


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds from the request's arrival, and its rate of generation.

    ``queue_seconds`` is how long it waited for its first step.
    """

    first_token_seconds: float
    total_seconds: float
    tokens_per_second: float
    queue_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """The result of a request; the properties are those of its first sample."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    outputs: tuple[CompletionOutput, ...]
    usage: Usage
    timing: Timing

    @property
    def text(self) -> str:
        """Text of the first sample."""
        return self.outputs[0].text

    @property
    def token_ids(self) -> tuple[int, ...]:
        """Token ids of the first sample."""
        return self.outputs[0].token_ids

    @property
    def finish_reason(self) -> FinishReason:
        """Why the first sample ended."""
        return self.outputs[0].finish_reason

    @property
    def stop_reason(self) -> str | int | None:
        """The stop text or stop token that ended the first sample, if one did."""
        return self.outputs[0].stop_reason

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...] | None:
        """Log-probabilities of the first sample, if asked for."""
        return self.outputs[0].logprobs

    @property
    def speculative(self) -> Speculation:
        """The record of the first sample."""
        return self.outputs[0].speculative

    def as_dict(self) -> dict[str, Any]:
        """A plain structure for JSON; the fields of the first sample stand at the top."""
        from dataclasses import asdict

        first = asdict(self.outputs[0])
        first.pop("index")
        usage = asdict(self.usage) | {"total_tokens": self.usage.total_tokens}
        whole = {"request_id": self.request_id, **first, "usage": usage}
        whole["timing"] = asdict(self.timing)
        if len(self.outputs) > 1:
            whole["outputs"] = [asdict(output) for output in self.outputs]
        return whole


@dataclass(frozen=True, slots=True)
class StreamChunk:
    """A piece of a sample while it is being made; ``output`` comes with the last chunk of all.

    ``text`` is what became certain, which can lag behind the tokens. ``logprobs`` are those of
    ``token_ids``, if asked for; ``target_steps`` and ``drafted`` are what the piece took, and
    ``drafter`` is who drafted for it, or would have.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    accepted: tuple[bool, ...]
    finish_reason: FinishReason | None = None
    output: RequestOutput | None = None
    stop_reason: str | int | None = None
    logprobs: tuple[TokenLogprob, ...] = ()
    target_steps: int = 0
    drafted: int = 0
    drafter: str = ""
