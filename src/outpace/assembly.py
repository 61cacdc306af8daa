"""Putting an engine together: names become loaded models, drafters and a plan of memory."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from outpace.cache.blocks import BlockManager
from outpace.cache.plan import MemoryPlan, ModelSize, plan_memory
from outpace.config import (
    AUTO_DRAFTER,
    DrafterConfig,
    EngineConfig,
    GrammarDraftConfig,
    ModelDraftConfig,
    NgramConfig,
    NoDrafter,
    PredictionConfig,
)
from outpace.control.automatic import AutomaticController
from outpace.control.controller import Controller, FixedController
from outpace.control.kept import MeasuredCost
from outpace.drafter_parts import Bench, DrafterParts
from outpace.engine.admission import Admission
from outpace.engine.costs import checkpoint_fingerprint, usable_cores
from outpace.engine.drafting import Drafting
from outpace.engine.engine import Engine
from outpace.engine.kept_exits import Calibration
from outpace.engine.warmup import is_batch_invariant
from outpace.errors import InvalidValueError
from outpace.found_model import FoundModel, available_bytes, choose_device
from outpace.grammar.compiler import GrammarCompiler
from outpace.grammar.vocabulary import grammar_vocabulary
from outpace.kernels.native import kernels
from outpace.loaded import LoadedDrafters
from outpace.model.config import ModelConfig
from outpace.model.converted import cache_folder
from outpace.model.heads.target import TargetMismatch
from outpace.model.native_decoder import NativeDecoder
from outpace.model.runner import ModelRunner
from outpace.spec.drafters.table import make_drafter
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
    model under the name of its source. ``loaded`` knows the drafters and brings others in their
    places. ``mismatches`` are heads that were trained for other weights than the target's.
    """

    engine: Engine
    tokenizer: Tokenizer
    folder: Path
    plan: MemoryPlan
    guarantee: str
    costs: Mapping[str, MeasuredCost]
    loaded: LoadedDrafters
    mismatches: tuple[TargetMismatch, ...] = ()

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
    device = choose_device(config.device)
    _use_threads(config.threads)
    target = FoundModel.find(model, config.dtype, config.quantization, config.group_size, device)
    tokenizer = Tokenizer.load(target.folder)
    configs = _configurations(config)
    bench = Bench(target, tokenizer, config, device)
    parts = DrafterParts(configs.values(), bench)
    plan = _plan(target, parts.sizes, config, device)
    blocks = BlockManager(
        plan.cache_tokens // config.block_size + 2, config.block_size, config.prefix_caching
    )
    runner = target.load(blocks.num_blocks * config.block_size + _READ_AHEAD, device)
    _report_fallback(config, runner)
    workshop = parts.workshop(runner)
    drafters = {name: make_drafter(one, workshop) for name, one in configs.items()}
    guarantee = _guarantee(runner, config)
    admission = Admission(
        target.config,
        plan.max_model_len,
        config.verification,
        drafters,
        config.drafter.name,
        lambda params: SequenceText.opener(tokenizer, params),
        _grammars(target.config, tokenizer),
    )
    costs = _measure(
        config, (target, runner), [(parts.drafts[one], r) for one, r in parts.runners.items()]
    )
    drafting = Drafting(drafters, target.config.vocab_size)
    controller = _make_controller(config, costs)
    engine = Engine(runner, blocks, drafting, controller, admission, config)
    loaded = LoadedDrafters(configs, bench, engine)
    return Assembly(
        engine, tokenizer, target.folder, plan, guarantee, costs, loaded, parts.mismatches
    )


def _guarantee(runner: ModelRunner, config: EngineConfig) -> str:
    """What holds on this machine for this model."""
    invariant = is_batch_invariant(runner, config.block_size)
    exact_trees = config.tree_attention == "paths" or isinstance(runner.decoder, NativeDecoder)
    return "bit-exact" if invariant and exact_trees else "near-tie"


def calibration(runner: ModelRunner, folder: Path) -> Calibration:
    """What is known, or can be found out, of a target's early exits."""
    return Calibration(runner, folder, cache_folder())


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
    target: FoundModel,
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


def _configurations(config: EngineConfig) -> dict[str, DrafterConfig]:
    """The configured drafter, and beside it those that cost nothing to have."""
    return {
        "none": NoDrafter(),
        "ngram": NgramConfig(),
        "prediction": PredictionConfig(),
        "grammar": GrammarDraftConfig(),
        "auto": AUTO_DRAFTER,
        config.drafter.name: config.drafter,
    }


def _measure(
    config: EngineConfig,
    target: tuple[FoundModel, ModelRunner],
    drafts: list[tuple[FoundModel, ModelRunner]],
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


def _make_controller(config: EngineConfig, costs: Mapping[str, MeasuredCost]) -> Controller:
    if config.num_speculative_tokens == "auto":
        drafts = {name: cost.table for name, cost in costs.items() if name != "target"}
        return AutomaticController(costs["target"].table, drafts)
    return FixedController(config.num_speculative_tokens)
