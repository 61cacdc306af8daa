"""How an engine is set up: plain frozen values, checked when they are made."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Literal

from outpace.errors import InvalidValueError

Dtype = Literal["auto", "bfloat16", "float32"]
Verification = Literal["auto", "coupled", "rejection"]
TreeAttention = Literal["paths", "mask"]
Quantization = Literal["none", "int8", "int4"]

MAX_SPECULATIVE_TOKENS = 64


def _spelled_out(dtype: str) -> str:
    """``bf16`` and ``fp32`` are accepted everywhere, and everywhere mean the same."""
    dtype = {"bf16": "bfloat16", "fp32": "float32"}.get(dtype, dtype)
    _check_choice("dtype", dtype, ("auto", "bfloat16", "float32"))
    return dtype


def _check_choice(name: str, value: object, choices: tuple[str | int, ...]) -> None:
    if isinstance(value, bool) or value not in choices:
        raise InvalidValueError(name, value, f"choose one of {', '.join(map(str, choices))}")


def _check_quantization(name: str, value: object) -> None:
    _check_choice(name, value, ("none", "int8", "int4"))


def check_type(name: str, value: object, kind: type | UnionType, wanted: str) -> None:
    """Refuse what is not of a kind; ``wanted`` says in words what is."""
    if not isinstance(value, kind):
        raise InvalidValueError(name, value, f"must be {wanted}")


def check_integer(name: str, value: object, low: int, high: int | None = None) -> None:
    """Refuse anything but an integer within [low, high]; a bool is not an integer here."""
    wanted = f"must be an integer of at least {low}"
    if high is not None:
        wanted = f"must be an integer from {low} to {high}"
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidValueError(name, value, wanted)
    if value < low or (high is not None and value > high):
        raise InvalidValueError(name, value, wanted)


def check_number(name: str, value: object, wanted: str, low: float, high: float) -> None:
    """Refuse anything but a finite number within [low, high]."""
    if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:
        return  # a NaN is not within any bounds
    raise InvalidValueError(name, value, wanted)


@dataclass(frozen=True, slots=True)
class NoDrafter:
    """Plain decoding, through the same path as everything else."""

    name = "none"


@dataclass(frozen=True, slots=True)
class NgramConfig:
    """Prompt lookup: what followed the last time these tokens occurred in the request itself.

    ``max_ngram`` and ``min_ngram`` bound the length of the match in tokens; the longest match
    wins, among equals the most recent. (Saxena 2023, "Prompt lookup decoding".)
    """

    max_ngram: int = 4
    min_ngram: int = 2
    name = "ngram"

    def __post_init__(self) -> None:
        check_integer("max_ngram", self.max_ngram, 1)
        check_integer("min_ngram", self.min_ngram, 1)
        if self.min_ngram > self.max_ngram:
            raise InvalidValueError(
                "min_ngram", self.min_ngram, f"must lie in [1, max_ngram = {self.max_ngram}]"
            )


@dataclass(frozen=True, slots=True)
class ModelDraftConfig:
    """An independent small model of the same vocabulary (Leviathan et al. 2023, arXiv 2211.17192).

    ``model`` is a name as for the target: a folder, a GGUF file, a hub name, or ``demo``.
    ``quantization`` None means the engine's ``draft_quantization``.
    """

    model: str
    dtype: Dtype = "auto"
    quantization: Quantization | None = None
    name = "model"

    def __post_init__(self) -> None:
        check_type("model", self.model, str, "a text")
        if self.quantization is not None:
            _check_quantization("quantization", self.quantization)
        object.__setattr__(self, "dtype", _spelled_out(self.dtype))


@dataclass(frozen=True, slots=True)
class PredictionConfig:
    """The caller says what it expects, as text; the draft follows it and re-synchronises.

    ``text`` is the expectation for requests that bring none of their own. ``min_match`` is the
    number of tokens that must agree before the draft continues elsewhere in the expectation.
    """

    text: str = ""
    min_match: int = 3
    name = "prediction"

    def __post_init__(self) -> None:
        check_type("text", self.text, str, "a text")
        check_integer("min_match", self.min_match, 1)


@dataclass(frozen=True, slots=True)
class FirstOfConfig:
    """The first of several drafters that has something to propose."""

    drafters: tuple[DrafterConfig, ...]

    @property
    def name(self) -> str:
        """The names of its drafters, joined by ``+``, as it is written on the command line."""
        return "+".join(drafter.name for drafter in self.drafters)

    def __post_init__(self) -> None:
        check_type("drafters", self.drafters, tuple, "a tuple of drafter configurations")
        if not self.drafters:
            raise InvalidValueError("drafters", (), "first_of needs at least one drafter")
        for drafter in self.drafters:
            if not isinstance(drafter, NgramConfig | ModelDraftConfig | PredictionConfig):
                wanted = "list ngram, model and prediction drafters only"
                raise InvalidValueError("drafters", drafter, wanted)


DrafterConfig = NoDrafter | NgramConfig | ModelDraftConfig | PredictionConfig | FirstOfConfig

AUTO_DRAFTER = FirstOfConfig((PredictionConfig(), NgramConfig()))

# A "+" joins drafters where the name of one follows; any other belongs to a path.
_JOINT = re.compile(r"\+(?=(?:none|auto|ngram|model|prediction)(?:[:+]|$))")
DRAFTER_SPELLINGS = "none, auto, ngram, model:PATH, prediction:FILE, or several joined by '+'"


def parse_drafter(spec: str) -> DrafterConfig:
    """Read a drafter as it is written on the command line.

    ``none``, ``auto``, ``ngram``, ``model:PATH``, ``prediction:FILE``; several joined by ``+``
    mean the first that has something to propose. ``auto`` is ``prediction+ngram``: what needs
    neither a checkpoint nor training.

    Raises:
        InvalidValueError: unknown drafter, missing argument, or a prediction file that
            cannot be read as UTF-8.
    """
    parts = _JOINT.split(spec)
    if len(parts) > 1:
        return FirstOfConfig(tuple(parse_drafter(part) for part in parts))
    kind, _, argument = spec.partition(":")
    if kind in ("model", "prediction") and not argument:
        if kind == "prediction":
            return PredictionConfig()
        raise InvalidValueError("drafter", spec, "name the draft model: model:PATH")
    match kind:
        case "none" if not argument:
            return NoDrafter()
        case "ngram" if not argument:
            return NgramConfig()
        case "auto" if not argument:
            return AUTO_DRAFTER
        case "model":
            return ModelDraftConfig(argument)
        case "prediction":
            return PredictionConfig(_read_text(argument))
    raise InvalidValueError("drafter", spec, f"choose one of {DRAFTER_SPELLINGS}")


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = str(getattr(error, "strerror", None) or "its name is not one of a file")
        if isinstance(error, UnicodeDecodeError):
            reason = "it is not UTF-8"
        raise InvalidValueError(
            "drafter", f"prediction:{path}", f"the file cannot be read: {reason}"
        ) from error


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Everything about an engine that is not the model itself.

    Attributes:
        drafter: who guesses.
        num_speculative_tokens: draft tokens a step, the paper's k; ``"auto"`` chooses k for
            each request and step from its own acceptance and the measured step times.
        verification: ``"coupled"`` (same tokens as plain decoding), ``"rejection"``
            (the same distribution), or ``"auto"``: coupled when a request has a seed or is
            greedy, rejection otherwise.
        dtype: precision of weights and cache; ``"auto"`` is bfloat16, except on processors
            that can only emulate it, where it is float32.
        quantization: of the linear layers: ``"none"``; ``"int8"``, a scale an output channel;
            ``"int4"``, a scale and an offset for each group of inputs, head and embedding int8.
            A GGUF's own 4-bit and 8-bit blocks are taken over without a second rounding.
        draft_quantization: the same for draft models. It cannot change a token, only how often
            the draft is right and how long it takes. ``"auto"`` is int4 where there are compiled
            kernels for it, else none.
        draft_vocabulary: draft models propose only the first so many tokens of the vocabulary,
            which byte-pair encodings sort by frequency, and those that end a text; None: all.
            Their head is most of what a small model with a large vocabulary reads.
        group_size: inputs that share a scale under int4; 32, 64 or 128.
        max_model_len: longest context in tokens; None: the model's own, if memory allows.
        max_num_seqs: most sequences in one step.
        max_num_batched_tokens: most known tokens (prompt pieces) in one step.
        block_size: tokens in one cache block.
        kv_cache_tokens: size of the cache in tokens; None chooses by the context and memory.
        prefix_caching: reuse the cache of equal beginnings.
        tree_attention: ``"paths"`` gives each branch of a draft tree its own keys and is
            exact bit for bit; ``"mask"`` computes the tree once under an ancestor mask,
            where off the first branch the last bits may differ. On the compiled kernels both
            are exact.
        device: a torch device; None: the GPU if there is one.
        threads: CPU threads of this process; None: as PyTorch chooses, all cores. Beside
            another busy process one thread less than cores is often much faster.
    """

    drafter: DrafterConfig = field(default_factory=NgramConfig)
    num_speculative_tokens: int | Literal["auto"] = "auto"
    verification: Verification = "auto"
    dtype: Dtype = "auto"
    quantization: Quantization = "none"
    draft_quantization: Quantization | Literal["auto"] = "auto"
    draft_vocabulary: int | None = 65_536
    group_size: int = 64
    max_model_len: int | None = None
    max_num_seqs: int = 16
    max_num_batched_tokens: int = 512
    block_size: int = 16
    kv_cache_tokens: int | None = None
    prefix_caching: bool = True
    tree_attention: TreeAttention = "paths"
    device: str | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        check_type("drafter", self.drafter, DrafterConfig, "a drafter configuration")
        check_type("prefix_caching", self.prefix_caching, bool, "True or False")
        object.__setattr__(self, "dtype", _spelled_out(self.dtype))
        _check_quantization("quantization", self.quantization)
        if self.draft_quantization != "auto":
            _check_quantization("draft_quantization", self.draft_quantization)
        if self.draft_vocabulary is not None:
            check_integer("draft_vocabulary", self.draft_vocabulary, 1)
        _check_choice("group_size", self.group_size, (32, 64, 128))
        _check_choice("verification", self.verification, ("auto", "coupled", "rejection"))
        _check_choice("tree_attention", self.tree_attention, ("paths", "mask"))
        k = self.num_speculative_tokens
        if k != "auto":
            check_integer("num_speculative_tokens", k, 0, MAX_SPECULATIVE_TOKENS)
        if self.max_model_len is not None:
            check_integer("max_model_len", self.max_model_len, 2)
        check_integer("max_num_seqs", self.max_num_seqs, 1)
        check_integer("max_num_batched_tokens", self.max_num_batched_tokens, 1)
        check_integer("block_size", self.block_size, 1, 1024)
        if self.threads is not None:
            check_integer("threads", self.threads, 1, 1024)
        if self.kv_cache_tokens is not None:
            check_integer("kv_cache_tokens", self.kv_cache_tokens, 2)
