"""An independent small model with a tokenizer of its own."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from outpace.cache.blocks import BlockManager, BlockTable
from outpace.model.batch import Batch
from outpace.model.runner import ModelRunner
from outpace.spec.drafter import Ask, Seen
from outpace.spec.drafters.in_other_words import (
    Guesses,
    SharedGuesses,
    Vocabularies,
    WrittenGuesses,
)
from outpace.spec.tree import DraftTree
from outpace.text.translation import RunningEncoding

_LARGEST_PIECE = 512  # tokens


@dataclass(slots=True)
class _Reading:
    """A sequence as the draft model reads it.

    Attributes:
        encoding: the text in the draft's tokens.
        utf8: turns the target's bytes into text; holds those of an incomplete character.
        num_read: tokens of the target that were read.
        table: blocks of the draft's own cache.
        cached: the draft's tokens whose keys and values are in it.
    """

    encoding: RunningEncoding
    utf8: codecs.IncrementalDecoder
    num_read: int = 0
    table: BlockTable = field(default_factory=BlockTable)
    cached: list[int] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether the text does not end inside a character."""
        return not self.utf8.getstate()[0]

    def settle(self) -> int:
        """How many leading tokens are computed; at least one is left to compute."""
        known = self.encoding.ids
        length = min(len(self.cached), len(known))
        differs = np.flatnonzero(np.array(self.cached[:length]) != np.array(known[:length]))
        agree = int(differs[0]) if len(differs) else length
        del self.cached[min(agree, len(known) - 1) :]
        return len(self.cached)


class UniversalDrafter:
    """Draws a chain from a model with another vocabulary.

    It reads the text, not the tokens: what the target has written is encoded in the draft's
    tokens, anew near the end only. Greedy drafts are written and encoded in the target's tokens;
    sampled ones are drawn from the tokens that both have. How well this goes decides how often a
    guess is right, never what the answer is.

    The draft's tokens are not as many as the target's, so that its cache has blocks of its own;
    when they run out, the sequence that was not drafted for the longest time loses its.

    Args:
        runner: the draft model with its cache.
        block_size: tokens in a block of it.
        words: both vocabularies.
    """

    name = "model"
    sources: tuple[str, ...] = ("model",)
    taps: tuple[int, ...] | None = None

    def __init__(self, runner: ModelRunner, block_size: int, words: Vocabularies) -> None:
        self._runner = runner
        self._words = words
        self._blocks = BlockManager(runner.pool.num_slots // block_size, block_size, False)
        self._readings: dict[int, _Reading] = {}  # the one not used for the longest time first
        self.max_model_len = runner.decoder.config.max_position_embeddings

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        """A chain of at most ``budget`` tokens of the target each."""
        busy = {ask.seq_id for ask in asks}
        reasons = [self._prepare(ask, busy) for ask in asks]
        ready = [ask for ask, reason in zip(asks, reasons, strict=True) if not reason]
        guesses = {ask.seq_id: self._open(ask) for ask in ready}
        active = list(guesses.values())
        while active:
            for one, row in zip(active, self._forward(active), strict=True):
                one.take(row)
            active = [one for one in active if not one.is_done]
        return [
            DraftTree(reason=reason) if reason else guesses[ask.seq_id].tree(self.name)
            for ask, reason in zip(asks, reasons, strict=True)
        ]

    def _prepare(self, ask: Ask, busy: set[int]) -> str:
        """Read what is new and make room; returns why there can be no draft, if so."""
        reading = self._read(ask)
        ids = reading.encoding.ids
        if not reading.is_whole:
            return "the text ends inside a character, which the draft model cannot read"
        if not ids:
            return "the draft model has no tokens for the text"
        stop = len(ids) + 2 * ask.budget
        if stop > self.max_model_len:
            return f"the draft model's context of {self.max_model_len} tokens is exceeded"
        if max(ids) >= self._runner.decoder.config.vocab_size:
            return "the text has a token that the draft model's vocabulary lacks"
        if not self._reserve(reading, stop, busy):
            return "the draft model's cache is full"
        return ""

    def _read(self, ask: Ask) -> _Reading:
        words = self._words
        reading = self._readings.pop(ask.seq_id, None)
        fresh = ask.token_ids[reading.num_read if reading else 0 :].tolist()
        if reading is None:
            utf8 = codecs.getincrementaldecoder("utf-8")("replace")
            reading = _Reading(RunningEncoding(words.draft), utf8)
        data = b"".join(
            words.target_bytes.get(token, b"")
            for token in fresh
            if token not in words.shared.dropped
        )
        text = reading.utf8.decode(data)
        if reading.num_read == 0 and text.startswith(" ") and self._hides_first_space(fresh):
            text = text[1:]
        reading.encoding.extend(text)
        reading.num_read = len(ask.token_ids)
        self._readings[ask.seq_id] = reading
        return reading

    def _hides_first_space(self, token_ids: list[int]) -> bool:
        """Whether the target's tokenizer puts a space before a text that it does not show."""
        return not self._words.target.decode(token_ids[:4]).startswith(" ")

    def _reserve(self, reading: _Reading, num_tokens: int, busy: set[int]) -> bool:
        """Blocks for so many tokens, taken from others where they run out."""
        idle = [one for seq_id, one in self._readings.items() if seq_id not in busy]
        while not self._blocks.reserve(reading.table, num_tokens):
            loser = next((one for one in idle if one.table.blocks), None)
            if loser is None:
                return False
            self._blocks.free(loser.table)
            loser.cached.clear()
        return True

    def _open(self, ask: Ask) -> Guesses:
        reading, params = self._readings[ask.seq_id], ask.sampler.params
        self._catch_up(reading)
        if params.greedy and not (params.penalised or params.logit_bias):
            return WrittenGuesses(ask, self._words, reading.encoding.text)
        return SharedGuesses(ask, self._words)

    def _catch_up(self, reading: _Reading) -> None:
        """Compute long stretches of text in pieces of bounded memory."""
        known = reading.encoding.ids
        while len(known) - (start := reading.settle()) > _LARGEST_PIECE:
            stop = start + _LARGEST_PIECE
            batch = Batch()
            table = self._blocks.slots(reading.table, 0, stop)
            batch.append_run(np.array(known[start:stop]), start, table)
            self._runner.run(batch)
            reading.cached.extend(known[start:stop])

    def _forward(self, guesses: Sequence[Guesses]) -> Tensor:
        """Logits ``[len(guesses), draft vocab]`` after all that each has so far."""
        batch = Batch()
        for one in guesses:
            reading = self._readings[one.ask.seq_id]
            start = len(reading.cached)
            fresh = one.ids[-1:] or reading.encoding.ids[start:]
            reading.cached.extend(fresh)
            table = self._blocks.slots(reading.table, 0, len(reading.cached))
            first = batch.append_run(np.array(fresh), start, table)
            batch.logits_rows.append(first + len(fresh) - 1)
        return self._runner.run(batch)[0]

    def observe(self, seen: Sequence[Seen]) -> None:
        """Nothing to learn: the text comes with every ask."""

    def forget(self, seq_id: int) -> None:
        """Give back its blocks."""
        reading = self._readings.pop(seq_id, None)
        if reading is not None:
            self._blocks.free(reading.table)
