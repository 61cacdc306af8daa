"""One sequence's way of choosing tokens, shared by its target and its drafter."""

from __future__ import annotations

from torch import Tensor

from outpace.request import SamplingParams
from outpace.sampling.choice import choose
from outpace.sampling.processors import LogitsProcessor, TokenHistory, distribution


class TokenSampler:
    """Parameters and noise of one sequence; it has no state, the history is passed in.

    Args:
        params: the request's parameters.
        seed: the sequence's own; fresh if the request has none.
        end_token_ids: tokens that are impossible before ``min_tokens``.
    """

    def __init__(self, params: SamplingParams, seed: int, end_token_ids: frozenset[int]) -> None:
        self.params = params
        self.seed = seed
        self._process = LogitsProcessor(params, end_token_ids)

    def leaves_alone(self, history: TokenHistory) -> bool:
        """Whether logits stay as they are up to the temperature, here and from here on."""
        return self._process.leaves_alone(history)

    def processed(self, logits: Tensor, history: TokenHistory) -> Tensor:
        """``[vocab]`` logits with all that parameters do to them before the temperature."""
        return self._process(logits, history)

    def probs(self, logits: Tensor, history: TokenHistory) -> Tensor:
        """The distribution ``[vocab]`` that a token is drawn from after ``history``."""
        return distribution(self._process(logits, history), self.params)

    def choose(self, logits: Tensor, history: TokenHistory, position: int) -> int:
        """The token at ``position``: a pure function of logits, history, seed and position."""
        processed = self._process(logits, history)
        if self.params.greedy:
            return int(processed.argmax())
        return choose(distribution(processed, self.params), self.seed, position)
