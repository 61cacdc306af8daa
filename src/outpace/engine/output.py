"""The end of a sequence: every emitted token passes here, one at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from outpace.grammar.matcher import GrammarMatcher
from outpace.request import FinishReason, SamplingParams, TokenLogprob


class TextSink(Protocol):
    """Turns tokens into text and watches for stop texts; the engine knows no more of text."""

    @property
    def stopped_by(self) -> str | None:
        """The stop text that was met, if any."""
        ...

    def push(self, token_id: int, *, watch: bool) -> str:
        """Take a token; returns the text that is now certain to be part of the result.

        ``watch`` is whether a stop text may end the sequence at this token.
        """
        ...

    def flush(self) -> str:
        """The text that was held back until the end."""
        ...


@dataclass(slots=True)
class SequenceOutput:
    """What a sequence has emitted, and whether it is over.

    The order in which a token is judged: end-of-sequence token, stop token, stop text, the end of
    the grammar, and only then the limits, so that a stop at the very limit counts as a stop.

    Args:
        params: the request's.
        eos_token_ids: the model's.
        limit: most tokens that may be emitted; from ``max_tokens`` and the context.
        text: where tokens become text.
        matcher: of the sequence's history, which has taken a token before it comes here.
    """

    params: SamplingParams
    eos_token_ids: frozenset[int]
    limit: int
    text: TextSink
    matcher: GrammarMatcher | None = None
    token_ids: list[int] = field(default_factory=list)
    accepted: list[bool] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None

    def append(self, token: int, accepted: bool, logprob: TokenLogprob | None) -> bool:
        """Emit one token; returns whether the sequence is over, after which none may follow."""
        assert self.finish_reason is None, "a token after the end"
        self.token_ids.append(token)
        self.accepted.append(accepted)
        if logprob is not None:
            self.logprobs.append(logprob)
        may_stop = len(self.token_ids) >= self.params.min_tokens
        if may_stop and self._is_end(token):
            self.finish(FinishReason.STOP)
            return True
        self.pieces.append(self.text.push(token, watch=may_stop))
        if self.text.stopped_by is not None:
            self.stop_reason = self.text.stopped_by
            self.finish(FinishReason.STOP)
        elif self.matcher is not None and self.matcher.complete:
            self.finish(FinishReason.STOP)
        elif len(self.token_ids) >= self.limit:
            self.finish(FinishReason.LENGTH)
        return self.finish_reason is not None

    def finish(self, reason: FinishReason) -> None:
        """End the sequence and release the text that was held back."""
        self.finish_reason = reason
        if self.text.stopped_by is None:
            self.pieces.append(self.text.flush())
            # The text that was held back may complete a stop text.
            if self.text.stopped_by is not None and reason is FinishReason.LENGTH:
                self.finish_reason, self.stop_reason = FinishReason.STOP, self.text.stopped_by

    def fail(self, reason: str) -> None:
        """End the sequence because of itself; what it has emitted stays."""
        self.finish(FinishReason.ERROR)
        self.stop_reason = reason

    def _is_end(self, token: int) -> bool:
        if token in self.params.stop_token_ids:
            self.stop_reason = token
            return True
        return token in self.eos_token_ids and not self.params.ignore_eos

    @property
    def whole_text(self) -> str:
        """All text so far."""
        return "".join(self.pieces)
