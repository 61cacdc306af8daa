"""How each drafter is made from its configuration: one line a drafter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from outpace.cache.pools import KVPool
from outpace.config import (
    DrafterConfig,
    EagleConfig,
    FirstOfConfig,
    MedusaConfig,
    ModelDraftConfig,
    NgramConfig,
    NoDrafter,
    PredictionConfig,
)
from outpace.model.heads.eagle_load import EagleHead
from outpace.model.heads.medusa import MedusaHeads
from outpace.model.heads.source import HeadConfig, HeadSource
from outpace.model.runner import ModelRunner
from outpace.spec.drafter import Drafter
from outpace.spec.drafters.eagle import EagleDrafter
from outpace.spec.drafters.first_of import FirstOfDrafter
from outpace.spec.drafters.medusa import MedusaDrafter
from outpace.spec.drafters.model import ModelDrafter
from outpace.spec.drafters.ngram import NgramDrafter
from outpace.spec.drafters.none import NoneDrafter
from outpace.spec.drafters.prediction import PredictionDrafter
from outpace.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Workshop:
    """What drafters are made with.

    Attributes:
        target: the target model, with its cache.
        tokenizer: of the target.
        draft_runner: the loaded draft model of a configuration, its cache included.
        head: the head of a configuration, read and found to fit.
        block_size: tokens in a cache block.
    """

    target: ModelRunner
    tokenizer: Tokenizer
    draft_runner: Callable[[ModelDraftConfig], ModelRunner]
    head: Callable[[HeadConfig], HeadSource]
    block_size: int

    @property
    def vocab_size(self) -> int:
        """Of the target."""
        return self.target.decoder.config.vocab_size

    def encode(self, text: str) -> tuple[int, ...]:
        """Text to the target's token ids, without special tokens."""
        return tuple(self.tokenizer.encode(text, special=False))


def make_drafter(config: DrafterConfig, workshop: Workshop) -> Drafter:
    """The drafter that a configuration describes."""
    match config:
        case NoDrafter():
            return NoneDrafter()
        case NgramConfig():
            return NgramDrafter(config)
        case PredictionConfig():
            return PredictionDrafter(config, workshop.encode(config.text))
        case ModelDraftConfig():
            runner = workshop.draft_runner(config)
            return ModelDrafter(runner, workshop.block_size, workshop.vocab_size)
        case EagleConfig() | MedusaConfig():
            return _make_head_drafter(config, workshop)
        case FirstOfConfig():
            return FirstOfDrafter([make_drafter(one, workshop) for one in config.drafters])


def _make_head_drafter(config: HeadConfig, workshop: Workshop) -> Drafter:
    source, target = workshop.head(config), workshop.target
    match config, source.head:
        case EagleConfig(), EagleHead() as head:
            made = head.prepared(target.decoder, source.precision)
            layer = head.config.layer
            shape = (1, target.pool.num_slots, layer.num_kv_heads, layer.head_dim)
            pool = KVPool(*shape, made.dtype, made.device)
            return EagleDrafter(made, head.vocabulary, pool, workshop.block_size, config)
        case MedusaConfig(), MedusaHeads() as heads:
            return MedusaDrafter(heads.prepared(target.decoder, source.precision), heads.vocabulary)
        case _:
            raise TypeError(f"{config} came with {type(source.head).__name__}")


def heads(config: DrafterConfig) -> list[HeadConfig]:
    """The heads that a configuration needs read."""
    match config:
        case EagleConfig() | MedusaConfig():
            return [config]
        case FirstOfConfig():
            return [head for one in config.drafters for head in heads(one)]
        case _:
            return []


def draft_models(config: DrafterConfig) -> list[ModelDraftConfig]:
    """The draft models that a configuration needs loaded."""
    match config:
        case ModelDraftConfig():
            return [config]
        case FirstOfConfig():
            return [model for one in config.drafters for model in draft_models(one)]
        case _:
            return []
