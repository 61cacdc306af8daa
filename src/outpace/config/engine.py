"""How an engine is set up: plain frozen values, checked when they are made."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Literal

from outpace.config.checks import (
    check_choice,
    check_integer,
    check_quantization,
    check_type,
    spelled_out_dtype,
)
from outpace.config.drafters import BestOfConfig, DrafterConfig, FirstOfConfig, NgramConfig
from outpace.config.words import (
    MAX_SPECULATIVE_TOKENS,
    Dtype,
    Quantization,
    TreeAttention,
    Verification,
)
from outpace.errors import InvalidValueError


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
            kernels for it, and int8 for heads, else none.
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
        drafter_policy: a TOML file that pins, forbids or orders drafters by type of request, for an
            automatic choice; see `outpace.control.policy.read_policy`.
        request_types: a TOML file of rules that tell types of requests, asked before those that
            are built in; see `outpace.control.rules.read_rules`.
        keep_learned: whether what an automatic k learns of acceptance is kept in the cache
            folder for the next start with the same models.
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
    drafter_policy: str | None = None
    request_types: str | None = None
    keep_learned: bool = True

    def __post_init__(self) -> None:
        check_type("drafter", self.drafter, DrafterConfig, "a drafter configuration")
        check_type("prefix_caching", self.prefix_caching, bool, "True or False")
        check_type("keep_learned", self.keep_learned, bool, "True or False")
        for name in ("drafter_policy", "request_types"):
            object.__setattr__(self, name, _file_name(name, getattr(self, name)))
        object.__setattr__(self, "dtype", spelled_out_dtype(self.dtype))
        check_quantization("quantization", self.quantization)
        if self.draft_quantization != "auto":
            check_quantization("draft_quantization", self.draft_quantization)
        if self.draft_vocabulary is not None:
            check_integer("draft_vocabulary", self.draft_vocabulary, 1)
        check_choice("group_size", self.group_size, (32, 64, 128))
        check_choice("verification", self.verification, ("auto", "coupled", "rejection"))
        check_choice("tree_attention", self.tree_attention, ("paths", "mask"))
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
        if self.drafter_policy is not None and not self.chooses_drafter:
            raise InvalidValueError(
                "drafter_policy",
                self.drafter_policy,
                "there is no choice of drafters: use drafter = auto or several joined by '+', and "
                "num_speculative_tokens = auto",
            )

    @property
    def chooses_drafter(self) -> bool:
        """Whether each request gets the drafter that promises it most."""
        several = isinstance(self.drafter, FirstOfConfig | BestOfConfig)
        return several and self.num_speculative_tokens == "auto"


def _file_name(name: str, value: Any) -> str | None:
    """A path as text; none is none."""
    if value is None:
        return None
    check_type(name, value, str | os.PathLike, "the path of a TOML file")
    return str(os.fspath(value))
