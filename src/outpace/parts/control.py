"""The controller of an engine, and what it knows when it begins."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

from outpace.config import DrafterConfig, EngineConfig
from outpace.control.automatic import AutomaticController
from outpace.control.controller import Controller, FixedController
from outpace.control.keeper import Keeper
from outpace.control.kept import MeasuredCost
from outpace.control.policy import DrafterPolicy, read_policy
from outpace.control.routed import RoutedController
from outpace.control.router import Router
from outpace.engine.costs import checkpoint_fingerprint
from outpace.model.converted import cache_folder
from outpace.model.heads.files import find_head
from outpace.model.heads.target import shipped_head
from outpace.model.source import resolve
from outpace.parts.drafters import DrafterSet
from outpace.spec.drafters.table import draft_models, heads


def chosen_policy(config: EngineConfig, drafters: DrafterSet) -> DrafterPolicy:
    """What an operator decided, read before anything is loaded.

    Raises:
        InvalidValueError: it cannot be read, or names a drafter that cannot be chosen.
    """
    if config.drafter_policy is None or drafters.menu is None:
        return DrafterPolicy()
    return read_policy(config.drafter_policy, drafters.menu.everybody)


def make_controller(
    config: EngineConfig,
    costs: Mapping[str, MeasuredCost],
    drafters: DrafterSet,
    sources: Mapping[str, tuple[str, ...]],
    policy: DrafterPolicy,
    keeper: Keeper | None,
) -> Controller:
    """A fixed k, an automatic one, or an automatic one under a router.

    Args:
        config: of the engine.
        costs: what steps cost, by source; of ``"target"`` too.
        drafters: those that are there.
        sources: by drafter, those that it asks.
        policy: what the router must keep to.
        keeper: of what was learned before; None: nothing was.
    """
    k = config.num_speculative_tokens
    if k != "auto":
        return FixedController(k)
    tables = {name: cost.table for name, cost in costs.items() if name != "target"}
    history = keeper.acceptance if keeper else None
    automatic = AutomaticController(costs["target"].table, tables, history)
    if drafters.menu is None:
        return automatic
    choices = {name: sources[name] for name in drafters.menu.everybody}
    # Plain decoding asks nobody, so nobody is said to be asked.
    return RoutedController(automatic, Router(policy), choices | {"none": ()})


def keeper_for(
    config: EngineConfig, target: Path, drafters: Iterable[DrafterConfig]
) -> Keeper | None:
    """What was learned of a target with these drafters; None if nobody learns.

    Args:
        config: of the engine.
        target: its folder.
        drafters: all that are there.
    """
    if not config.keep_learned or config.num_speculative_tokens != "auto":
        return None
    return Keeper(cache_folder() / "learned", pair_of(target, drafters))


def pair_of(target: Path, drafters: Iterable[DrafterConfig]) -> str:
    """A fingerprint of a target and the draft models and heads of some drafters.

    Raises:
        OutpaceError: one of them is not there.
    """
    configs = list(drafters)
    digest = hashlib.sha256(checkpoint_fingerprint(target).encode())
    models = dict.fromkeys(model.model for one in configs for model in draft_models(one))
    for folder in sorted(resolve(name) for name in models):
        digest.update(checkpoint_fingerprint(folder).encode())
    for head in dict.fromkeys(head for one in configs for head in heads(one)):
        stat = find_head(head.path or str(shipped_head(target))).weights.stat()
        digest.update(f"{head.name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()
