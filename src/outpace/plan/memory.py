"""What fits: weights, caches and logits, with and without a draft."""

from __future__ import annotations

from dataclasses import dataclass

from outpace.errors import CapacityError
from outpace.plan.architecture import Architecture
from outpace.plan.hardware import GIB
from outpace.plan.precision import Precision

_LOGIT_BYTES = 4.0  # float32


@dataclass(frozen=True, slots=True)
class Deployed:
    """A model in a precision, with its cache's."""

    model: Architecture
    precision: Precision
    cache_bytes: float = 2.0

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights."""
        layers = self.model.layer_weights * self.precision.layer_bytes
        return layers + self.model.outer_weights * self.precision.outer_bytes

    def cache_of(self, context: int) -> float:
        """Bytes of the cache of one sequence of ``context`` tokens."""
        return self.model.cache_numbers(context) * self.cache_bytes


@dataclass(frozen=True, slots=True)
class MemoryParts:
    """Where the memory goes, in bytes; all parts together are the whole."""

    target_weights: float
    draft_weights: float
    target_cache: float
    draft_cache: float
    logits: float
    reserve: float
    free: float

    @property
    def total(self) -> float:
        """All parts together."""
        caches = self.target_cache + self.draft_cache
        return (self.target_weights + self.draft_weights + caches + self.logits) + (
            self.reserve + self.free
        )


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of one replica and what shares it.

    Attributes:
        available: bytes.
        target: the target model.
        draft: the draft model, or None where the drafter has none.
        context: tokens that each sequence holds.
        reserve: share that is kept for the runtime, activations and fragments.
    """

    available: float
    target: Deployed
    draft: Deployed | None
    context: int
    reserve: float = 0.1

    def per_sequence(self, k: int, drafting: bool) -> float:
        """Bytes of one more sequence: its caches, and its rows of logits.

        The target's logits are 1 + k rows wide, and verifying by rejection needs the draft's k
        distributions too.
        """
        width = (1 + k) * self.target.model.vocab
        cache = self.target.cache_of(self.context)
        if drafting and self.draft is not None:
            width += k * self.draft.model.vocab
            cache += self.draft.cache_of(self.context)
        return cache + width * _LOGIT_BYTES

    def fixed(self, drafting: bool) -> float:
        """Bytes of the weights."""
        draft = self.draft.weight_bytes if drafting and self.draft is not None else 0.0
        return self.target.weight_bytes + draft

    def largest_batch(self, k: int, drafting: bool) -> int:
        """Most sequences at once, 0 if not even one fits."""
        room = self.available * (1 - self.reserve) - self.fixed(drafting)
        return max(int(room // self.per_sequence(k, drafting)), 0)

    def need_batch(self, k: int, drafting: bool) -> int:
        """Like `largest_batch`, for one that must be at least 1.

        Raises:
            CapacityError: not one sequence fits; says what is needed and what is there.
        """
        batch = self.largest_batch(k, drafting)
        if batch < 1:
            needed = self.fixed(drafting) + self.per_sequence(k, drafting)
            names = self.target.model.name
            if drafting and self.draft is not None:
                names += f" with {self.draft.model.name}"
            raise CapacityError(
                f"{names}: weights and one sequence of {self.context} tokens need "
                f"{needed / GIB:.1f} GiB, {self.available * (1 - self.reserve) / GIB:.1f} GiB are "
                "there after the reserve: take more --devices, a lower precision or a shorter "
                "--context"
            )
        return batch

    def parts(self, batch: int, k: int, drafting: bool) -> MemoryParts:
        """Where the memory goes with so many sequences."""
        draft = self.draft if drafting else None
        target_cache = batch * self.target.cache_of(self.context)
        draft_cache = 0.0 if draft is None else batch * draft.cache_of(self.context)
        logits = batch * self.per_sequence(k, drafting) - target_cache - draft_cache
        reserve = self.available * self.reserve
        used = self.fixed(drafting) + target_cache + draft_cache + logits + reserve
        return MemoryParts(
            target_weights=self.target.weight_bytes,
            draft_weights=0.0 if draft is None else draft.weight_bytes,
            target_cache=target_cache,
            draft_cache=draft_cache,
            logits=logits,
            reserve=reserve,
            free=self.available - used,
        )
