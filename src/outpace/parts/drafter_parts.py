"""What drafters need beside the target: found and checked first, loaded when they are made."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch

from outpace.cache.plan import ModelSize
from outpace.config import (
    DrafterConfig,
    EarlyExitConfig,
    EngineConfig,
    ModelDraftConfig,
    Quantization,
)
from outpace.engine.kept_exits import Calibration
from outpace.errors import DraftError
from outpace.kernels.native import kernels
from outpace.model.converted import cache_folder
from outpace.model.heads.source import HeadConfig, HeadSource, find_source
from outpace.model.heads.target import TargetMismatch
from outpace.model.precision import Precision
from outpace.model.runner import ModelRunner
from outpace.parts.source import Source
from outpace.spec.drafter import Drafter
from outpace.spec.drafters.table import Workshop, check_drafter, draft_models, heads
from outpace.text.sample import SAMPLE
from outpace.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Bench:
    """What all drafters of an engine have in common.

    Attributes:
        target: the model that is drafted for, found.
        tokenizer: of it.
        config: of the engine.
        device: where everything runs.
    """

    target: Source
    tokenizer: Tokenizer
    config: EngineConfig
    device: torch.device


class DrafterParts:
    """Draft models and heads of some drafters, found, read and checked; nothing large is loaded.

    Args:
        drafters: the configurations.
        bench: see there.

    Raises:
        OutpaceError: a part is missing, damaged, or not for this target.
    """

    def __init__(self, drafters: Iterable[DrafterConfig], bench: Bench) -> None:
        self._bench = bench
        config, target, tokenizer = bench.config, bench.target, bench.tokenizer
        wanted = list(drafters)
        for drafter in wanted:
            check_drafter(drafter, tokenizer)
        names = dict.fromkeys(name for one in wanted for name in draft_models(one))
        self.drafts = {one: _find_draft(one, config, bench.device) for one in names}
        self._others = {
            one: _other_tokenizer(one, tokenizer, found) for one, found in self.drafts.items()
        }
        self._proposed = {
            one: _proposed(config, target, found, self._others[one])
            for one, found in self.drafts.items()
        }
        wanted_heads = dict.fromkeys(head for one in wanted for head in heads(one))
        self._heads = {one: _find_head(one, target, config) for one in wanted_heads}
        self.runners: dict[ModelDraftConfig, ModelRunner] = {}  # those that were loaded

    @property
    def sizes(self) -> list[ModelSize]:
        """What they will take."""
        device = self._bench.device
        return [draft.size(device) for draft in self.drafts.values()] + [
            ModelSize(head.stored_bytes, head.bytes_per_token, 0) for head in self._heads.values()
        ]

    @property
    def mismatches(self) -> tuple[TargetMismatch, ...]:
        """Heads that were trained for other weights than the target's."""
        return tuple(one.mismatch for one in self._heads.values() if one.mismatch is not None)

    def workshop(
        self, runner: ModelRunner, made: Mapping[DrafterConfig, Drafter] | None = None
    ) -> Workshop:
        """What drafters are made with, beside a loaded target.

        Args:
            runner: of the target.
            made: single drafters that are there already, and are taken as they are.
        """
        bench = self._bench
        return Workshop(
            target=runner,
            tokenizer=bench.tokenizer,
            draft_runner=lambda one: self._loaded(one, runner.pool.num_slots),
            other_tokenizer=self._others.__getitem__,
            exit_layers=lambda one: _exit_layers(one, runner, bench.target.folder, bench.tokenizer),
            head=self._heads.__getitem__,
            block_size=bench.config.block_size,
            made=dict(made or {}),
        )

    def _loaded(self, draft: ModelDraftConfig, num_slots: int) -> ModelRunner:
        if draft not in self.runners:
            found, tokens = self.drafts[draft], self._proposed[draft]
            self.runners[draft] = found.load(num_slots, self._bench.device, tokens)
        return self.runners[draft]


def _find_draft(draft: ModelDraftConfig, config: EngineConfig, device: torch.device) -> Source:
    quantization = draft.quantization or draft_quantization(config, device)
    return Source.find(draft.model, draft.dtype, quantization, config.group_size, device)


def _exit_layers(
    config: EarlyExitConfig, runner: ModelRunner, folder: Path, tokenizer: Tokenizer
) -> tuple[int, ...]:
    if config.exit_layer != "auto":
        return config.layers(runner.decoder.config.num_layers)
    return calibration(runner, folder).layers(lambda: tokenizer.encode(SAMPLE))


def calibration(runner: ModelRunner, folder: Path) -> Calibration:
    """What is known, or can be found out, of a target's early exits."""
    return Calibration(runner, folder, cache_folder())


def draft_quantization(config: EngineConfig, device: torch.device) -> Quantization:
    """Of draft models that say nothing of their own: int4 unless asked otherwise, where it pays."""
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
