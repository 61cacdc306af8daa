"""Speculative decoding that never changes a token.

The public names are loaded when they are first used, so that ``outpace --help`` and an error in
an option do not wait for PyTorch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outpace.config import (
        BestOfConfig,
        DatastoreConfig,
        DrafterConfig,
        EagleConfig,
        EarlyExitConfig,
        EngineConfig,
        FirstOfConfig,
        GrammarDraftConfig,
        MedusaConfig,
        ModelDraftConfig,
        NgramConfig,
        NoDrafter,
        PredictionConfig,
        SuffixConfig,
        parse_drafter,
    )
    from outpace.errors import (
        CapacityError,
        CheckpointError,
        DraftError,
        InvalidValueError,
        OutpaceError,
    )
    from outpace.grammar import Grammar
    from outpace.llm import LLM
    from outpace.request import (
        CompletionOutput,
        FinishReason,
        RequestOutput,
        SamplingParams,
        Speculation,
        StreamChunk,
        Timing,
        TokenLogprob,
        Usage,
    )

    __version__: str

__all__ = [
    "LLM",
    "BestOfConfig",
    "CapacityError",
    "CheckpointError",
    "CompletionOutput",
    "DatastoreConfig",
    "DraftError",
    "DrafterConfig",
    "EagleConfig",
    "EarlyExitConfig",
    "EngineConfig",
    "FinishReason",
    "FirstOfConfig",
    "Grammar",
    "GrammarDraftConfig",
    "InvalidValueError",
    "MedusaConfig",
    "ModelDraftConfig",
    "NgramConfig",
    "NoDrafter",
    "OutpaceError",
    "PredictionConfig",
    "RequestOutput",
    "SamplingParams",
    "Speculation",
    "StreamChunk",
    "SuffixConfig",
    "Timing",
    "TokenLogprob",
    "Usage",
    "__version__",
    "parse_drafter",
]

_HOMES = {
    "outpace.config": (
        "BestOfConfig",
        "DatastoreConfig",
        "DrafterConfig",
        "EarlyExitConfig",
        "EagleConfig",
        "EngineConfig",
        "FirstOfConfig",
        "MedusaConfig",
        "GrammarDraftConfig",
        "ModelDraftConfig",
        "NgramConfig",
        "NoDrafter",
        "PredictionConfig",
        "SuffixConfig",
        "parse_drafter",
    ),
    "outpace.errors": (
        "CapacityError",
        "CheckpointError",
        "DraftError",
        "InvalidValueError",
        "OutpaceError",
    ),
    "outpace.grammar": ("Grammar",),
    "outpace.llm": ("LLM",),
    "outpace.request": (
        "CompletionOutput",
        "FinishReason",
        "RequestOutput",
        "SamplingParams",
        "Speculation",
        "StreamChunk",
        "Timing",
        "TokenLogprob",
        "Usage",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load a public name from the module that defines it (PEP 562)."""
    if name == "__version__":
        value: Any = _version()
    elif name in _HOME_OF:
        value = getattr(importlib.import_module(_HOME_OF[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("outpace")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0+unknown"
