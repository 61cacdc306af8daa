"""Who takes part in a step, with how many tokens, and who has to make room."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter

from outpace.cache.blocks import BlockManager
from outpace.engine.sequence import Sequence


@dataclass(slots=True)
class Scheduled:
    """A sequence's part in a step: known tokens to compute, and room for a draft.

    A prompt piece, plain decoding and a speculative step differ in these two numbers only. The
    draft hangs off the last known token, so its budget is 0 unless all known ones are computed.
    """

    sequence: Sequence
    num_known: int
    draft_budget: int

    @property
    def completes(self) -> bool:
        """Whether the step computes the last known token, whose row decides the next one."""
        return self.num_known == self.sequence.num_missing


class Scheduler:
    """Continuous batching: first come, first served; the youngest makes room when blocks run out.

    Args:
        blocks: the cache's books.
        max_num_seqs: most sequences in a step.
        max_num_batched_tokens: most known tokens in a step beside the pending ones.
        on_preempt: told of each sequence that loses its blocks.
    """

    def __init__(
        self,
        blocks: BlockManager,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        on_preempt: Callable[[Sequence], None],
    ) -> None:
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.num_preemptions = 0
        self._blocks = blocks
        self._max_num_seqs = max_num_seqs
        self._max_num_batched_tokens = max_num_batched_tokens
        self._on_preempt = on_preempt

    def add(self, sequence: Sequence) -> None:
        """Put a sequence at the end of the queue."""
        self.waiting.append(sequence)

    def holds(self, sequence: Sequence) -> bool:
        """Whether a sequence is running or waiting."""
        return sequence in self.running or sequence in self.waiting

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it is, and give its blocks back."""
        if sequence in self.running:
            self.running.remove(sequence)
        else:
            self.waiting.remove(sequence)
        self._blocks.free(sequence.table)

    def schedule(self, budgets: Mapping[int, int]) -> list[Scheduled]:
        """Choose the parts of the next step and reserve their blocks.

        Args:
            budgets: draft tokens by sequence id; sequences without one draft nothing.
        """
        left = self._max_num_batched_tokens
        parts: list[Scheduled] = []
        for sequence in list(self.running):
            if sequence not in self.running or (left == 0 and sequence.num_missing > 1):
                continue
            num_known = min(sequence.num_missing, 1 + left)
            part = Scheduled(sequence, num_known, 0)
            if part.completes:
                part.draft_budget = budgets.get(sequence.seq_id, 0)
            if self._reserve(part):
                left -= num_known - 1
                parts.append(part)
        self._admit(left, parts)
        return parts

    def _admit(self, left: int, parts: list[Scheduled]) -> None:
        """Start waiting sequences while there are seats, tokens and blocks."""
        while self.waiting and left > 0 and len(self.running) < self._max_num_seqs:
            sequence = self.waiting[0]
            if self._must_wait(sequence):
                return
            known = sequence.tokens.array
            cached = self._blocks.match(sequence.table, known, sequence.cache_salt)
            # All known tokens must fit at once: a sequence that is let in on hope is the next
            # to be preempted.
            if not self._blocks.reserve(sequence.table, len(known)):
                self._blocks.free(sequence.table)
                return
            sequence.num_computed = cached
            if sequence.num_cached is None:
                sequence.num_cached = cached
                sequence.admitted_at = perf_counter()
            self.running.append(self.waiting.popleft())
            num_known = min(sequence.num_missing, left)
            left -= num_known
            parts.append(Scheduled(sequence, num_known, 0))

    def _must_wait(self, sequence: Sequence) -> bool:
        """Whether the prompt is just being computed for another sample of the same request."""
        leader = sequence.leader
        return (
            leader is not None
            and leader.output.finish_reason is None
            and leader.num_computed < leader.num_prompt
        )

    def _reserve(self, part: Scheduled) -> bool:
        """Blocks for a part; drafts give way first, then the youngest sequence."""
        sequence = part.sequence
        stop = sequence.num_computed + part.num_known
        while True:
            if self._blocks.reserve(sequence.table, stop + part.draft_budget):
                return True
            if part.draft_budget:
                part.draft_budget = 0
                continue
            victim = self.running[-1]
            self.preempt(victim)
            if victim is sequence:
                return False

    def preempt(self, sequence: Sequence) -> None:
        """Take a sequence's blocks; it goes on later with the same tokens."""
        self.running.remove(sequence)
        self._blocks.free(sequence.table)
        sequence.num_computed = 0
        self.waiting.appendleft(sequence)
        self.num_preemptions += 1
        sequence.num_preemptions += 1
        self._on_preempt(sequence)
