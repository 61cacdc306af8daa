"""How each drafter is made from its configuration: one line a drafter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from outpace.config import (
    DrafterConfig,
    FirstOfConfig,
    GrammarDraftConfig,
    ModelDraftConfig,
    NgramConfig,
    NoDrafter,
    PredictionConfig,
)
from outpace.model.runner import ModelRunner
from outpace.spec.drafter import Drafter
from outpace.spec.drafters.first_of import FirstOfDrafter
from outpace.spec.drafters.grammar import GrammarDrafter
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
        block_size: tokens in a cache block.
    """

    target: ModelRunner
    tokenizer: Tokenizer
    draft_runner: Callable[[ModelDraftConfig], ModelRunner]
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
        case GrammarDraftConfig():
            return GrammarDrafter()
        case PredictionConfig():
            return PredictionDrafter(config, workshop.encode(config.text))
        case ModelDraftConfig():
            runner = workshop.draft_runner(config)
            return ModelDrafter(runner, workshop.block_size, workshop.vocab_size)
        case FirstOfConfig():
            return FirstOfDrafter([make_drafter(one, workshop) for one in config.drafters])


def draft_models(config: DrafterConfig) -> list[ModelDraftConfig]:
    """The draft models that a configuration needs loaded."""
    match config:
        case ModelDraftConfig():
            return [config]
        case FirstOfConfig():
            return [model for one in config.drafters for model in draft_models(one)]
        case _:
            return []
