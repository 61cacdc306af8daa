"""Running captured prompts under two drafters, one after the other."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outpace.align.decide import Pair
from outpace.errors import OutpaceError
from outpace.record.capture import Captured
from outpace.request import SamplingParams

if TYPE_CHECKING:
    from outpace.llm import LLM

# Whoever trains on a capture leaves out about one prompt in so many, so that it can judge.
HELD_OUT_OF = 5


class EvaluationError(OutpaceError):
    """The drafters cannot be compared."""


@dataclass(frozen=True, slots=True)
class Ran:
    """A captured prompt that was answered again.

    Attributes:
        token_ids: of the answer.
        steps: target steps.
        accepted: draft tokens.
        rejections: drafts in which one lost.
    """

    token_ids: tuple[int, ...]
    steps: int
    accepted: int = 0
    rejections: int = 0


def is_held_out(one: Captured) -> bool:
    """Whether training must not see a prompt: decided by its content, the same at all times.

    A prompt that came twice is on one side both times.
    """
    return zlib.crc32(repr(one.prompt).encode()) % HELD_OUT_OF == 0


def params_of(one: Captured) -> SamplingParams:
    """How a captured request is answered again: as then, with its seed or else 0."""
    return SamplingParams(
        **{name: value for name, value in one.sampling.items() if name != "seed"},
        seed=one.sampling.get("seed") or 0,
        max_tokens=max(1, len(one.answer)),
    )


def steps_under(
    llm: LLM, captured: Sequence[Captured], on_progress: Callable[[int, int], None] | None = None
) -> list[Ran]:
    """Answer the prompts again.

    Answers get their captured length, and their seed or else 0, so that two drafters have the
    same tokens to guess.

    Raises:
        InvalidValueError: a prompt that this model cannot take.
    """
    params = [params_of(one) for one in captured]
    results = llm.generate([one.prompt for one in captured], params, on_progress=on_progress)
    return [
        Ran(
            result.token_ids,
            result.speculative.target_steps,
            result.speculative.accepted,
            result.speculative.rejections,
        )
        for result in results
    ]


def pairs_of(
    captured: Sequence[Captured], old: Sequence[Ran], new: Sequence[Ran], exact: bool = True
) -> list[Pair]:
    """Both runs side by side.

    Args:
        captured: the prompts.
        old: under the old draft.
        new: under the new one.
        exact: whether all tokens must be equal here; where they need not be (a near-tie), prompts
            whose answers differ are left out.

    Raises:
        EvaluationError: a drafter changed a token, which none may do.
    """
    pairs = []
    for one, before, after in zip(captured, old, new, strict=True):
        if before.token_ids == after.token_ids:
            tokens = len(before.token_ids)
            pairs.append(Pair(one.request_type, tokens, before.steps, after.steps))
        elif exact:
            raise EvaluationError(
                "the drafters do not give the same tokens here: outpace prove finds out why"
            )
    return pairs
