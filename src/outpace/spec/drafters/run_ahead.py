"""Running ahead of the target on guesses: what all drafters with logits have in common."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outpace.cache.blocks import slots
from outpace.sampling.choice import draw
from outpace.sampling.noise import Stream, uniform
from outpace.sampling.processors import TokenHistory
from outpace.spec.drafter import Ask
from outpace.spec.tree import DraftTree


@dataclass(slots=True)
class RunAhead:
    """One sequence being drafted for, guess after guess.

    Attributes:
        ask: what is wanted.
        history: tokens so far, the guesses included.
        tokens: the guesses.
        probs: where they are wanted, the distribution ``[vocab]`` that each was drawn from.
        confidence: where it is wanted, how likely each was.
    """

    ask: Ask
    history: TokenHistory
    tokens: list[int] = field(default_factory=list)
    probs: list[Tensor] = field(default_factory=list)
    confidence: list[float] = field(default_factory=list)

    @classmethod
    def from_ask(cls, ask: Ask) -> RunAhead:
        """Nothing guessed yet."""
        return cls(ask, ask.history.copy())

    @property
    def is_done(self) -> bool:
        """Whether the budget is used up, or the grammar allows no more."""
        return len(self.tokens) >= self.ask.budget or self.history.ended

    def guess(self, logits: Tensor) -> int:
        """Choose the next guess as the target would: with its parameters and its noise.

        Args:
            logits: ``[vocab]`` float32 over the target's token ids.
        """
        ask, sampler = self.ask, self.ask.sampler
        position = len(ask.token_ids) + len(self.tokens)
        if ask.wants_probs:
            probs = sampler.probs(logits, self.history)
            token = draw(probs, uniform(sampler.seed, position, Stream.DRAFT))
            self.probs.append(probs)
        else:
            token = sampler.choose(logits, self.history, position)
        if ask.wants_confidence:
            self.confidence.append(float(torch.exp(logits[token] - torch.logsumexp(logits, 0))))
        self.tokens.append(token)
        self.history.append(token)
        return token

    def tree(self, source: str) -> DraftTree:
        """The guesses as a chain."""
        probs = torch.stack(self.probs) if self.probs else None
        return DraftTree.chain(self.tokens, probs, source, self.confidence)


def slots_of(ask: Ask, block_size: int) -> NDArray[np.int64]:
    """The cache slots of all known tokens and of a whole draft, on the sequence's block table."""
    stop = len(ask.token_ids) + ask.budget
    return slots(tuple(ask.block_table), 0, stop, block_size)
