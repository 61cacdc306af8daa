"""What a request has made so far, as whoever asked for it is told: in pieces, and whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

from outpace.engine.sequence import Sequence as EngineSequence
from outpace.request import (
    CompletionOutput,
    Request,
    RequestOutput,
    StreamChunk,
    Timing,
    Usage,
)


@dataclass(slots=True)
class _Told:
    """How much of a sequence has been told."""

    tokens: int = 0
    pieces: int = 0
    target_steps: int = 0
    drafted: int = 0
    ended: bool = False


class Ticket:
    """A request that is in an engine.

    Args:
        request: what was asked for.
        sequences: its samples in the engine.
        guarantee: what was found to hold on this machine.
    """

    def __init__(
        self, request: Request, sequences: Sequence[EngineSequence], guarantee: str
    ) -> None:
        self.request = request
        self.sequences = sequences
        self._guarantee = guarantee
        self._told = [_Told() for _ in sequences]

    @property
    def finished(self) -> bool:
        """Whether all samples have ended.

        Raises:
            Exception: what went wrong in the request's own part of a step.
        """
        self._raise_failure()
        return all(sequence.output.finish_reason is not None for sequence in self.sequences)

    @property
    def told(self) -> bool:
        """Whether `news` has told the end of all samples."""
        return all(told.ended for told in self._told)

    def _raise_failure(self) -> None:
        for sequence in self.sequences:
            if sequence.failure is not None:
                raise sequence.failure

    def news(self) -> Iterator[StreamChunk]:
        """What was made since the last call, whoever made the steps; a chunk for each sample.

        The pieces joined are the texts of the whole result, which comes with the last of them.

        Raises:
            Exception: what went wrong in the request's own part of a step.
        """
        self._raise_failure()
        for sequence, told in zip(self.sequences, self._told, strict=True):
            output = sequence.output
            ended = output.finish_reason is not None
            if told.tokens == len(output.token_ids) and ended == told.ended:
                continue
            told.ended = ended
            yield self._chunk(sequence, told)

    def _chunk(self, sequence: EngineSequence, told: _Told) -> StreamChunk:
        output, counts = sequence.output, sequence.counts
        chunk = StreamChunk(
            index=sequence.index,
            text="".join(output.pieces[told.pieces :]),
            token_ids=tuple(output.token_ids[told.tokens :]),
            accepted=tuple(output.accepted[told.tokens :]),
            finish_reason=output.finish_reason,
            output=self.result() if self.told else None,
            stop_reason=output.stop_reason,
            logprobs=tuple(output.logprobs[told.tokens :]),
            target_steps=counts.target_steps - told.target_steps,
            drafted=counts.drafted - told.drafted,
            drafter=sequence.drafter,
        )
        told.pieces, told.tokens = len(output.pieces), len(output.token_ids)
        told.target_steps, told.drafted = counts.target_steps, counts.drafted
        return chunk

    def result(self) -> RequestOutput:
        """The whole result of a finished request."""
        request, sequences = self.request, self.sequences
        now = perf_counter()
        outputs = tuple(self._output(sequence) for sequence in sequences)
        completion = sum(len(output.token_ids) for output in outputs)
        arrived = sequences[0].arrived
        first = min(s.first_token_at or now for s in sequences) - arrived
        ended = max(s.finished_at or now for s in sequences) - arrived
        queued = min(s.admitted_at or now for s in sequences) - arrived
        decoding = max(ended - first, 1e-9)
        rate = (completion - len(sequences)) / decoding if completion > len(sequences) else 0.0
        return RequestOutput(
            request_id=request.request_id,
            prompt_token_ids=request.prompt_token_ids,
            outputs=outputs,
            usage=Usage(len(request.prompt_token_ids), completion, sequences[0].num_cached or 0),
            timing=Timing(first, ended, rate, queued),
        )

    def _output(self, sequence: EngineSequence) -> CompletionOutput:
        output = sequence.output
        assert output.finish_reason is not None
        rule = sequence.verifier.name
        guarantee = "distribution" if rule == "rejection" else self._guarantee
        return CompletionOutput(
            index=sequence.index,
            text=output.whole_text,
            token_ids=tuple(output.token_ids),
            finish_reason=output.finish_reason,
            stop_reason=output.stop_reason,
            logprobs=tuple(output.logprobs) if output.params.logprobs is not None else None,
            accepted=tuple(output.accepted),
            speculative=sequence.counts.summary(
                sequence.drafter, rule, guarantee, sequence.drafter_choices
            ),
        )
