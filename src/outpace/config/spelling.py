"""Drafters as they are written on the command line."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from outpace.config.drafters import (
    AUTO_DRAFTER,
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
    SuffixConfig,
)
from outpace.errors import InvalidValueError


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = str(getattr(error, "strerror", None) or "its name is not one of a file")
        if isinstance(error, UnicodeDecodeError):
            reason = "it is not UTF-8"
        raise InvalidValueError(
            "drafter", f"prediction:{path}", f"the file cannot be read: {reason}"
        ) from error


def _early_exit(argument: str) -> EarlyExitConfig:
    if not (argument.isascii() and argument.isdigit()):
        spec = f"early_exit:{argument}"
        raise InvalidValueError("drafter", spec, "say how many layers: early_exit:N, or no number")
    return EarlyExitConfig(int(argument))


@dataclass(frozen=True, slots=True)
class _Spelling:
    """A drafter's way of being written.

    Attributes:
        argument: what stands after the colon, in capitals; empty if nothing may.
        bare: the drafter without an argument; None if it needs one.
        given: the drafter of an argument.
    """

    argument: str = ""
    bare: DrafterConfig | None = None
    given: Callable[[str], DrafterConfig] | None = None

    def shown(self, name: str) -> str:
        if not self.argument:
            return name
        return f"{name}:{self.argument}" if self.bare is None else f"{name}[:{self.argument}]"


_SPELLINGS = {
    "none": _Spelling(bare=NoDrafter()),
    "auto": _Spelling(bare=AUTO_DRAFTER),
    "ngram": _Spelling(bare=NgramConfig()),
    "suffix": _Spelling(bare=SuffixConfig()),
    "datastore": _Spelling("FILE", None, DatastoreConfig),
    "model": _Spelling("PATH", None, ModelDraftConfig),
    "early_exit": _Spelling("N", EarlyExitConfig(), _early_exit),
    "eagle": _Spelling("PATH", EagleConfig(), EagleConfig),
    "medusa": _Spelling("PATH", None, MedusaConfig),
    "prediction": _Spelling(
        "FILE", PredictionConfig(), lambda path: PredictionConfig(_read_text(path))
    ),
    "grammar": _Spelling(bare=GrammarDraftConfig()),
}

# A "+" or "|" joins drafters where the name of one follows; any other belongs to a path.
_FOLLOWED = rf"(?=(?:{'|'.join(_SPELLINGS)})(?:[:+|]|$))"
_JOINT = re.compile(rf"\+{_FOLLOWED}")
_CHOICE = re.compile(rf"\|{_FOLLOWED}")
_AUTO_IN_WORDS = "it means prediction+grammar+ngram; write these out to join others to them"
DRAFTER_SPELLINGS = (
    ", ".join(spelling.shown(name) for name, spelling in _SPELLINGS.items())
    + ", or several joined by '+' (the first that proposes) or '|' (the surest)"
)


def parse_drafter(spec: str) -> DrafterConfig:
    """Read a drafter as it is written on the command line.

    A name, or ``name:argument``; several joined by ``+`` mean the first that has something to
    propose, several joined by ``|`` the one that is surest in each step. ``+`` binds more
    tightly. ``auto`` is what needs neither a checkpoint nor training.

    Raises:
        InvalidValueError: unknown drafter, missing argument, or a prediction file that
            cannot be read as UTF-8.
    """
    choices = _CHOICE.split(spec)
    if len(choices) > 1:
        return BestOfConfig(_joined(spec, choices, (NoDrafter,)))
    parts = _JOINT.split(spec)
    if len(parts) > 1:
        return FirstOfConfig(_joined(spec, parts, (NoDrafter, FirstOfConfig)))
    name, colon, argument = spec.partition(":")
    spelling = _SPELLINGS.get(name)
    if spelling is None or (colon and spelling.given is None):
        raise InvalidValueError("drafter", spec, f"choose one of {DRAFTER_SPELLINGS}")
    if argument and spelling.given is not None:
        return spelling.given(argument)
    if spelling.bare is None or colon:
        raise InvalidValueError("drafter", spec, f"say which: {spelling.shown(name)}")
    return spelling.bare


def _joined(
    spec: str, parts: Sequence[str], alone: tuple[type[DrafterConfig], ...]
) -> tuple[DrafterConfig, ...]:
    """Several drafters, none of which stands alone or is named twice."""
    configs = []
    for part in parts:
        config = parse_drafter(part)
        if isinstance(config, alone):
            own = "it proposes nothing" if isinstance(config, NoDrafter) else _AUTO_IN_WORDS
            raise InvalidValueError("drafter", spec, f"{part} stands alone: {own}")
        if config in configs:
            raise InvalidValueError("drafter", spec, f"{part} is named twice; name it once")
        configs.append(config)
    return tuple(configs)


def spelled(config: DrafterConfig) -> str:
    """How a drafter is written; what only Python can set is left out."""
    match config:
        case BestOfConfig():
            return "|".join(map(spelled, config.drafters))
        case FirstOfConfig():
            return "auto" if config == AUTO_DRAFTER else "+".join(map(spelled, config.drafters))
        case EagleConfig(path=argument) | MedusaConfig(path=argument):
            return f"{config.name}:{argument}" if argument else config.name
        case DatastoreConfig(path=argument) | ModelDraftConfig(model=argument):
            return f"{config.name}:{argument}"
        case EarlyExitConfig(exit_layer=int(argument)):
            return f"{config.name}:{argument}"
    return config.name
