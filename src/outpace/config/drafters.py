"""How each drafter is set up: a frozen value for each, and their union."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outpace.config.checks import (
    check_choice,
    check_integer,
    check_number,
    check_quantization,
    check_type,
    spelled_out_dtype,
)
from outpace.config.words import DraftShape, Dtype, Quantization
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
    """An independent small model (Leviathan et al. 2023, arXiv 2211.17192).

    With another tokenizer than the target's it drafts by way of the text. ``model`` is a name as
    for the target: a folder, a GGUF file, a hub name, or ``demo``.
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
class EarlyExitConfig:
    """The target's own first layers draft, with its final norm and its head.

    Attributes:
        exit_layer: how many layers the draft goes through, those left out included; ``"auto"``
            takes what a calibration on sample text found best, which can leave layers out in
            the middle and is kept in the cache folder.
        skipped: layers before the exit, from 0, that are left out; only with a number for
            ``exit_layer``.
    """

    exit_layer: int | Literal["auto"] = "auto"
    skipped: tuple[int, ...] = ()
    name = "early_exit"

    def __post_init__(self) -> None:
        check_type("skipped", self.skipped, tuple, "a tuple of layers")
        if self.exit_layer == "auto":
            if self.skipped:
                raise InvalidValueError("skipped", self.skipped, "give exit_layer a number too")
            return
        check_integer("exit_layer", self.exit_layer, 1)
        for layer in self.skipped:
            check_integer("skipped", layer, 0, self.exit_layer - 1)
        if len(set(self.skipped)) >= self.exit_layer:
            raise InvalidValueError("skipped", self.skipped, "leave a layer that is computed")

    def layers(self, num_layers: int) -> tuple[int, ...]:
        """The layers that draft, of a target with so many; needs a number for ``exit_layer``.

        Raises:
            InvalidValueError: that is no part of the target.
        """
        assert self.exit_layer != "auto"
        layers = tuple(i for i in range(self.exit_layer) if i not in self.skipped)
        if self.exit_layer > num_layers or len(layers) == num_layers:
            raise InvalidValueError(
                "exit_layer",
                self.exit_layer,
                f"the target has {num_layers} layers; choose 1 to {num_layers - 1}, or auto",
            )
        return layers


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
class SuffixConfig:
    """What followed these tokens in the request itself and in earlier outputs of its tenant.

    Attributes:
        max_tokens: of earlier outputs that are remembered, about 30 bytes each; then the oldest
            make room.
        min_match: tokens that must agree within the request; in earlier outputs, 3 must.
        min_probability: estimated probability that a guess must have to be proposed.
    """

    max_tokens: int = 2_000_000
    min_match: int = 2
    min_probability: float = 0.1
    name = "suffix"

    def __post_init__(self) -> None:
        check_integer("max_tokens", self.max_tokens, 2, 2**30)
        check_integer("min_match", self.min_match, 1)
        check_number(
            "min_probability", self.min_probability, "must be a number from 0 to 1", 0.0, 1.0
        )


@dataclass(frozen=True, slots=True)
class DatastoreConfig:
    """What followed these tokens in texts of one's own, and in the request itself.

    Attributes:
        path: an index that ``outpace index build`` made with the target's tokenizer.
        min_match: tokens that must agree.
        min_probability: estimated probability that a guess must have to be proposed.
    """

    path: str
    min_match: int = 2
    min_probability: float = 0.1
    name = "datastore"

    def __post_init__(self) -> None:
        check_type("path", self.path, str, "a text")
        check_integer("min_match", self.min_match, 1, 16)
        check_number(
            "min_probability", self.min_probability, "must be a number from 0 to 1", 0.0, 1.0
        )


@dataclass(frozen=True, slots=True)
class EagleConfig:
    """A trained head on the target's hidden states (EAGLE-3: Li et al. 2025, arXiv 2503.01840).

    Attributes:
        path: folder of the head, in the speculators format or the original EAGLE-3 layout, or a
            hub name; empty: the head that comes with Outpace for the target.
        shape: ``"chain"``, ``"tree"`` (the nodes of the best total probability), or ``"auto"``:
            a tree, except where the verifier takes a short drawn chain more often.
        top_k: most children of a node, and most nodes that are looked beyond, level by level.
        quantization: of the head; None: the engine's ``draft_quantization``, where ``"auto"``
            makes heads int8 if there are compiled kernels.
    """

    path: str = ""
    shape: DraftShape = "auto"
    top_k: int = 8
    quantization: Quantization | None = None
    name = "eagle"

    def __post_init__(self) -> None:
        check_type("path", self.path, str, "a text")
        check_choice("shape", self.shape, ("auto", "chain", "tree"))
        check_integer("top_k", self.top_k, 1, 64)
        if self.quantization is not None:
            check_quantization("quantization", self.quantization)


@dataclass(frozen=True, slots=True)
class MedusaConfig:
    """Trained heads that guess several places ahead at once (Cai et al. 2024, arXiv 2401.10774).

    Attributes:
        path: folder of the heads, in Medusa's layout, or a hub name.
        quantization: as of `EagleConfig`.
    """

    path: str
    quantization: Quantization | None = None
    name = "medusa"

    def __post_init__(self) -> None:
        check_type("path", self.path, str, "a text")
        if not self.path:
            raise InvalidValueError("path", self.path, "give the folder of the heads")
        if self.quantization is not None:
            check_quantization("quantization", self.quantization)


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


@dataclass(frozen=True, slots=True)
class BestOfConfig:
    """Of several drafters, in each step, the one that is surest of its draft.

    ``combine``: drafts of several that bring no distributions become one tree, of the guesses
    that are likeliest together, as many as the step has room for.
    """

    drafters: tuple[DrafterConfig, ...]
    combine: bool = True

    @property
    def name(self) -> str:
        """The names of its drafters, joined by ``|``, as it is written on the command line."""
        return "|".join(drafter.name for drafter in self.drafters)

    def __post_init__(self) -> None:
        check_type("drafters", self.drafters, tuple, "a tuple of drafter configurations")
        check_type("combine", self.combine, bool, "True or False")
        if not self.drafters:
            raise InvalidValueError("drafters", (), "best_of needs at least one drafter")
        for drafter in self.drafters:
            if not isinstance(drafter, _Single | FirstOfConfig):
                raise InvalidValueError("drafters", drafter, "list drafters that propose")


# What can stand in a list of drafters; a new drafter is one more here.
_Single = (
    NgramConfig
    | SuffixConfig
    | DatastoreConfig
    | ModelDraftConfig
    | PredictionConfig
    | EarlyExitConfig
    | EagleConfig
    | MedusaConfig
    | GrammarDraftConfig
)

SingleConfig = NoDrafter | _Single
DrafterConfig = SingleConfig | FirstOfConfig | BestOfConfig

AUTO_DRAFTER = FirstOfConfig((PredictionConfig(), GrammarDraftConfig(), NgramConfig()))
