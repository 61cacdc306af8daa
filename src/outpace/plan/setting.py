"""From what a user names to a setting: models, hardware and step times found and put together."""

from __future__ import annotations

from dataclasses import dataclass

from outpace.errors import InvalidValueError
from outpace.plan.find import find_architecture
from outpace.plan.forecast import Load, Setting
from outpace.plan.hardware import Hardware
from outpace.plan.memory import Deployed, Memory
from outpace.plan.mix import Mix
from outpace.plan.precision import Precision, cache_bytes
from outpace.plan.speedup import Pair, no_draft_model
from outpace.plan.steps import Assumptions, Roofline, StepTime

WITHOUT_MODEL = ("ngram", "lookup", "suffix", "prediction")


@dataclass(frozen=True, slots=True)
class Models:
    """Target and draft in their precisions; ``draft`` is None where nothing is computed."""

    target: Deployed
    draft: Deployed | None

    @classmethod
    def find(
        cls,
        target: str,
        draft: str,
        precision: str = "bf16",
        draft_precision: str | None = None,
        cache_precision: str = "bf16",
    ) -> Models:
        """Find both models.

        Args:
            target: see `find_architecture`.
            draft: the same; or ``ngram`` and its like, which compute nothing; or ``eagle`` or
                ``eagle:VOCAB`` for a head on the target.
            precision: of the target's weights.
            draft_precision: of the draft's; None: the same.
            cache_precision: of both caches.

        Raises:
            OutpaceError: one cannot be found or read.
        """
        width = cache_bytes(cache_precision)
        weights = Precision.parse(precision)
        large = Deployed(find_architecture(target, "target"), weights, width)
        if draft in WITHOUT_MODEL:
            return cls(large, None)
        kind = weights
        if draft_precision is not None:
            kind = Precision.parse(draft_precision, "draft_precision")
        name, _, size = draft.partition(":")
        if name == "eagle":
            vocab = 32_000
            if size:
                if not size.isdecimal() or not 1 <= int(size) <= 10_000_000:
                    raise InvalidValueError("draft", draft, "write eagle or eagle:VOCABULARY")
                vocab = int(size)
            return cls(large, Deployed(large.model.eagle_head(vocab), kind, width))
        return cls(large, Deployed(find_architecture(draft, "draft"), kind, width))


def roofline_setting(
    models: Models,
    hardware: Hardware,
    mix: Mix,
    context: int,
    load: Load | None = None,
    *,
    max_k: int = 8,
    assumptions: Assumptions | None = None,
    reserve: float = 0.1,
) -> Setting:
    """A setting whose step times come from data sheets.

    Raises:
        InvalidValueError: the hardware's memory is not known.
    """
    assumed = assumptions or Assumptions()
    target = Roofline(
        models.target.model,
        models.target.precision,
        hardware,
        assumed,
        models.target.cache_bytes,
    )
    draft: StepTime = no_draft_model
    if models.draft is not None:
        draft = Roofline(
            models.draft.model,
            models.draft.precision,
            hardware,
            assumed,
            models.draft.cache_bytes,
            hosted=False,
        )
    pair = Pair(target, draft, mix.fitted(context), context)
    memory = Memory(hardware.bytes_of_memory, models.target, models.draft, context, reserve)
    return Setting(pair, memory, load or Load(), max_k)
