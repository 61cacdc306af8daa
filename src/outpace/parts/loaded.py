"""The drafters of an engine by their names, and others that take their place while it runs."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from outpace.config import (
    BestOfConfig,
    DrafterConfig,
    EagleConfig,
    FirstOfConfig,
    MedusaConfig,
    ModelDraftConfig,
    SingleConfig,
    spelled,
)
from outpace.control.anew import begin_anew
from outpace.control.keeper import Keeper
from outpace.engine.engine import Engine
from outpace.errors import CapacityError, DraftError, InvalidValueError
from outpace.parts.control import pair_of
from outpace.parts.drafter_parts import Bench, DrafterParts
from outpace.parts.source import available_bytes
from outpace.spec.drafter import Drafter
from outpace.spec.drafters.table import make_drafter

TrainedConfig = EagleConfig | MedusaConfig | ModelDraftConfig
# What is left free for everything else, as a share of what is free now.
_SPARE = 0.1
_MOST_VERSIONS = 32


@dataclass(frozen=True, slots=True)
class Version:
    """What drafted from some moment on.

    Attributes:
        number: counts from 1.
        configs: of all drafters, by name.
        since: seconds since 1970, UTC.
    """

    number: int
    configs: Mapping[str, DrafterConfig]
    since: float


@dataclass(frozen=True, slots=True)
class Replacement:
    """Drafters that are loaded and wait to take their places; see `LoadedDrafters.put`.

    Attributes:
        drafters: by the names that they get.
        version: what is there once they have them.
        made: all single drafters of that version.
        anew: names of those among them that are new.
        pair: fingerprint of the target with them; empty where nothing is kept.
        goes_back: whether the version was there before.
    """

    drafters: Mapping[str, Drafter]
    version: Version
    made: Mapping[DrafterConfig, Drafter]
    anew: frozenset[str]
    pair: str
    goes_back: bool


class LoadedDrafters:
    """Which drafter is behind which name, and what was there before.

    Replacing takes two steps: `load` or `load_before` read and prepare, in any thread and for as
    long as they need, and change nothing. `put` then changes names, between two steps of the
    engine. Only one replacement may be under way at a time.

    Args:
        configs: by name, as they are now.
        made: the single drafters that these are made of, by configuration.
        bench: what the drafters were made with.
        engine: whose drafters they are.
        keeper: of what is learned of them; None: nothing is kept.
    """

    def __init__(
        self,
        configs: Mapping[str, DrafterConfig],
        made: Mapping[DrafterConfig, Drafter],
        bench: Bench,
        engine: Engine,
        keeper: Keeper | None,
    ) -> None:
        self._versions = [Version(1, dict(configs), time.time())]
        self._counted = 1
        self._made = made
        self._bench = bench
        self._engine = engine
        self._keeper = keeper

    @property
    def current(self) -> Version:
        """What new requests get."""
        return self._versions[-1]

    @property
    def before(self) -> Version | None:
        """What `load_before` goes back to."""
        return self._versions[-2] if len(self._versions) > 1 else None

    def load(self, part: DrafterConfig) -> Replacement:
        """Load a head or draft that takes the place of the one of its kind, wherever it drafts.

        Raises:
            OutpaceError: nothing of its kind is loaded, or it cannot be used here, or there is not
                enough memory for it beside the old one.
        """
        if not isinstance(part, TrainedConfig):
            way_out = "give a head or a draft model: eagle:PATH, medusa:PATH or model:PATH"
            raise InvalidValueError("drafter", spelled(part), way_out)
        configs = self.current.configs
        changed = {name: _with(one, part) for name, one in configs.items() if _has(one, part)}
        if not changed:
            loaded = ", ".join(sorted(configs))
            way_out = f"no drafter here has a part {part.name!r} (loaded: {loaded}); restart with"
            raise InvalidValueError("drafter", spelled(part), f"{way_out} --drafter {part.name}")
        self._counted += 1
        version = Version(self._counted, {**configs, **changed}, time.time())
        # The same name may stand for other weights by now, so what is of this kind is read anew.
        kept = {c: one for c, one in self._made.items() if type(c) is not type(part)}
        return self._prepare(changed, version, kept, goes_back=False)

    def load_before(self) -> Replacement:
        """Load what was there before the last replacement.

        Raises:
            OutpaceError: there was none, or it cannot be loaded any more.
        """
        before = self.before
        if before is None:
            raise DraftError("drafters: none was replaced since the start; nothing to go back to")
        now = self.current.configs
        changed = {name: one for name, one in before.configs.items() if one != now[name]}
        version = replace(before, since=time.time())
        return self._prepare(changed, version, self._made, goes_back=True)

    def put(self, replacement: Replacement) -> int:
        """Let new requests have what was loaded; call it between two steps.

        What was learned of the old drafters' acceptance is saved with them and forgotten; what
        was learned of the new ones before is taken up.

        Returns:
            How many running sequences finish with the old ones.

        Raises:
            DraftError: they cannot stand beside what is in use; nothing was changed.
        """
        engine, keeper = self._engine, self._keeper
        kept = engine.drafting.replace(replacement.drafters, engine.scheduler.running)
        sources = {source for one in replacement.drafters.values() for source in one.sources}
        sources = {source for source in sources if _names(source) & replacement.anew}
        engine.pacing.tell()  # what the old ones did is theirs
        if keeper is not None:
            keeper.save()
        begin_anew(engine.controller, sources)
        if keeper is not None:
            keeper.turn_to(replacement.pair, sources)
        self._made = replacement.made
        if replacement.goes_back:
            self._versions.pop()
            self._versions[-1] = replacement.version
        else:
            self._versions = [*self._versions, replacement.version][-_MOST_VERSIONS:]
        return len(kept)

    def _prepare(
        self,
        changed: Mapping[str, DrafterConfig],
        version: Version,
        kept: Mapping[DrafterConfig, Drafter],
        goes_back: bool,
    ) -> Replacement:
        """Make the drafters of names that change; of single ones only those that are not kept."""
        configs = version.configs.values()
        needed = dict.fromkeys(one for config in configs for one in _singles(config))
        made: dict[DrafterConfig, Drafter] = {one: kept[one] for one in needed if one in kept}
        new = [one for one in needed if one not in kept]
        drafters = self._make(changed, new, made)
        pair = ""
        if self._keeper is not None:
            pair = pair_of(self._bench.target.folder, configs)
        return Replacement(
            drafters, version, made, frozenset(one.name for one in new), pair, goes_back
        )

    def _make(
        self,
        configs: Mapping[str, DrafterConfig],
        new: Iterable[SingleConfig],
        made: dict[DrafterConfig, Drafter],
    ) -> dict[str, Drafter]:
        """Drafters of single ones that are there, and of new ones, which are added to these."""
        parts = DrafterParts(new, self._bench)
        runner = self._engine.runner
        slots = runner.pool.num_slots
        needed = sum(one.weights + one.per_token * slots for one in parts.sizes)
        free = available_bytes(self._bench.device)
        if needed > free * (1 - _SPARE):
            raise CapacityError(
                f"drafter: needs {needed / 2**20:.0f} MiB beside the old one, which stays until "
                f"its last request has ended, but {free / 2**20:.0f} MiB are free; free some, or "
                "restart with it"
            )
        workshop = parts.workshop(runner, made)
        drafters = {name: make_drafter(one, workshop) for name, one in configs.items()}
        made.update(workshop.made)
        return drafters


def _singles(config: DrafterConfig) -> list[SingleConfig]:
    """What a drafter is made of in the end."""
    if isinstance(config, FirstOfConfig | BestOfConfig):
        return [part for one in config.drafters for part in _singles(one)]
    return [config]


def _has(config: DrafterConfig, part: TrainedConfig) -> bool:
    return any(type(one) is type(part) for one in _singles(config))


def _with(config: DrafterConfig, part: TrainedConfig) -> DrafterConfig:
    """A drafter with another head or draft; how it is used stays."""
    match config, part:
        case ((FirstOfConfig() | BestOfConfig()), _):
            return replace(config, drafters=tuple(_with(one, part) for one in config.drafters))
        case EagleConfig(), EagleConfig():
            return replace(config, path=part.path)
        case MedusaConfig(), MedusaConfig():
            return replace(config, path=part.path)
        case ModelDraftConfig(), ModelDraftConfig():
            return replace(config, model=part.model)
    return config


def _names(source: str) -> set[str]:
    """Those who make drafts under the name of a source."""
    return set(source.replace("|", "+").split("+"))
