"""How far an answer has got in its grammar, and which tokens may come next."""

from __future__ import annotations

from collections.abc import Sequence
from time import thread_time
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from llguidance import LLMatcher

_SMOOTHING = 0.25
# Processor time for one token. A usual grammar takes a thousandth of it.
_LONGEST_SECONDS = 0.5


class GrammarMatcher:
    """The state of one sequence in its grammar; it follows the tokens, one at a time.

    Attributes:
        end_token_ids: the model's end-of-sequence tokens, allowed only where the text so far is
            a whole text of the grammar.
        failure: why no further token can be judged; empty while all is well. A failed matcher
            allows everything, and whoever emits tokens must end the sequence instead.
        mask_seconds: processor time that a mask has taken of late.

    Args:
        matcher: the library's state.
        vocab_size: of the model's logits.
        end_token_ids: of the model.
    """

    def __init__(self, matcher: LLMatcher, vocab_size: int, end_token_ids: frozenset[int]) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size
        self.end_token_ids = end_token_ids
        self.failure = ""
        self.mask_seconds = 0.0
        self._ended = False
        self._allowed: NDArray[np.bool_] | None = None

    @property
    def complete(self) -> bool:
        """Whether the text is a whole one of the grammar and nothing can follow it."""
        return self._ended

    @property
    def open(self) -> bool:
        """Whether a token may follow."""
        return not self._ended and not self.failure

    def allowed(self) -> NDArray[np.bool_]:
        """Which tokens may come next, ``[vocab]``; end tokens where the text may end here."""
        if self._allowed is None:
            began = thread_time()
            self._allowed = self._mask()
            spent = thread_time() - began
            self.mask_seconds += _SMOOTHING * (spent - self.mask_seconds)
            self._check_time(spent)
        return self._allowed

    def _mask(self) -> NDArray[np.bool_]:
        everything = np.ones(self._vocab_size, dtype=np.bool_)
        if not self.open:
            return everything
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        self._note_failure()
        allowed = np.unpackbits(bits, bitorder="little", count=self._vocab_size).view(np.bool_)
        if not self.failure and not allowed.any():
            self.failure = "the grammar needs a text that the model's tokens cannot spell"
        return everything if self.failure else allowed

    def advance(self, token: int) -> None:
        """Take the next token, which must be allowed."""
        self._allowed = None
        if not self.open:
            return
        if token in self.end_token_ids:
            self._ended = True
            return
        began = thread_time()
        self._matcher.consume_token(token)
        self._note_failure()
        self._check_time(thread_time() - began)
        self._ended = not self.failure and self._matcher.is_stopped()

    def copy(self) -> GrammarMatcher:
        """An independent state: for a drafter, that runs ahead on guesses."""
        twin = GrammarMatcher(self._matcher.deep_copy(), self._vocab_size, self.end_token_ids)
        twin.failure, twin._ended = self.failure, self._ended
        twin._allowed, twin.mask_seconds = self._allowed, self.mask_seconds
        return twin

    def forced(self) -> list[int]:
        """The tokens that must come next, as the model's own tokenizer would write them.

        Where the last of the forced characters could become one token with what follows them,
        they are left out: the model might choose otherwise there.
        """
        # On a copy, here and below: what a look ahead costs or breaks is not the sequence's.
        return self._matcher.deep_copy().compute_ff_tokens() if self.open else []

    def num_valid(self, tokens: Sequence[int]) -> int:
        """How many of the tokens could follow one after the other."""
        if not self.open:
            return 0
        return self._matcher.deep_copy().validate_tokens(list(tokens))

    def _check_time(self, spent: float) -> None:
        """Other requests wait meanwhile: once is enough."""
        if spent > _LONGEST_SECONDS and not self.failure:
            self.failure = f"the grammar took {spent:.1f} s for one token; make it simpler"

    def _note_failure(self) -> None:
        if self._matcher.is_error():
            said = self._matcher.get_error().strip().splitlines() or ["no reason given"]
            self.failure = f"the grammar became too difficult at this point: {said[0]}"
