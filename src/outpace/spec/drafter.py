"""What every drafter is to the engine: propose, observe, forget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from outpace.request import Request
from outpace.sampling.processors import TokenHistory
from outpace.sampling.sampler import TokenSampler
from outpace.spec.tree import DraftTree


@dataclass(frozen=True, slots=True)
class Ask:
    """One sequence that may be drafted for, as the drafter sees it.

    Attributes:
        seq_id: names the sequence until ``forget``.
        token_ids: ``[num_tokens]`` all known tokens, prompt and output; do not keep or change.
        num_prompt: how many of them are the prompt.
        budget: the most nodes, and the greatest depth, that the draft may have; at least 1.
        block_table: the sequence's cache blocks; there is room for ``num_tokens + budget`` slots.
        sampler: the sequence's parameters and noise. A drafter with logits either calls
            ``sampler.choose`` (the target's own noise) or, where ``wants_probs``, draws from
            ``sampler.probs`` and hands these over with the tree.
        history: tokens so far, for the sampler; ``copy`` it before running ahead.
        wants_probs: whether the verifier can use the distributions q.
        prediction: tokens that the caller expects as the whole answer, or empty.
        by_source: the most nodes for single sources of a drafter that has several, where they
            differ; a source with 0 is not to be asked.
        wants_confidence: whether somebody looks at the tree's ``confidence``; a drafter for whom
            it costs something may leave it empty otherwise.
        tenant: whose request it is; what is learned from one tenant's texts must not show in
            the drafts for another.
    """

    seq_id: int
    token_ids: NDArray[np.int64]
    num_prompt: int
    budget: int
    block_table: Sequence[int]
    sampler: TokenSampler
    history: TokenHistory
    wants_probs: bool
    prediction: tuple[int, ...]
    by_source: Mapping[str, int] = field(default_factory=dict)
    wants_confidence: bool = False
    tenant: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """Tokens of one sequence that are now in the target's cache for good.

    Attributes:
        seq_id: the sequence.
        start: position of the first of them. After a preemption it starts again from 0 or from
            the end of what the prefix cache still held.
        token_ids: the known tokens that were computed and the draft tokens that were accepted.
        last: ``[num_tokens, hidden]`` the target's last hidden state at each, if asked for.
        taps: ``[num_tokens, len(taps) * hidden]`` the tapped layers' states, if asked for.
        known: all tokens of the sequence by now, those just emitted too; do not keep or change.
        block_table: the sequence's cache blocks, which hold at least ``known``.
        num_prompt: how many of all tokens are the prompt; None: nobody says, and nobody may learn
            from a sequence of which only this is known.
        tenant: as of `Ask`.
    """

    seq_id: int
    start: int
    token_ids: tuple[int, ...]
    last: Tensor | None
    taps: Tensor | None
    known: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    block_table: Sequence[int] = ()
    num_prompt: int | None = None
    tenant: str = ""


class Drafter(Protocol):
    """Guesses what the target will say. Whatever it guesses, the output stays the target's.

    Attributes:
        name: as in configuration and metrics.
        taps: the target's layers whose hidden states ``observe`` wants; ``()`` wants the last
            hidden state alone, None wants none.
    """

    name: str
    taps: tuple[int, ...] | None

    @property
    def sources(self) -> tuple[str, ...]:
        """The names under which its trees come (`DraftTree.source`), in the order of asking.

        Costs and acceptance are counted by them.
        """
        ...

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        """A tree for each ask, in their order; an empty tree where there is nothing to say."""
        ...

    def observe(self, seen: Sequence[Seen]) -> None:
        """Learn what became part of the sequences in this step."""
        ...

    def forget(self, seq_id: int) -> None:
        """The sequence ended or lost its cache blocks; an unknown one is no error."""
        ...


@runtime_checkable
class Particular(Protocol):
    """A drafter that has nothing to say for requests without what it follows.

    For these it is not asked, and not counted as having found nothing.
    """

    def serves(self, request: Request) -> bool:
        """Whether the request brings what it follows."""
        ...


@runtime_checkable
class Timed(Protocol):
    """A drafter of several sources that knows how long each of them took.

    Attributes:
        seconds_by_source: of the last ``propose``; those that were not asked are left out.
    """

    seconds_by_source: Mapping[str, float]


def timed(drafter: Drafter, asks: Sequence[Ask], seconds: dict[str, float]) -> list[DraftTree]:
    """What the drafter proposes; what each of its sources took is added to ``seconds``."""
    began = perf_counter()
    trees = drafter.propose(asks)
    whole = {drafter.sources[0]: perf_counter() - began}
    by_source = drafter.seconds_by_source if isinstance(drafter, Timed) else whole
    for source, taken in by_source.items():
        seconds[source] = seconds.get(source, 0.0) + taken
    return trees
