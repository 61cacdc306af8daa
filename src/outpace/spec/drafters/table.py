"""How each drafter is made from its configuration: one line a drafter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from outpace.cache.pools import KVPool
from outpace.config import (
    BestOfConfig,
    DatastoreConfig,
    DrafterConfig,
    EagleConfig,
    EarlyExitConfig,
    FirstOfConfig,
    GrammarDraftConfig,
    MedusaConfig,
    ModelDraftConfig,
    NgramConfig,
    NoDrafter,
    PredictionConfig,
    SingleConfig,
    SuffixConfig,
)
from outpace.model.heads.eagle_load import EagleHead
from outpace.model.heads.medusa import MedusaHeads
from outpace.model.heads.source import HeadConfig, HeadSource
from outpace.model.runner import ModelRunner
from outpace.spec.drafter import Drafter
from outpace.spec.drafters.best_of import BestOfDrafter
from outpace.spec.drafters.datastore import DatastoreDrafter
from outpace.spec.drafters.eagle import EagleDrafter
from outpace.spec.drafters.early_exit import EarlyExitDrafter
from outpace.spec.drafters.first_of import FirstOfDrafter
from outpace.spec.drafters.grammar import GrammarDrafter
from outpace.spec.drafters.in_other_words import Vocabularies
from outpace.spec.drafters.medusa import MedusaDrafter
from outpace.spec.drafters.model import ModelDrafter
from outpace.spec.drafters.ngram import NgramDrafter
from outpace.spec.drafters.none import NoneDrafter
from outpace.spec.drafters.prediction import PredictionDrafter
from outpace.spec.drafters.suffix import SuffixDrafter
from outpace.spec.drafters.universal import UniversalDrafter
from outpace.spec.index.file import open_index
from outpace.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Workshop:
    """What drafters are made with.

    Attributes:
        target: the target model, with its cache.
        tokenizer: of the target.
        draft_runner: the loaded draft model of a configuration, its cache included.
        other_tokenizer: of a draft model, if it is another one than the target's.
        exit_layers: the target's layers that draft by early exit.
        head: the head of a configuration, read and found to fit.
        block_size: tokens in a cache block.
        made: single drafters that were made with it, which others are made of too.
    """

    target: ModelRunner
    tokenizer: Tokenizer
    draft_runner: Callable[[ModelDraftConfig], ModelRunner]
    other_tokenizer: Callable[[ModelDraftConfig], Tokenizer | None]
    exit_layers: Callable[[EarlyExitConfig], tuple[int, ...]]
    head: Callable[[HeadConfig], HeadSource]
    block_size: int
    made: dict[DrafterConfig, Drafter] = field(default_factory=dict)

    @property
    def vocab_size(self) -> int:
        """Of the target."""
        return self.target.decoder.config.vocab_size

    def encode(self, text: str) -> tuple[int, ...]:
        """Text to the target's token ids, without special tokens."""
        return tuple(self.tokenizer.encode(text, special=False))


def make_drafter(config: DrafterConfig, workshop: Workshop) -> Drafter:
    """The drafter that a configuration describes; a single one is made once."""
    match config:
        case BestOfConfig():
            drafters = [make_drafter(one, workshop) for one in config.drafters]
            return BestOfDrafter(drafters, config.combine)
        case FirstOfConfig():
            return FirstOfDrafter([make_drafter(one, workshop) for one in config.drafters])
    if config not in workshop.made:
        workshop.made[config] = _make_single(config, workshop)
    return workshop.made[config]


def _make_single(config: SingleConfig, workshop: Workshop) -> Drafter:
    match config:
        case NoDrafter():
            return NoneDrafter()
        case NgramConfig():
            return NgramDrafter(config)
        case SuffixConfig():
            return SuffixDrafter(config)
        case DatastoreConfig():
            index = open_index(config.path, workshop.tokenizer.fingerprint())
            return DatastoreDrafter(config, index)
        case GrammarDraftConfig():
            return GrammarDrafter()
        case PredictionConfig():
            return PredictionDrafter(config, workshop.encode(config.text))
        case ModelDraftConfig():
            return _model_drafter(config, workshop)
        case EarlyExitConfig():
            target = workshop.target
            part = ModelRunner(target.decoder, target.pool, workshop.exit_layers(config))
            return EarlyExitDrafter(part, workshop.block_size)
        case EagleConfig() | MedusaConfig():
            return _make_head_drafter(config, workshop)


def _model_drafter(config: ModelDraftConfig, workshop: Workshop) -> Drafter:
    runner = workshop.draft_runner(config)
    other = workshop.other_tokenizer(config)
    if other is None:
        return ModelDrafter(runner, workshop.block_size, workshop.vocab_size)
    sizes = workshop.vocab_size, runner.decoder.config.vocab_size
    words = Vocabularies(workshop.tokenizer, other, *sizes)
    return UniversalDrafter(runner, workshop.block_size, words)


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
        case FirstOfConfig() | BestOfConfig():
            return [head for one in config.drafters for head in heads(one)]
        case _:
            return []


def draft_models(config: DrafterConfig) -> list[ModelDraftConfig]:
    """The draft models that a configuration needs loaded."""
    match config:
        case ModelDraftConfig():
            return [config]
        case FirstOfConfig() | BestOfConfig():
            return [model for one in config.drafters for model in draft_models(one)]
        case _:
            return []


def check_drafter(config: DrafterConfig, tokenizer: Tokenizer) -> None:
    """Refuse what can be refused before weights are loaded.

    Raises:
        DraftError: an index is missing, damaged, or of another tokenizer.
    """
    match config:
        case DatastoreConfig():
            open_index(config.path, tokenizer.fingerprint())
        case FirstOfConfig() | BestOfConfig():
            for one in config.drafters:
                check_drafter(one, tokenizer)
