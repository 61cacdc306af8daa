"""The options of the commands, and what they become: checked before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from typer import Option

from outpace.config import DRAFTER_SPELLINGS, EngineConfig, parse_drafter
from outpace.errors import InvalidValueError
from outpace.request import SamplingParams

_DTYPES = {
    "auto": "auto",
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "fp32": "float32",
    "float32": "float32",
}
_MODEL, _SPECULATION, _SAMPLING, _END = "Model", "Speculation", "Sampling", "Length and end"


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The model and how it speculates."""

    model: Annotated[
        str,
        Option(
            help="'demo', a folder in Hugging Face layout, a FILE.gguf, or a hub name.",
            rich_help_panel=_MODEL,
        ),
    ] = "demo"
    dtype: Annotated[
        str,
        Option(
            help="Precision: bf16, fp32, or auto: bf16 unless the CPU can only emulate it.",
            rich_help_panel=_MODEL,
        ),
    ] = "auto"
    quantization: Annotated[
        str,
        Option(help="Of the linear layers: none, int8 or int4.", rich_help_panel=_MODEL),
    ] = "none"
    group_size: Annotated[
        int,
        Option(
            help="Weights that share a scale under int4: 32, 64 or 128.", rich_help_panel=_MODEL
        ),
    ] = 64
    device: Annotated[
        str | None,
        Option(help="cpu or cuda.", rich_help_panel=_MODEL, show_default="a GPU if there is one"),
    ] = None
    max_model_len: Annotated[
        int | None,
        Option(
            help="Longest context in tokens.", rich_help_panel=_MODEL, show_default="the model's"
        ),
    ] = None
    kv_cache_tokens: Annotated[
        int | None,
        Option(
            help="Size of the cache in tokens.", rich_help_panel=_MODEL, show_default="by memory"
        ),
    ] = None
    threads: Annotated[
        int | None,
        Option(help="CPU threads.", rich_help_panel=_MODEL, show_default="all cores"),
    ] = None
    drafter: Annotated[
        str,
        Option(help=f"Who guesses: {DRAFTER_SPELLINGS}.", rich_help_panel=_SPECULATION),
    ] = "auto"
    draft_quantization: Annotated[
        str,
        Option(
            help="Of a draft model's linear layers: none, int8, int4, or auto.",
            rich_help_panel=_SPECULATION,
        ),
    ] = "auto"
    num_speculative_tokens: Annotated[
        str,
        Option(
            "--num-speculative-tokens",
            "-k",
            help="Draft tokens a step, or auto: as many as pay off, which can be none.",
            rich_help_panel=_SPECULATION,
        ),
    ] = "auto"
    verification: Annotated[
        str,
        Option(
            help="coupled (the same tokens), rejection (the same distribution), or auto.",
            rich_help_panel=_SPECULATION,
        ),
    ] = "auto"

    drafter_policy: Annotated[
        str | None,
        Option(
            metavar="FILE",
            help="TOML that pins, forbids or orders drafters by type of request.",
            rich_help_panel=_SPECULATION,
            show_default="by predicted gain alone",
        ),
    ] = None
    request_types: Annotated[
        str | None,
        Option(
            metavar="FILE",
            help="TOML with rules that tell types of requests.",
            rich_help_panel=_SPECULATION,
            show_default="those that are built in",
        ),
    ] = None
    keep_learned: Annotated[
        bool,
        Option(
            "--keep-learned/--no-keep-learned",
            help="Keep what is learned of acceptance for the next start.",
            rich_help_panel=_SPECULATION,
        ),
    ] = True

    def config(self) -> EngineConfig:
        """Return the engine's configuration.

        Raises:
            InvalidValueError: an option that cannot be honoured.
        """
        if not self.model:
            raise InvalidValueError("model", "", "give demo, a folder, a GGUF file or a hub name")
        if self.dtype not in _DTYPES:
            raise InvalidValueError("dtype", self.dtype, "choose one of bf16, fp32, auto")
        return EngineConfig(
            drafter=parse_drafter(self.drafter),
            num_speculative_tokens=_draft_length(self.num_speculative_tokens),
            verification=self.verification,  # type: ignore[arg-type]  # checked by EngineConfig
            dtype=_DTYPES[self.dtype],  # type: ignore[arg-type]
            quantization=self.quantization,  # type: ignore[arg-type]
            draft_quantization=self.draft_quantization,  # type: ignore[arg-type]
            group_size=self.group_size,
            max_model_len=self.max_model_len,
            kv_cache_tokens=self.kv_cache_tokens,
            device=self.device,
            threads=self.threads,
            drafter_policy=self.drafter_policy,
            request_types=self.request_types,
            keep_learned=self.keep_learned,
        )


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """How tokens are chosen and when the answer ends."""

    temperature: Annotated[float, Option(help="0 is greedy.", rich_help_panel=_SAMPLING)] = 0.0
    top_p: Annotated[
        float, Option(help="Keep the likeliest tokens up to this sum.", rich_help_panel=_SAMPLING)
    ] = 1.0
    top_k: Annotated[
        int, Option(help="Keep so many of the likeliest; 0: all.", rich_help_panel=_SAMPLING)
    ] = 0
    min_p: Annotated[
        float,
        Option(
            help="Keep tokens at least this fraction as likely as the likeliest.",
            rich_help_panel=_SAMPLING,
        ),
    ] = 0.0
    presence_penalty: Annotated[
        float, Option(help="Against tokens already in the answer.", rich_help_panel=_SAMPLING)
    ] = 0.0
    frequency_penalty: Annotated[
        float, Option(help="The same, for each occurrence.", rich_help_panel=_SAMPLING)
    ] = 0.0
    repetition_penalty: Annotated[
        float,
        Option(help="Against tokens of prompt or answer; 1: none.", rich_help_panel=_SAMPLING),
    ] = 1.0
    logit_bias: Annotated[
        list[str] | None,
        Option(
            metavar="ID:VALUE",
            help="Add to a token's logit; repeatable.",
            rich_help_panel=_SAMPLING,
        ),
    ] = None
    seed: Annotated[
        int | None,
        Option(
            help="Makes a sampled answer repeatable.",
            rich_help_panel=_SAMPLING,
            show_default="a fresh one",
        ),
    ] = None
    max_tokens: Annotated[int, Option(help="At most so many tokens.", rich_help_panel=_END)] = 256
    min_tokens: Annotated[int, Option(help="Do not end before so many.", rich_help_panel=_END)] = 0
    stop: Annotated[
        list[str] | None,
        Option(help="Text that ends the answer; repeatable.", rich_help_panel=_END),
    ] = None
    stop_token_ids: Annotated[
        list[str] | None,
        Option(metavar="ID[,ID]", help="Tokens that end it; repeatable.", rich_help_panel=_END),
    ] = None
    ignore_eos: Annotated[
        bool, Option("--ignore-eos", help="Go on past the model's end.", rich_help_panel=_END)
    ] = False

    def params(self, **more: Any) -> SamplingParams:
        """Return the sampling parameters.

        Raises:
            InvalidValueError: an option that cannot be honoured.
        """
        return SamplingParams(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            repetition_penalty=self.repetition_penalty,
            logit_bias=_logit_bias(self.logit_bias or []),
            seed=self.seed,
            max_tokens=self.max_tokens,
            min_tokens=self.min_tokens,
            stop=tuple(self.stop or ()),
            stop_token_ids=_token_ids(self.stop_token_ids or []),
            ignore_eos=self.ignore_eos,
            **more,
        )


@dataclass(frozen=True, slots=True)
class CommonOptions:
    """What every command understands."""

    debug: Annotated[bool, Option("--debug", help="Show the traceback of an error.")] = False


def _draft_length(text: str) -> int | Literal["auto"]:
    if text == "auto":
        return "auto"
    try:
        return int(text)
    except ValueError:
        raise InvalidValueError(
            "num_speculative_tokens", text, "must be an integer or auto"
        ) from None


def _logit_bias(items: list[str]) -> dict[int, float]:
    biases: dict[int, float] = {}
    for item in items:
        token, _, value = item.partition(":")
        try:
            pair = int(token), float(value)
        except ValueError:
            way_out = "write ID:VALUE, for example 42:-100"
            raise InvalidValueError("logit_bias", item, way_out) from None
        if pair[0] in biases:
            raise InvalidValueError("logit_bias", item, f"token {pair[0]} has a bias already")
        biases[pair[0]] = pair[1]
    return biases


def _token_ids(items: list[str]) -> tuple[int, ...]:
    try:
        return tuple(int(part) for item in items for part in item.split(","))
    except ValueError:
        way_out = "give token ids, for example 2 or 2,7"
        raise InvalidValueError("stop_token_ids", ",".join(items), way_out) from None
