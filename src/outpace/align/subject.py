"""What is brought up to date: a head or a draft model that can be trained further."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from outpace.config import (
    DrafterConfig,
    EagleConfig,
    MedusaConfig,
    ModelDraftConfig,
    parse_drafter,
    spelled,
)
from outpace.errors import InvalidValueError
from outpace.model.heads.target import shipped_head
from outpace.model.source import resolve
from outpace.train.draft import DraftOptions, old_draft
from outpace.train.eagle_task import EagleOptions
from outpace.train.further import old_eagle, old_medusa
from outpace.train.loop import LoopState
from outpace.train.losses import LossName
from outpace.train.medusa import MedusaOptions
from outpace.train.recipes import Ground, Watch, train_draft, train_eagle, train_medusa
from outpace.train.target_parts import TargetParts

Learn = Callable[[Ground, LossName, Watch], LoopState]


@dataclass(frozen=True, slots=True)
class Subject:
    """A drafter with something to train.

    Attributes:
        config: how it is loaded.
        folder: where it is.
        taps: the target's layers whose states its training needs.
        learn: trains it further.
    """

    config: DrafterConfig
    folder: Path
    taps: tuple[int, ...]
    learn: Learn

    def trained(self, folder: Path) -> DrafterConfig:
        """The configuration of the one that came out."""
        return parse_drafter(f"{self.config.name}:{folder}")


def find_subject(config: DrafterConfig, target: TargetParts) -> Subject:
    """Find and read it, so that what cannot be trained is refused now.

    Raises:
        OutpaceError: it is missing, damaged, for another target, or has nothing to train.
    """
    match config:
        case EagleConfig(path=path):
            folder = Path(path).expanduser() if path else shipped_head(target.folder)
            head, _ = old_eagle(folder, target)
            return Subject(config, folder, head.shape.taps, _Further(folder).eagle)
        case MedusaConfig(path=path):
            folder = Path(path).expanduser()
            old_medusa(folder, target)
            return Subject(config, folder, (), _Further(folder).medusa)
        case ModelDraftConfig(model=model):
            folder = resolve(model)
            old_draft(folder, target)
            return Subject(config, folder, (), _Further(folder).draft)
    way_out = "has nothing to train; name the head or draft: eagle:PATH, medusa:PATH or model:PATH"
    raise InvalidValueError("drafter", spelled(config), way_out)


@dataclass(frozen=True, slots=True)
class _Further:
    """The recipes, from what is in a folder."""

    folder: Path

    def eagle(self, ground: Ground, loss: LossName, watch: Watch) -> LoopState:
        return train_eagle(ground, 0, EagleOptions(loss=loss), watch, self.folder)

    def medusa(self, ground: Ground, loss: LossName, watch: Watch) -> LoopState:
        return train_medusa(ground, 0, 0, MedusaOptions(loss=loss), watch, self.folder)

    def draft(self, ground: Ground, loss: LossName, watch: Watch) -> LoopState:
        return train_draft(ground, self.folder, {}, DraftOptions(loss=loss), watch)
