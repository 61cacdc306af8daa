"""Guesses of a model with another vocabulary, as tokens of the target."""

from __future__ import annotations

import codecs
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from outpace.spec.drafter import Ask
from outpace.spec.drafters.run_ahead import RunAhead
from outpace.spec.tree import DraftTree
from outpace.text.tokenizer import Tokenizer
from outpace.text.translation import SharedTokens, continuation

# So much of the known text decides how a guessed text that follows it is encoded.
_TEXT_BEFORE = 64


class Vocabularies:
    """The target's and the draft's words, and what they have in common.

    Args:
        target, draft: the tokenizers.
        target_size, draft_size: of the models' vocabularies.
    """

    def __init__(
        self, target: Tokenizer, draft: Tokenizer, target_size: int, draft_size: int
    ) -> None:
        self.target = target
        self.draft = draft
        self.target_size = target_size
        self.shared = SharedTokens.of(target, draft)
        pairs = [
            (mine, other)
            for mine, other in zip(self.shared.target, self.shared.draft, strict=True)
            if mine < target_size and other < draft_size
        ]
        self.draft_of: Mapping[int, int] = dict(pairs)
        self._target_ids = torch.tensor([mine for mine, _ in pairs], dtype=torch.long)
        self._draft_ids = torch.tensor([other for _, other in pairs], dtype=torch.long)

    @cached_property
    def target_bytes(self) -> dict[int, bytes]:
        """What each of the target's tokens stands for."""
        return self.target.token_bytes()

    @cached_property
    def draft_bytes(self) -> dict[int, bytes]:
        """What each of the draft's tokens stands for."""
        return self.draft.token_bytes()

    def translated(self, logits: Tensor) -> Tensor:
        """Of the draft ``[draft vocab]`` to the target's ids; minus infinity where it has none."""
        result = torch.full((self.target_size,), -torch.inf)
        result[self._target_ids] = logits[self._draft_ids]
        return result


class Guesses(Protocol):
    """One sequence's guesses, growing by the draft's tokens.

    Attributes:
        ask: what is wanted.
        ids: the draft's tokens so far.
    """

    ask: Ask
    ids: list[int]

    @property
    def is_done(self) -> bool:
        """Whether nothing more is wanted."""
        ...

    def take(self, logits: Tensor) -> None:
        """Go on by one of the draft's tokens, chosen from its logits ``[draft vocab]``."""
        ...

    def tree(self, source: str) -> DraftTree:
        """What was guessed, as tokens of the target."""
        ...


@dataclass(slots=True)
class SharedGuesses:
    """Guesses among the tokens that both have: q is over the target's ids, as the target needs it.

    (Token-level intersection, TLI: Timor et al. 2025, arXiv 2502.05202, algorithm 4.)
    """

    ask: Ask
    words: Vocabularies
    ids: list[int] = field(default_factory=list)
    run: RunAhead = field(init=False)
    stuck: bool = False

    def __post_init__(self) -> None:
        self.run = RunAhead.from_ask(self.ask)

    @property
    def is_done(self) -> bool:
        """See `Guesses`."""
        return self.stuck or self.run.is_done

    def take(self, logits: Tensor) -> None:
        """See `Guesses`."""
        translated = self.words.translated(logits)
        if translated.max() == -torch.inf:  # nothing that the draft may say has a word here
            self.stuck = True
            return
        token = self.run.guess(translated)
        if token not in self.words.draft_of:  # a bias can lift what was impossible only so far
            self.stuck = True
            return
        self.ids.append(self.words.draft_of[token])

    def tree(self, source: str) -> DraftTree:
        """See `Guesses`."""
        return self.run.tree(source)


@dataclass(slots=True)
class WrittenGuesses:
    """Greedy guesses by way of the text: whatever the draft writes, in the target's tokens.

    (String-level matching as in universal assisted generation; Timor et al. 2025, algorithm 2.)

    Args:
        ask: what is wanted.
        words: both vocabularies.
        before: the known text, or its end.
    """

    ask: Ask
    words: Vocabularies
    before: str
    ids: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    ended: bool = False
    log_sure: float = 0.0

    @property
    def is_done(self) -> bool:
        """See `Guesses`."""
        budget = self.ask.budget
        return self.ended or len(self.tokens) >= budget or len(self.ids) >= 2 * budget

    def take(self, logits: Tensor) -> None:
        """See `Guesses`."""
        token = int(logits.argmax())
        if self.ask.wants_confidence:
            self.log_sure += float(logits[token] - torch.logsumexp(logits, 0))
        self.ids.append(token)
        words = self.words
        self.ended = token in words.draft.eos_token_ids
        spelled = self.ids[:-1] if self.ended else self.ids
        data = b"".join(words.draft_bytes.get(one, b"") for one in spelled)
        # Bytes of a character that is not complete are left for the next token.
        text = codecs.getincrementaldecoder("utf-8")("replace").decode(data)
        self.tokens = continuation(words.target, self.before[-_TEXT_BEFORE:], text) if text else []
        if self.ended and words.shared.target_end is not None:
            self.tokens.append(words.shared.target_end)

    def tree(self, source: str) -> DraftTree:
        """See `Guesses`."""
        tokens = self.tokens[: self.ask.budget]
        confidence: list[float] = []
        if self.ask.wants_confidence and self.tokens:
            confidence = [math.exp(self.log_sure / len(self.tokens))] * len(tokens)
        return DraftTree.chain(tokens, None, source, confidence)
