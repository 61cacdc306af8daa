"""How each drafter is set up: a frozen value for each, and their union."""

from __future__ import annotations

from dataclasses import dataclass

from outpace.config.checks import (
    check_integer,
    check_quantization,
    check_type,
    spelled_out_dtype,
)
from outpace.config.words import Dtype, Quantization
from outpace.errors import InvalidValueError


@dataclass(frozen=True, slots=True)
class NoDrafter:
    """Plain decoding, through the same path as everything else."""

    name = "none"


@dataclass(frozen=True, slots=True)
class NgramConfig:
    """Prompt lookup: what followed the last time these tokens occurred in the request itself.

    ``max_ngram`` and ``min_ngram`` bound the length of the match in tokens; the longest match
    wins, among equals the most recent. (Saxena 2023, "Prompt lookup decoding".)
    """

    max_ngram: int = 4
    min_ngram: int = 2
    name = "ngram"

    def __post_init__(self) -> None:
        check_integer("max_ngram", self.max_ngram, 1)
        check_integer("min_ngram", self.min_ngram, 1)
        if self.min_ngram > self.max_ngram:
            raise InvalidValueError(
                "min_ngram", self.min_ngram, f"must lie in [1, max_ngram = {self.max_ngram}]"
            )


@dataclass(frozen=True, slots=True)
class ModelDraftConfig:
    """An independent small model of the same vocabulary (Leviathan et al. 2023, arXiv 2211.17192).

    ``model`` is a name as for the target: a folder, a GGUF file, a hub name, or ``demo``.
    ``quantization`` None means the engine's ``draft_quantization``.
    """

    model: str
    dtype: Dtype = "auto"
    quantization: Quantization | None = None
    name = "model"

    def __post_init__(self) -> None:
        check_type("model", self.model, str, "a text")
        if self.quantization is not None:
            check_quantization("quantization", self.quantization)
        object.__setattr__(self, "dtype", spelled_out_dtype(self.dtype))


@dataclass(frozen=True, slots=True)
class PredictionConfig:
    """The caller says what it expects, as text; the draft follows it and re-synchronises.

    ``text`` is the expectation for requests that bring none of their own. ``min_match`` is the
    number of tokens that must agree before the draft continues elsewhere in the expectation.
    """

    text: str = ""
    min_match: int = 3
    name = "prediction"

    def __post_init__(self) -> None:
        check_type("text", self.text, str, "a text")
        check_integer("min_match", self.min_match, 1)


@dataclass(frozen=True, slots=True)
class GrammarDraftConfig:
    """What a request's grammar forces; nothing for requests without one."""

    name = "grammar"


@dataclass(frozen=True, slots=True)
class FirstOfConfig:
    """The first of several drafters that has something to propose."""

    drafters: tuple[DrafterConfig, ...]

    @property
    def name(self) -> str:
        """The names of its drafters, joined by ``+``, as it is written on the command line."""
        return "+".join(drafter.name for drafter in self.drafters)

    def __post_init__(self) -> None:
        check_type("drafters", self.drafters, tuple, "a tuple of drafter configurations")
        if not self.drafters:
            raise InvalidValueError("drafters", (), "first_of needs at least one drafter")
        for drafter in self.drafters:
            if not isinstance(drafter, _Single):
                raise InvalidValueError("drafters", drafter, "list single drafters that propose")


# What can stand in a list of drafters; a new drafter is one more here.
_Single = NgramConfig | ModelDraftConfig | PredictionConfig | GrammarDraftConfig

DrafterConfig = NoDrafter | _Single | FirstOfConfig

AUTO_DRAFTER = FirstOfConfig((PredictionConfig(), GrammarDraftConfig(), NgramConfig()))
