"""Drafters as they are written on the command line."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from outpace.config.drafters import (
    AUTO_DRAFTER,
    DrafterConfig,
    EagleConfig,
    FirstOfConfig,
    MedusaConfig,
    ModelDraftConfig,
    NgramConfig,
    NoDrafter,
    PredictionConfig,
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
        return f"{name}:{self.argument}" if self.argument else name


_SPELLINGS = {
    "none": _Spelling(bare=NoDrafter()),
    "auto": _Spelling(bare=AUTO_DRAFTER),
    "ngram": _Spelling(bare=NgramConfig()),
    "model": _Spelling("PATH", None, ModelDraftConfig),
    "eagle": _Spelling("PATH", EagleConfig(), EagleConfig),
    "medusa": _Spelling("PATH", None, MedusaConfig),
    "prediction": _Spelling(
        "FILE", PredictionConfig(), lambda path: PredictionConfig(_read_text(path))
    ),
}

# A "+" joins drafters where the name of one follows; any other belongs to a path.
_JOINT = re.compile(rf"\+(?=(?:{'|'.join(_SPELLINGS)})(?:[:+]|$))")
DRAFTER_SPELLINGS = (
    ", ".join(spelling.shown(name) for name, spelling in _SPELLINGS.items())
    + ", or several joined by '+'"
)


def parse_drafter(spec: str) -> DrafterConfig:
    """Read a drafter as it is written on the command line.

    A name, or ``name:argument``; several joined by ``+`` mean the first that has something to
    propose. ``auto`` is what needs neither a checkpoint nor training.

    Raises:
        InvalidValueError: unknown drafter, missing argument, or a prediction file that
            cannot be read as UTF-8.
    """
    parts = _JOINT.split(spec)
    if len(parts) > 1:
        return FirstOfConfig(tuple(parse_drafter(part) for part in parts))
    name, _, argument = spec.partition(":")
    spelling = _SPELLINGS.get(name)
    if spelling is None or (argument and spelling.given is None):
        raise InvalidValueError("drafter", spec, f"choose one of {DRAFTER_SPELLINGS}")
    if argument and spelling.given is not None:
        return spelling.given(argument)
    if spelling.bare is None:
        raise InvalidValueError("drafter", spec, f"say which: {spelling.shown(name)}")
    return spelling.bare
