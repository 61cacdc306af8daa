"""Will it fit: adding up memory before anything large is allocated."""

from __future__ import annotations

from dataclasses import dataclass

from outpace.errors import CapacityError

_SHARE_FOR_CACHE = 0.25
_USUAL_CACHE_TOKENS = 16_384
_USUAL_CONTEXT = 32_768


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Bytes of a model's weights, and of the keys and values of one token."""

    weights: int
    per_token: int
    context: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """How many tokens the cache holds, how long a context may be, and what all of it takes.

    Attributes:
        max_model_len: tokens.
        cache_tokens: tokens.
        weights, cache, logits: bytes; the logits are those of the largest step, float32.
    """

    max_model_len: int
    cache_tokens: int
    weights: int
    cache: int
    logits: int

    @property
    def total(self) -> int:
        """All bytes together."""
        return self.weights + self.cache + self.logits


def plan_memory(
    target: ModelSize,
    drafts: list[ModelSize],
    logits_bytes: int,
    available: int,
    max_model_len: int | None,
    cache_tokens: int | None,
) -> MemoryPlan:
    """Choose what was left open so that it fits, and refuse what does not.

    Args:
        target: the target model.
        drafts: draft models, that share the target's block table.
        logits_bytes: of the largest step.
        available: free memory in bytes, before anything is loaded.
        max_model_len: the wanted context, or None for the model's own as far as it fits.
        cache_tokens: the wanted cache, or None for a usual size that fits.

    Raises:
        CapacityError: the weights alone, or the wanted cache with them, do not fit, or the
            cache is smaller than one context.
    """
    weights = target.weights + sum(draft.weights for draft in drafts)
    per_token = target.per_token + sum(draft.per_token for draft in drafts)
    left = available - weights - logits_bytes
    if left <= 0:
        raise CapacityError(
            f"model weights need {_gib(weights)}, step buffers {_gib(logits_bytes)}, but "
            f"{_gib(available)} of memory are free: choose a smaller model or draft, or lower "
            "max_num_seqs or num_speculative_tokens"
        )
    fitting = int(left * _SHARE_FOR_CACHE) // per_token
    longest = max_model_len or min(target.context, _USUAL_CONTEXT)
    if longest > target.context:
        raise CapacityError(
            f"max_model_len = {longest}: the model's own context is {target.context} tokens"
        )
    if cache_tokens is None:
        if max_model_len is None:
            longest = max(min(longest, fitting), 1)
        cache_tokens = max(longest, min(_USUAL_CACHE_TOKENS, fitting))
    elif max_model_len is None:
        longest = min(longest, cache_tokens)
    if longest > cache_tokens:
        raise CapacityError(
            f"kv_cache_tokens = {cache_tokens}: must hold at least one context of "
            f"max_model_len = {longest} tokens"
        )
    if cache_tokens * per_token > left:
        raise CapacityError(
            f"a cache of {cache_tokens} tokens needs {_gib(cache_tokens * per_token)}, but "
            f"{_gib(max(left, 0))} are free beside the weights: lower max_model_len or "
            f"kv_cache_tokens to {left // per_token} or less"
        )
    return MemoryPlan(longest, cache_tokens, weights, cache_tokens * per_token, logits_bytes)


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.2f} GiB"
