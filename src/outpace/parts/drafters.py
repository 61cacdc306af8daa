"""Which drafters an engine has, and between which of them it may choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outpace.config import (
    AUTO_DRAFTER,
    BestOfConfig,
    DrafterConfig,
    EagleConfig,
    EngineConfig,
    FirstOfConfig,
    GrammarDraftConfig,
    NgramConfig,
    NoDrafter,
    PredictionConfig,
    SuffixConfig,
)
from outpace.engine.menu import Brings, Menu
from outpace.model.heads.target import has_shipped_head
from outpace.parts.source import Source
from outpace.spec.drafter import Drafter
from outpace.spec.drafters.table import Workshop, make_drafter

# What of a request these need: its place in `Brings`.
_NEEDS: dict[DrafterConfig, int] = {PredictionConfig(): 0, GrammarDraftConfig(): 1}
_ALL_BRINGS: tuple[Brings, ...] = ((False, False), (True, False), (False, True), (True, True))


@dataclass(frozen=True, slots=True)
class DrafterSet:
    """The drafters of an engine by name, and the choice between them, if there is one."""

    configs: Mapping[str, DrafterConfig]
    menu: Menu | None

    def made(self, workshop: Workshop) -> dict[str, Drafter]:
        """The drafters themselves; what several of them are made of is made once."""
        return {name: make_drafter(config, workshop) for name, config in self.configs.items()}


def drafter_set(config: EngineConfig, target: Source) -> DrafterSet:
    """The configured drafter, beside it those that cost nothing to have, and the choice.

    Where one drafter is configured there is no choice: who names it wants it. ``auto`` stands for
    all that need neither a checkpoint nor training: lookups in the request and in earlier
    outputs, the head that comes with Outpace for this very target, if there is one, and, for
    requests that bring them, predictions and grammars before each of these. Several that are
    joined stand for each of them and for all together.
    """
    configs: dict[str, DrafterConfig] = {
        "none": NoDrafter(),
        "ngram": NgramConfig(),
        "prediction": PredictionConfig(),
        "grammar": GrammarDraftConfig(),
        "auto": AUTO_DRAFTER,
    }
    configs[config.drafter.name] = config.drafter
    if not config.chooses_drafter:
        return DrafterSet(configs, None)
    automatic = config.drafter == AUTO_DRAFTER
    ways = _automatic(target) if automatic else _parts(config.drafter)
    names: dict[Brings, tuple[str, ...]] = {}
    for brings in _ALL_BRINGS:
        offered = [NoDrafter(), *(_with_brought(ways, brings) if automatic else ways)]
        offered = [one for one in offered if _has_all(one, brings)]
        configs |= {one.name: one for one in offered}
        names[brings] = tuple(dict.fromkeys(one.name for one in offered))
    return DrafterSet(configs, Menu(names, frozenset({"auto"} if automatic else ())))


def _automatic(target: Source) -> list[DrafterConfig]:
    ways: list[DrafterConfig] = [NgramConfig(), SuffixConfig()]
    if has_shipped_head(target.folder, target.config.hidden_size):
        ways += [EagleConfig(), FirstOfConfig((NgramConfig(), EagleConfig()))]
    return ways


def _parts(drafter: DrafterConfig) -> list[DrafterConfig]:
    """A drafter that is made of others, and these, in their order."""
    if not isinstance(drafter, FirstOfConfig | BestOfConfig):
        return [drafter]
    parts = [part for one in drafter.drafters for part in _parts(one)]
    return list(dict.fromkeys([*parts, *drafter.drafters, drafter]))


def _with_brought(ways: Sequence[DrafterConfig], brings: Brings) -> list[DrafterConfig]:
    """What the request brings before each way; then that alone, and the ways alone."""
    brought = tuple(one for one, place in _NEEDS.items() if brings[place])
    if not brought:
        return list(ways)
    joined = [FirstOfConfig((*brought, *_singles(way))) for way in ways]
    alone = [FirstOfConfig(brought) if len(brought) > 1 else brought[0]]
    return [*joined, *alone, *ways]


def _singles(way: DrafterConfig) -> tuple[DrafterConfig, ...]:
    return way.drafters if isinstance(way, FirstOfConfig) else (way,)


def _has_all(drafter: DrafterConfig, brings: Brings) -> bool:
    """Whether a drafter could ever draft for requests that bring this."""
    if isinstance(drafter, FirstOfConfig | BestOfConfig):
        return any(_has_all(one, brings) for one in drafter.drafters)
    place = _NEEDS.get(drafter)  # a prediction with a text of its own is another value
    return place is None or brings[place]
