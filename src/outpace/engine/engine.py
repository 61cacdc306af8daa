"""The engine: token ids in, token ids out, a step at a time."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from time import perf_counter

import torch

from outpace.cache.blocks import BlockManager
from outpace.config import EngineConfig
from outpace.control.controller import Budget, Candidate, Controller, Outcome, StepRecord
from outpace.control.pacing import Pacing
from outpace.engine.admission import Admission
from outpace.engine.drafting import Drafting
from outpace.engine.interrupts import held_back
from outpace.engine.scheduler import Scheduled, Scheduler
from outpace.engine.segments import Segment, build_batch
from outpace.engine.sequence import Sequence
from outpace.errors import InvalidValueError
from outpace.model.decoder import Hidden
from outpace.model.runner import ModelRunner
from outpace.request import FinishReason, Request
from outpace.sampling.logprobs import token_logprob
from outpace.spec.drafter import Seen
from outpace.spec.verifier import Emission, TargetRows


@dataclass(frozen=True, slots=True)
class Progress:
    """What a step added to a sequence: its newest tokens are the last ``num_new`` ones."""

    sequence: Sequence
    num_new: int


class Engine:
    """Runs any number of sequences together; exact whatever else is in the batch.

    Args:
        runner: the target model with its cache.
        blocks: the books of that cache.
        drafting: the drafters.
        controller: decides how much to draft.
        admission: checks requests and makes their sequences.
        config: limits and rules.
    """

    def __init__(
        self,
        runner: ModelRunner,
        blocks: BlockManager,
        drafting: Drafting,
        controller: Controller,
        admission: Admission,
        config: EngineConfig,
    ) -> None:
        self.runner = runner
        self.blocks = blocks
        self.drafting = drafting
        self.pacing = Pacing(controller)
        self.admission = admission
        self.config = config
        self.scheduler = Scheduler(
            blocks, config.max_num_seqs, config.max_num_batched_tokens, self._forget_draft
        )
        self._by_request: dict[str, list[Sequence]] = {}
        # For whoever watches the steps, and for whoever wants to know that a sequence ended.
        self.on_step: Callable[[StepRecord], None] = _ignore
        self.on_end: Callable[[], None] = _ignore_end

    @property
    def controller(self) -> Controller:
        """Who decides how much to draft; another one may take its place while nothing runs."""
        return self.pacing.controller

    @controller.setter
    def controller(self, controller: Controller) -> None:
        self.pacing = Pacing(controller)

    def add(self, request: Request) -> list[Sequence]:
        """Take in a request; returns its n sequences, which fill up as steps are made.

        Raises:
            InvalidValueError: the request cannot be honoured; nothing was taken in.
        """
        if request.request_id in self._by_request:
            raise InvalidValueError("request_id", request.request_id, "is already running")
        sequences = self.admission.open(request)
        choices, idle = self.drafting.choices(request), self.drafting.idle(request)
        for sequence in sequences:
            sequence.choices, sequence.idle = choices, idle
            if choices:  # nobody drafts while its prompt is read; then a controller chooses
                sequence.drafter = choices[0]
            self.scheduler.add(sequence)
        self._by_request[request.request_id] = sequences
        return sequences

    def abort(self, request_id: str) -> None:
        """End a request now and free all it holds; an unknown or ended one is no error."""
        sequences = self._by_request.pop(request_id, [])
        for sequence in sequences:
            if self.scheduler.holds(sequence):
                self._retire(sequence)
        for sequence in sequences:
            if sequence.output.finish_reason is None:
                sequence.output.finish(FinishReason.ABORT)

    @property
    def has_work(self) -> bool:
        """Whether any sequence is unfinished."""
        return bool(self.scheduler.running or self.scheduler.waiting)

    def step(self) -> list[Progress]:
        """Advance every scheduled sequence by a piece of prompt or by some tokens.

        Ctrl-C takes effect after the step. If a step fails, the sequences that it ended are
        retired by the next one, and the others go on: tokens that were emitted but not committed
        are known tokens that the next step computes.
        """
        with held_back(), torch.inference_mode():
            self._retire_finished()
            return self._step()

    def _step(self) -> list[Progress]:
        began = perf_counter()
        budgets = self._budgets()
        parts = self.scheduler.schedule({seq: budget.tokens for seq, budget in budgets.items()})
        if not parts:
            return []
        for part in parts:
            if part.completes and part.sequence.seq_id not in budgets:
                part.sequence.counts.off_reasons["the prompt was just computed"] += 1
        trees = self.drafting.propose(parts, budgets)
        by_source = self.drafting.seconds
        draft_seconds = sum(by_source.values())

        config = self.config
        batch, segments = build_batch(parts, trees, config.block_size, config.tree_attention)
        forward_began = perf_counter()
        logits, hidden = self.runner.run(batch, self.drafting.taps)
        verify_seconds = perf_counter() - forward_began

        emissions = [self._verify_alone(segment, logits) for segment in segments]
        seen = [self._commit(*pair, hidden) for pair in zip(segments, emissions, strict=True)]
        self.drafting.observe(parts, seen)
        outcomes = [_count(*pair) for pair in zip(segments, emissions, strict=True)]
        rows = batch.num_rows if all(part.num_known == 1 for part in parts) else None
        rest = perf_counter() - began - draft_seconds - verify_seconds
        record = StepRecord(rows, verify_seconds, by_source, tuple(outcomes), rest)
        self.pacing.record(record)
        self.on_step(record)

        self._retire_finished()
        whole = perf_counter() - began
        _share_time(parts, draft_seconds, verify_seconds, whole)
        progress = [Progress(p.sequence, len(e)) for p, e in zip(parts, emissions, strict=True)]
        for one in progress:
            pace = one.sequence.counts.pace
            pace.add(whole, one.num_new, len(parts), clean=rows is not None)
        return progress

    def _budgets(self) -> dict[int, Budget]:
        """How many draft tokens each running sequence gets, and of whom, noting why if none."""
        running = self.scheduler.running
        budgets, fresh = self.pacing.budgets(
            [sequence.seq_id for sequence in running],
            [sequence.room for sequence in running],
            lambda: [self._candidate(sequence) for sequence in running],
        )
        for sequence, budget in zip(running, budgets, strict=True):
            if fresh and budget.drafter and (budget.why or budget.drafter != sequence.drafter):
                sequence.give_drafter(budget.drafter, budget.why)
            if budget.reason and sequence.num_missing == 1:
                sequence.counts.off_reasons[budget.reason] += 1
        return {sequence.seq_id: budget for sequence, budget in zip(running, budgets, strict=True)}

    def _candidate(self, sequence: Sequence) -> Candidate:
        sources = self.drafting.sources(sequence.drafter)
        if sequence.idle and not sequence.choices:  # a controller asks whom it chose
            sources = tuple(one for one in sources if one not in sequence.idle)
        return Candidate(
            sequence.seq_id,
            sequence.drafter,
            sequence.room,
            sequence.request.num_speculative_tokens,
            len(sequence.tokens),
            sources,
            sequence.request.request_type,
            sequence.choices,
            idle=not sources,
        )

    def _verify_alone(self, segment: Segment, logits: torch.Tensor) -> list[Emission]:
        """Verify; what goes wrong in one sequence ends that sequence only."""
        try:
            return self._verify(segment, logits)
        except Exception as error:
            segment.part.sequence.failure = error
            segment.part.sequence.output.finish_reason = FinishReason.ABORT
            return []

    def _verify(self, segment: Segment, logits: torch.Tensor) -> list[Emission]:
        """Take tokens from the verifier one at a time until the walk or the sequence ends."""
        sequence = segment.part.sequence
        if not segment.part.completes:
            return []
        first = segment.first_logits_row
        rows = logits[first : first + 1 + len(segment.tree)]
        target = TargetRows(rows, sequence.sampler, sequence.history, len(sequence.tokens))
        num_top = sequence.request.params.logprobs
        emissions: list[Emission] = []
        for emission in sequence.verifier.verify(segment.tree, target):
            if sequence.history.failure:
                sequence.output.fail(sequence.history.failure)
                break
            emissions.append(emission)
            logprob = None
            if num_top is not None:
                logprob = token_logprob(rows[emission.parent + 1], emission.token, num_top)
            sequence.tokens.append(emission.token)
            sequence.history.append(emission.token)
            if sequence.output.append(emission.token, emission.node is not None, logprob):
                break
        if sequence.first_token_at is None:
            sequence.first_token_at = perf_counter()
        return emissions

    def _commit(self, segment: Segment, emissions: Seq[Emission], hidden: Hidden) -> Seen:
        """Keep the known tokens and the accepted path in the cache, in contiguous slots."""
        sequence = segment.part.sequence
        start = sequence.num_computed
        known_end = start + segment.part.num_known
        path = [emission.node for emission in emissions if emission.node is not None]
        self._move_path(sequence, known_end, path)
        sequence.num_computed = known_end + len(path)
        tokens = sequence.tokens.array[: sequence.num_computed]
        self.blocks.commit(sequence.table, tokens, sequence.cache_salt)
        self.blocks.trim(sequence.table, len(sequence.tokens))
        last = taps = None
        if self.drafting.wants_hidden(sequence):
            rows = segment.rows_of(path)
            last = hidden.last[rows]
            taps = None if hidden.taps is None else hidden.taps[rows]
        return Seen(
            sequence.seq_id,
            start,
            tuple(tokens[start:].tolist()),
            last,
            taps,
            sequence.tokens.array,
            sequence.table.blocks,
            sequence.num_prompt,
            sequence.request.tenant,
        )

    def _move_path(self, sequence: Sequence, base: int, path: list[int]) -> None:
        """Bring accepted nodes from the slots of their nodes to those of their positions."""
        if path == list(range(len(path))):
            return
        table = self.blocks.slots(sequence.table, base, base + path[-1] + 1).tolist()
        self.runner.pool.move([table[node] for node in path], table[: len(path)])

    def _retire_finished(self) -> None:
        finished = [s for s in self.scheduler.running if s.output.finish_reason is not None]
        for sequence in finished:
            self._retire(sequence)
            samples = self._by_request.get(sequence.request.request_id, [])
            if all(sample.output.finish_reason for sample in samples):
                self._by_request.pop(sequence.request.request_id, None)

    def _retire(self, sequence: Sequence) -> None:
        sequence.finished_at = perf_counter()
        self.scheduler.remove(sequence)
        self._forget_draft(sequence)
        self.pacing.forget(sequence.seq_id)
        self.on_end()

    def _forget_draft(self, sequence: Sequence) -> None:
        self.drafting.forget(sequence.seq_id)


def _ignore(step: StepRecord) -> None:
    """Nobody watches."""


def _ignore_end() -> None:
    """Nobody wants to know."""


def _count(segment: Segment, emissions: Seq[Emission]) -> Outcome:
    """Book a segment's outcome with its sequence, and report it."""
    sequence, tree = segment.part.sequence, segment.tree
    accepted = sum(emission.node is not None for emission in emissions)
    rejected = bool(emissions) and emissions[-1].rejected
    sequence.counts.asked += segment.part.draft_budget
    if emissions:
        sequence.counts.record(tree, len(emissions), accepted, rejected, sequence.drafter)
    return Outcome(
        sequence.seq_id,
        sequence.drafter,
        drafted=len(tree),
        accepted=accepted,
        rejected=rejected,
        asked=segment.part.draft_budget,
        emitted=len(emissions),
        context=len(sequence.tokens) - len(emissions),
        source=tree.source,
    )


def _share_time(parts: Seq[Scheduled], draft: float, verify: float, whole: float) -> None:
    """Book the step's time with the sequences that shared it, in equal parts."""
    for part in parts:
        counts = part.sequence.counts
        counts.draft_seconds += draft / len(parts)
        counts.verify_seconds += verify / len(parts)
        counts.rest_seconds += (whole - draft - verify) / len(parts)
