"""The text end of a sequence: tokens in, text out, stop texts watched for."""

from __future__ import annotations

from outpace.request import SamplingParams
from outpace.text.detokenizer import Detokenizer
from outpace.text.stops import StopText
from outpace.text.tokenizer import Tokenizer


class SequenceText:
    """Implements the engine's ``TextSink`` with a tokenizer."""

    def __init__(self, detokenizer: Detokenizer, stops: tuple[str, ...]) -> None:
        self._detokenizer = detokenizer
        self._stops = StopText(stops)

    @classmethod
    def opener(cls, tokenizer: Tokenizer, params: SamplingParams) -> SequenceText:
        """The text end of a sequence with these parameters."""
        skip = params.skip_special_tokens
        return cls(tokenizer.detokenizer(skip_special_tokens=skip), params.stop)

    @property
    def stopped_by(self) -> str | None:
        """The stop text that was met."""
        return self._stops.hit

    def push(self, token_id: int, *, watch: bool) -> str:
        """Take a token; before ``watch`` text passes without a look at the stop texts."""
        piece = self._detokenizer.push(token_id)
        return self._stops.push(piece) if watch else piece

    def flush(self) -> str:
        """What incomplete characters and possible stop texts held back."""
        return self._stops.push(self._detokenizer.flush()) + self._stops.flush()
