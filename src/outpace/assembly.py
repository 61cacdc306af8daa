"""Putting an engine together: names become loaded models, drafters and a plan of memory."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from outpace.cache.blocks import BlockManager
from outpace.cache.plan import MemoryPlan, ModelSize, plan_memory
from outpace.config import (
    EngineConfig,
    ModelDraftConfig,
)
from outpace.control.keeper import Keeper
from outpace.control.kept import MeasuredCost
from outpace.control.rules import read_rules
from outpace.control.types import RequestTypes
from outpace.engine.admission import Admission
from outpace.engine.costs import checkpoint_fingerprint, usable_cores
from outpace.engine.drafting import Drafting
from outpace.engine.engine import Engine
from outpace.engine.warmup import is_batch_invariant
from outpace.errors import InvalidValueError
from outpace.grammar.compiler import GrammarCompiler
from outpace.grammar.vocabulary import grammar_vocabulary
from outpace.kernels.native import kernels
from outpace.model.config import ModelConfig
from outpace.model.heads.target import TargetMismatch
from outpace.model.native_decoder import NativeDecoder
from outpace.model.runner import ModelRunner
from outpace.parts.control import chosen_policy, keeper_for, make_controller
from outpace.parts.drafter_parts import Bench, DrafterParts
from outpace.parts.drafters import drafter_set
from outpace.parts.loaded import LoadedDrafters
from outpace.parts.source import Source, available_bytes, choose_device
from outpace.text.output import SequenceText
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
    model under the name of its source. ``types`` gives requests their types. ``loaded`` knows the
    drafters and brings others in their places. ``mismatches`` are heads that were trained for
    other weights than the target's. ``keeper`` keeps what an automatic k learns.
    """

    engine: Engine
    tokenizer: Tokenizer
    folder: Path
    plan: MemoryPlan
    guarantee: str
    costs: Mapping[str, MeasuredCost]
    types: RequestTypes
    loaded: LoadedDrafters
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
    chosen = drafter_set(config, target)
    policy = chosen_policy(config, chosen)
    bench = Bench(target, tokenizer, config, device)
    parts = DrafterParts(chosen.configs.values(), bench)
    plan = _plan(target, parts.sizes, config, device)
    blocks = BlockManager(
        plan.cache_tokens // config.block_size + 2, config.block_size, config.prefix_caching
    )
    runner = target.load(blocks.num_blocks * config.block_size + _READ_AHEAD, device)
    _report_fallback(config, runner)
    workshop = parts.workshop(runner)
    drafters = chosen.made(workshop)
    guarantee = _guarantee(runner, config)
    admission = _admission(config, target.config, plan.max_model_len, drafters, tokenizer)
    costs = _measure(
        config, (target, runner), [(parts.drafts[one], r) for one, r in parts.runners.items()]
    )
    drafting = Drafting(drafters, target.config.vocab_size, chosen.menu)
    keeper = keeper_for(config, target.folder, chosen.configs.values())
    sources = {name: one.sources for name, one in drafters.items()}
    controller = make_controller(config, costs, chosen, sources, policy, keeper)
    engine = Engine(runner, blocks, drafting, controller, admission, config)
    if keeper is not None:
        engine.on_end = keeper.ended
    return Assembly(
        engine=engine,
        tokenizer=tokenizer,
        folder=target.folder,
        plan=plan,
        guarantee=guarantee,
        costs=costs,
        types=types,
        loaded=LoadedDrafters(chosen.configs, workshop.made, bench, engine, keeper),
        mismatches=parts.mismatches,
        keeper=keeper,
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


def _guarantee(runner: ModelRunner, config: EngineConfig) -> str:
    """What holds on this machine for this model."""
    invariant = is_batch_invariant(runner, config.block_size)
    exact_trees = config.tree_attention == "paths" or isinstance(runner.decoder, NativeDecoder)
    return "bit-exact" if invariant and exact_trees else "near-tie"


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


def _plan(
    target: Source,
    others: list[ModelSize],
    config: EngineConfig,
    device: torch.device,
) -> MemoryPlan:
    k = config.num_speculative_tokens
    rows = config.max_num_seqs * (1 + (_PLANNED_DRAFT if k == "auto" else k))
    logits_bytes = rows * target.config.vocab_size * torch.float32.itemsize
    return plan_memory(
        target.size(device),
        others,
        logits_bytes,
        available_bytes(device),
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
