"""One sequence on its way through the engine."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from outpace.cache.blocks import BlockTable
from outpace.engine.output import SequenceOutput
from outpace.request import DrafterChoice, Request
from outpace.sampling.processors import TokenHistory
from outpace.sampling.sampler import TokenSampler
from outpace.spec.statistics import SpeculationCounts
from outpace.spec.stretches import Stretch, counts_by_drafter
from outpace.spec.verifier import Verifier


class TokenBuffer:
    """Token ids that grow at the end, readable as an array without a copy."""

    def __init__(self, token_ids: tuple[int, ...]) -> None:
        self._array = np.empty(max(64, 2 * len(token_ids)), dtype=np.int64)
        self._array[: len(token_ids)] = token_ids
        self._length = len(token_ids)

    def __len__(self) -> int:
        return self._length

    def append(self, token: int) -> None:
        """Add one token."""
        if self._length == len(self._array):
            self._array = np.concatenate([self._array, np.empty_like(self._array)])
        self._array[self._length] = token
        self._length += 1

    @property
    def array(self) -> NDArray[np.int64]:
        """All tokens, ``[len]``; valid until the next append."""
        return self._array[: self._length]


@dataclass(slots=True, eq=False)
class Sequence:
    """A sample of a request: its tokens, its cache and what it has emitted.

    Known tokens are those of ``tokens``; the first ``num_computed`` of them are in the cache.
    When all but the last are, the last one is pending and its row decides the next token.

    Attributes:
        seq_id: unique within the engine.
        index: which of the request's n samples it is.
        leader: the first sample of the same request, whose prompt the others reuse.
        num_cached: tokens that the prefix cache held when it was first admitted.
        num_preemptions: how often it lost its blocks.
        admitted_at: when that was; None while it has not been.
        failure: what went wrong in its own part of a step, which ended it.
        cache_salt: starts the names of its cache blocks, so that other tenants cannot find them.
        choices: the drafters that a controller may give it; empty where it keeps its own.
        idle: sources that have nothing to say for its request.
        first_drafter: the one that it began with.
        stretches: the drafters that were chosen for it since.
    """

    seq_id: int
    request: Request
    index: int
    tokens: TokenBuffer
    sampler: TokenSampler
    history: TokenHistory
    output: SequenceOutput
    verifier: Verifier
    drafter: str
    leader: Sequence | None = None
    num_computed: int = 0
    num_cached: int | None = None
    num_preemptions: int = 0
    table: BlockTable = field(default_factory=BlockTable)
    counts: SpeculationCounts = field(default_factory=SpeculationCounts)
    arrived: float = field(default_factory=perf_counter)
    admitted_at: float | None = None
    first_token_at: float | None = None
    finished_at: float | None = None
    failure: Exception | None = None
    choices: tuple[str, ...] = ()
    idle: frozenset[str] = frozenset()
    stretches: list[Stretch] = field(default_factory=list)
    cache_salt: bytes = field(init=False)
    first_drafter: str = field(init=False)

    def __post_init__(self) -> None:
        self.first_drafter = self.drafter
        self.cache_salt = _salt(self.request.tenant)

    def give_drafter(self, name: str, reason: str) -> None:
        """From now on this one drafts, for that reason; to keep the same one is no news."""
        if name == self.drafter and self.stretches:
            return
        self.drafter = name
        choice = DrafterChoice(name, len(self.output.token_ids), reason)
        self.stretches.append(Stretch(choice, self.counts.copy()))

    @property
    def drafter_choices(self) -> tuple[DrafterChoice, ...]:
        """Who was chosen to draft, in order."""
        return tuple(one.choice for one in self.stretches)

    def counts_by_drafter(self) -> dict[str, SpeculationCounts]:
        """What each of its drafters did."""
        return counts_by_drafter(self.first_drafter, self.stretches, self.counts)

    @property
    def num_prompt(self) -> int:
        """Tokens of the prompt."""
        return len(self.request.prompt_token_ids)

    @property
    def num_missing(self) -> int:
        """Known tokens that are not in the cache yet; at least one while it lives."""
        return len(self.tokens) - self.num_computed

    @property
    def room(self) -> int:
        """How many draft tokens could be emitted and still be followed by the target's own."""
        return self.output.limit - len(self.output.token_ids) - 1


def _salt(tenant: str) -> bytes:
    if not tenant:
        return b""
    name = tenant.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(name, digest_size=16).digest()
