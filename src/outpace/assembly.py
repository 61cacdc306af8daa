"""Putting an engine together: names become loaded models, drafters and a plan of memory."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from outpace.cache.blocks import BlockManager
from outpace.cache.plan import MemoryPlan, ModelSize, plan_memory
from outpace.config import (
    EarlyExitConfig,
    EngineConfig,
    ModelDraftConfig,
    Quantization,
)
from outpace.control.keeper import Keeper
from outpace.control.kept import MeasuredCost
from outpace.control.rules import read_rules
from outpace.control.types import RequestTypes
from outpace.engine.admission import Admission
from outpace.engine.costs import checkpoint_fingerprint, usable_cores
from outpace.engine.drafting import Drafting
from outpace.engine.engine import Engine
from outpace.engine.kept_exits import Calibration
from outpace.engine.warmup import is_batch_invariant
from outpace.errors import DraftError, InvalidValueError
from outpace.grammar.compiler import GrammarCompiler
from outpace.grammar.vocabulary import grammar_vocabulary
from outpace.kernels.native import kernels
from outpace.model.config import ModelConfig
from outpace.model.converted import cache_folder
from outpace.model.heads.source import HeadConfig, HeadSource, find_source
from outpace.model.heads.target import TargetMismatch
from outpace.model.native_decoder import NativeDecoder
from outpace.model.precision import Precision
from outpace.model.runner import ModelRunner
from outpace.parts.control import chosen_policy, keeper_for, make_controller
from outpace.parts.drafters import drafter_set
from outpace.parts.source import Source, choose_device
from outpace.spec.drafters.table import (
    Workshop,
    check_drafter,
    draft_models,
    heads,
)
from outpace.text.output import SequenceText
from outpace.text.sample import SAMPLE
from outpace.text.tokenizer import Tokenizer

# The attention may read up to this many slots past a sequence's last one, all of them masked.
_READ_AHEAD = 512
# Draft tokens for which the largest step's logits are planned when k is automatic.
_PLANNED_DRAFT = 16
# About how long measuring a model's steps may take.
_TARGET_SECONDS, _DRAFT_SECONDS = 1.6, 0.4


@dataclass(frozen=True, slots=True)
class Assembly:
    """A ready engine and what belongs to it.

    ``costs`` has what was measured for an automatic k: of ``"target"``, and of the draft
    model under the name of its source. ``mismatches`` are heads that were trained for other
    weights than the target's. ``types`` gives
    requests their types; ``keeper`` keeps what an automatic k learns.
    """

    engine: Engine
    tokenizer: Tokenizer
    folder: Path
    plan: MemoryPlan
    guarantee: str
    costs: Mapping[str, MeasuredCost]
    types: RequestTypes
    mismatches: tuple[TargetMismatch, ...] = ()
    keeper: Keeper | None = None

    @property
    def fingerprint(self) -> str:
        """Tells checkpoints apart."""
        return checkpoint_fingerprint(self.folder)


def assemble(model: str, config: EngineConfig) -> Assembly:
    """Find, check, plan, load and warm up.

    Raises:
        OutpaceError: a model is missing or damaged, a draft does not fit, or memory does not
            suffice; everything that can be checked is checked before weights are loaded.
    """
    types = RequestTypes(() if config.request_types is None else read_rules(config.request_types))
    device = choose_device(config.device)
    _use_threads(config.threads)
    target = Source.find(model, config.dtype, config.quantization, config.group_size, device)
    tokenizer = Tokenizer.load(target.folder)
    check_drafter(config.drafter, tokenizer)
    chosen = drafter_set(config, target)
    policy = chosen_policy(config, chosen)
    drafts = {one: _find_draft(one, config, device) for one in draft_models(config.drafter)}
    others = {one: _other_tokenizer(one, tokenizer, drafts[one]) for one in drafts}
    proposed = {one: _proposed(config, target, drafts[one], others[one]) for one in drafts}
    wanted = dict.fromkeys(head for one in chosen.configs.values() for head in heads(one))
    read = {one: _find_head(one, target, config) for one in wanted}
    plan = _plan(target, drafts.values(), read.values(), config, device)
    blocks = BlockManager(
        plan.cache_tokens // config.block_size + 2, config.block_size, config.prefix_caching
    )
    num_slots = blocks.num_blocks * config.block_size + _READ_AHEAD
    runner = target.load(num_slots, device)
    _report_fallback(config, runner)
    made: dict[ModelDraftConfig, ModelRunner] = {}
    workshop = Workshop(
        target=runner,
        tokenizer=tokenizer,
        draft_runner=lambda one: made.setdefault(
            one, drafts[one].load(num_slots, device, proposed[one])
        ),
        other_tokenizer=others.__getitem__,
        exit_layers=lambda one: _exit_layers(one, runner, target.folder, tokenizer),
        head=read.__getitem__,
        block_size=config.block_size,
    )
    drafters = chosen.made(workshop)
    guarantee = _guarantee(runner, config)
    admission = _admission(config, target.config, plan.max_model_len, drafters, tokenizer)
    costs = _measure(config, (target, runner), [(drafts[one], r) for one, r in made.items()])
    drafting = Drafting(drafters, target.config.vocab_size, chosen.menu)
    mismatches = tuple(one.mismatch for one in read.values() if one.mismatch is not None)
    keeper = keeper_for(config, target.folder, [one.folder for one in drafts.values()], read)
    sources = {name: one.sources for name, one in drafters.items()}
    controller = make_controller(config, costs, chosen, sources, policy, keeper)
    engine = Engine(runner, blocks, drafting, controller, admission, config)
    if keeper is not None:
        engine.on_end = keeper.ended
    return Assembly(
        engine, tokenizer, target.folder, plan, guarantee, costs, types, mismatches, keeper
    )


def _admission(
    config: EngineConfig,
    target: ModelConfig,
    max_model_len: int,
    drafters: Collection[str],
    tokenizer: Tokenizer,
) -> Admission:
    return Admission(
        target,
        max_model_len,
        config.verification,
        drafters,
        config.drafter.name,
        lambda params: SequenceText.opener(tokenizer, params),
        _grammars(target, tokenizer),
    )


def _find_draft(draft: ModelDraftConfig, config: EngineConfig, device: torch.device) -> Source:
    quantization = draft.quantization or _draft_quantization(config, device)
    return Source.find(draft.model, draft.dtype, quantization, config.group_size, device)


def _guarantee(runner: ModelRunner, config: EngineConfig) -> str:
    """What holds on this machine for this model."""
    invariant = is_batch_invariant(runner, config.block_size)
    exact_trees = config.tree_attention == "paths" or isinstance(runner.decoder, NativeDecoder)
    return "bit-exact" if invariant and exact_trees else "near-tie"


def calibration(runner: ModelRunner, folder: Path) -> Calibration:
    """What is known, or can be found out, of a target's early exits."""
    return Calibration(runner, folder, cache_folder())


def _exit_layers(
    config: EarlyExitConfig, runner: ModelRunner, folder: Path, tokenizer: Tokenizer
) -> tuple[int, ...]:
    if config.exit_layer != "auto":
        return config.layers(runner.decoder.config.num_layers)
    return calibration(runner, folder).layers(lambda: tokenizer.encode(SAMPLE))


def _grammars(target: ModelConfig, tokenizer: Tokenizer) -> GrammarCompiler:
    size = target.vocab_size
    ends = frozenset(token for token in target.eos_token_ids if token < size)
    return GrammarCompiler(
        lambda: grammar_vocabulary(tokenizer.serialized(), size, ends), size, ends
    )


def _report_fallback(config: EngineConfig, runner: ModelRunner) -> None:
    """Integers without kernels for them are exact, but save nothing: not without a word."""
    if config.quantization != "none" and not isinstance(runner.decoder, NativeDecoder):
        reason = kernels().reason or f"none for {runner.decoder.device} or heads of this size"
        logging.getLogger("outpace").warning(
            "quantization = %s: computed on PyTorch as the numbers that the integers stand for, "
            "which saves neither time nor memory; compiled kernels: %s",
            config.quantization,
            reason,
        )


def _use_threads(threads: int | None) -> None:
    if threads is None:
        return
    cores = usable_cores()
    if threads > cores:
        # They would wait for each other at the end of every layer, many times a step.
        raise InvalidValueError(
            "threads", threads, f"this process may use {cores} cores; more threads only slow it"
        )
    torch.set_num_threads(threads)


def _draft_quantization(config: EngineConfig, device: torch.device) -> Quantization:
    if config.draft_quantization != "auto":
        return config.draft_quantization
    return "int4" if device.type == "cpu" and kernels().name else "none"


def _proposed(
    config: EngineConfig, target: Source, draft: Source, other: Tokenizer | None
) -> Collection[int] | None:
    """The tokens that a draft model may propose: the frequent ones, and ends of text."""
    if config.draft_vocabulary is None:
        return None
    size = draft.config.vocab_size
    ends = draft.config.eos_token_ids
    if other is None:
        size = min(target.config.vocab_size, size)
        ends = target.config.eos_token_ids
    else:
        ends = (*ends, *other.eos_token_ids)
    ends = tuple(token for token in ends if token < size)
    return {*range(min(config.draft_vocabulary, size)), *ends}


def _other_tokenizer(
    draft: ModelDraftConfig, tokenizer: Tokenizer, source: Source
) -> Tokenizer | None:
    """The draft's tokenizer, if its tokens are not the target's.

    Raises:
        DraftError: it cannot be the tokenizer of the draft model.
    """
    other = Tokenizer.load(source.folder)
    if tokenizer.same_vocabulary(other) is None:
        return None
    if (size := len(other.vocabulary())) > source.config.vocab_size:
        raise DraftError(
            f"drafter = 'model:{draft.model}': its tokenizer has {size} tokens, but its model "
            f"only {source.config.vocab_size}; they do not belong together: download it again"
        )
    return other


def _find_head(head: HeadConfig, target: Source, config: EngineConfig) -> HeadSource:
    """A head, quantized as its configuration asks, or else the engine's."""
    chosen = head.quantization or config.draft_quantization
    if chosen == "auto":
        # Most of what a head reads are its last rows, which one scale each rounds hardly at all.
        chosen = "int8" if kernels().name and target.precision.dtype == torch.bfloat16 else "none"
    precision = Precision(target.precision.dtype, chosen, config.group_size)
    return find_source(head, target.folder, target.config, precision)


def _plan(
    target: Source,
    drafts: Iterable[Source],
    read: Iterable[HeadSource],
    config: EngineConfig,
    device: torch.device,
) -> MemoryPlan:
    available = psutil.virtual_memory().available
    if device.type == "cuda":
        available = torch.cuda.mem_get_info(device)[0]
    k = config.num_speculative_tokens
    rows = config.max_num_seqs * (1 + (_PLANNED_DRAFT if k == "auto" else k))
    logits_bytes = rows * target.config.vocab_size * torch.float32.itemsize
    return plan_memory(
        target.size(device),
        [draft.size(device) for draft in drafts]
        + [ModelSize(one.stored_bytes, one.bytes_per_token, 0) for one in read],
        logits_bytes,
        available,
        config.max_model_len,
        config.kv_cache_tokens,
    )


def _measure(
    config: EngineConfig,
    target: tuple[Source, ModelRunner],
    drafts: list[tuple[Source, ModelRunner]],
) -> dict[str, MeasuredCost]:
    """What steps cost, where somebody wants to know; of several draft models the first's."""
    if config.num_speculative_tokens != "auto":
        return {}
    source, runner = target
    costs = {"target": source.cost(runner, _TARGET_SECONDS)}
    if drafts:
        source, runner = drafts[0]
        costs[ModelDraftConfig.name] = source.cost(runner, _DRAFT_SECONDS)
    return costs
