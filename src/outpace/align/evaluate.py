"""Running captured prompts under two drafters, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import TYPE_CHECKING

from outpace.align.decide import Pair
from outpace.errors import OutpaceError
from outpace.record.capture import Captured
from outpace.request import SamplingParams

if TYPE_CHECKING:
    from outpace.llm import LLM

# Whoever trains on a capture leaves out this one in so many, so that it can judge.
HELD_OUT_EVERY = 5


class EvaluationError(OutpaceError):
    """The drafters cannot be compared."""


def held_out(captured: Sequence[Captured]) -> list[Captured]:
    """The prompts that training must not see: every fifth of each type, in their order."""
    turns: dict[str, cycle[int]] = {}
    return [
        one
        for one in captured
        if next(turns.setdefault(one.request_type, cycle(range(HELD_OUT_EVERY)))) == 0
    ]


def steps_under(
    llm: LLM, captured: Sequence[Captured], on_progress: Callable[[int, int], None] | None = None
) -> list[tuple[tuple[int, ...], int]]:
    """Answer the prompts again; returns (token ids, target steps) of each.

    Answers get their captured length, and their seed or else 0, so that two drafters have the
    same tokens to guess.

    Raises:
        InvalidValueError: a prompt that this model cannot take.
    """
    params = [
        SamplingParams(
            **{name: value for name, value in one.sampling.items() if name != "seed"},
            seed=one.sampling.get("seed") or 0,
            max_tokens=max(1, len(one.answer)),
        )
        for one in captured
    ]
    results = llm.generate([one.prompt for one in captured], params, on_progress=on_progress)
    return [(result.token_ids, result.speculative.target_steps) for result in results]


def pairs_of(
    captured: Sequence[Captured],
    old: Sequence[tuple[tuple[int, ...], int]],
    new: Sequence[tuple[tuple[int, ...], int]],
) -> list[Pair]:
    """Both runs side by side.

    Raises:
        EvaluationError: a drafter changed a token, which none may do.
    """
    pairs = []
    for one, (before, old_steps), (after, new_steps) in zip(captured, old, new, strict=True):
        if before != after:
            raise EvaluationError(
                "the drafters do not give the same tokens here: outpace prove finds out why"
            )
        pairs.append(Pair(one.request_type, len(before), old_steps, new_steps))
    return pairs
