"""Loading the model, the only place where a command waits for PyTorch."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from outpace.cli.options import EngineOptions

if TYPE_CHECKING:
    from outpace.config import EngineConfig
    from outpace.llm import LLM


def load(options: EngineOptions, config: EngineConfig, **more: Any) -> LLM:
    """Load what the options name, with a note on stderr while it takes.

    ``more`` are arguments of `LLM` beside the fields of its configuration.
    """
    from rich.console import Console

    with Console(stderr=True).status(f"Loading {options.model} …"):
        from outpace.llm import LLM

        settings = {field.name: getattr(config, field.name) for field in fields(config)}
        return LLM(options.model, **settings, **more)
