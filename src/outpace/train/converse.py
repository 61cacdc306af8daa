"""Conversations that the target draws by itself, with its states, in one pass over each.

It goes on with a user's turn that was only begun (Xu et al. 2024, "Magpie", arXiv 2406.08464), then
answers, then perhaps asks again. Nothing is computed twice and nothing but answers and questions is
computed: a store grows several times faster than by drawing prompts first and answering them later,
and its prompts are as varied as what the target learned from.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from outpace.cache.pools import KVPool
from outpace.config import Quantization
from outpace.model.batch import Batch
from outpace.model.build import load_decoder
from outpace.model.decoder import Decoder
from outpace.model.precision import Precision
from outpace.text.tokenizer import Tokenizer
from outpace.train.filling import Filling
from outpace.train.frame import Frame
from outpace.train.prompts.openings import Opening, openings
from outpace.train.store import Example
from outpace.train.target_parts import TargetParts

_ROWS = 400  # of beginnings in a step, about: the others wait, so that memory is bounded
_KEPT_TOKENS, _KEPT_MASS = 400, 0.98  # what is sampled from: the tail is noise
_LEAST_ROOM = 80  # tokens for an answer
_SHORTEST = 6  # tokens of an answer


@dataclass(frozen=True, slots=True)
class ConverseOptions:
    """How conversations are led.

    Attributes:
        seats: at once.
        length: the most tokens of one.
        warm_share: of the conversations whose answers are sampled, not greedy.
        warmth: their temperature.
        seed: of all that is random.
    """

    seats: int = 64
    length: int = 900
    warm_share: float = 0.4
    warmth: float = 0.7
    seed: int = 0


@dataclass(slots=True, eq=False)
class Talk:
    """One conversation as it grows.

    Attributes:
        key: names it.
        opening: how it began.
        frame: what stands between turns.
        ends: the target's end tokens.
        length: the most tokens.
        warmth: temperature of answers.
    """

    key: str
    opening: Opening
    frame: Frame
    ends: tuple[int, ...]
    length: int
    warmth: float
    tokens: list[int] = field(default_factory=list)
    done: int = 0  # of them, the target has seen
    first_answer: int = 0  # where it begins; 0: it did not yet
    temperature: float = 0.0  # of the turn that is being spoken
    taps: list[Tensor] = field(default_factory=list)
    last: list[Tensor] = field(default_factory=list)
    _answering: bool = False
    _left: int = 0
    _turns: int = 0

    def __post_init__(self) -> None:
        opening = self.opening
        self.tokens = self.frame.begin(opening.system, opening.user)[: self.length - 120]
        self._turns = opening.turns
        if opening.whole:
            self._answer()
        else:
            self._ask()

    def _ask(self) -> None:
        self._answering, self._left = False, self.opening.user_tokens
        self.temperature = self.opening.temperature

    def _answer(self) -> None:
        self.tokens += self.frame.answering
        self.first_answer = self.first_answer or len(self.tokens)
        self._answering, self._left = True, self.opening.answer_tokens
        self.temperature = self.warmth

    def take(self, token: int) -> bool:
        """Add what the target said next; whether the conversation is over."""
        ended = token in self.ends
        self._left -= 1
        if not ended or self._answering:
            self.tokens.append(token)
        room = self.length - len(self.tokens)
        if not ended and self._left > 0 and room > _LEAST_ROOM:
            return False
        if not self._answering:
            if room <= _LEAST_ROOM:
                return True
            self._answer()
            return False
        self._turns -= 1
        if not ended or self._turns == 0 or room < 3 * _LEAST_ROOM:
            return True
        self.tokens += self.frame.asking
        self._ask()
        return False

    def example(self) -> Example | None:
        """What is kept of it; what comes before the first answer is its prompt."""
        if not self.first_answer or self.done - self.first_answer < _SHORTEST:
            return None
        tokens = torch.tensor(self.tokens[: self.done], dtype=torch.int32)
        taps = torch.cat(self.taps) if self.taps else None
        return Example(
            self.key, self.opening.kind, self.first_answer, tokens, taps, torch.cat(self.last)
        )


class Converse:
    """Keeps seats taken, and steps all conversations together.

    Args:
        decoder: the target.
        frame: its turns.
        ends: ids of its end tokens.
        taps: layers whose states are kept.
        options: see there.
    """

    def __init__(
        self,
        decoder: Decoder,
        frame: Frame,
        ends: Sequence[int],
        taps: tuple[int, ...],
        options: ConverseOptions,
    ) -> None:
        self._decoder = decoder
        self._frame = frame
        self._ends = tuple(ends)
        self._taps = taps
        self._options = options
        config, seats = decoder.config, options.seats
        self._pool = KVPool(
            config.num_layers,
            seats * (options.length + 16),
            config.num_kv_heads,
            config.head_dim,
            decoder.dtype,
            decoder.device,
        )
        self._random = torch.Generator().manual_seed(options.seed)

    def examples(self, begun: Iterator[Opening], name: str) -> Iterator[Example]:
        """Conversations as they end, as long as there are openings.

        Args:
            begun: how they begin.
            name: of this run; with a number it is the key of an example.
        """
        seats: list[Talk | None] = [None] * self._options.seats
        number = 0
        while True:
            for seat, talk in enumerate(seats):
                if talk is None and (opening := next(begun, None)) is not None:
                    seats[seat] = self._begun(f"{name}-{number}", opening)
                    number += 1
            if not any(seats):
                return
            for seat in self._step(seats):
                talk, seats[seat] = seats[seat], None
                if talk is not None and (example := talk.example()) is not None:
                    yield example

    def _begun(self, key: str, opening: Opening) -> Talk:
        options = self._options
        warm = float(torch.rand((), generator=self._random)) < options.warm_share
        warmth = options.warmth if warm else 0.0
        return Talk(key, opening, self._frame, self._ends, options.length, warmth)

    @torch.inference_mode()
    def _step(self, seats: Sequence[Talk | None]) -> list[int]:
        """Let the target see what it has not seen, and speak; the seats that are over."""
        batch, rows = Batch(), 0
        parts: list[tuple[int, Talk, slice]] = []
        for seat, talk in enumerate(seats):
            if talk is None:
                continue
            new = talk.tokens[talk.done :]
            if len(new) > 1 and rows > _ROWS:
                continue
            new = new[:_ROWS]
            begin = seat * (self._options.length + 16)
            slots = np.arange(begin, begin + talk.done + len(new))
            batch.append_run(np.array(new), talk.done, slots)
            parts.append((seat, talk, slice(rows, rows + len(new))))
            rows += len(new)
        hidden = self._decoder.forward(batch, self._pool, self._taps)
        for _, talk, part in parts:
            talk.last.append(hidden.last[part].to("cpu", torch.bfloat16, copy=True))
            if hidden.taps is not None:
                talk.taps.append(hidden.taps[part].to("cpu", torch.bfloat16, copy=True))
            talk.done += part.stop - part.start
        speaking = [one for one in parts if one[1].done == len(one[1].tokens)]
        if not speaking:
            return []
        logits = self._decoder.logits(hidden.last[[part.stop - 1 for _, _, part in speaking]])
        said = self._said(logits[: len(speaking)], [talk.temperature for _, talk, _ in speaking])
        return [
            seat for (seat, talk, _), token in zip(speaking, said, strict=True) if talk.take(token)
        ]

    def _said(self, logits: Tensor, temperatures: list[float]) -> list[int]:
        """One token for each row."""
        said = logits.argmax(-1).cpu()
        heat = torch.tensor(temperatures)
        warm = heat.nonzero().flatten()
        if len(warm):
            scaled = logits[warm].float().cpu() / heat[warm, None]
            top, ids = scaled.topk(min(_KEPT_TOKENS, logits.shape[-1]), -1)
            shares = top.softmax(-1)
            before = shares.cumsum(-1) - shares
            shares = shares.where(before < _KEPT_MASS, 0.0)
            chosen = torch.multinomial(shares, 1, generator=self._random)
            said[warm] = ids.gather(1, chosen).flatten()
        return [int(token) for token in said]


def converse(
    model: str,
    folder: Path,
    choose_taps: Callable[[int], tuple[int, ...]],
    documents: Sequence[str],
    bounds: tuple[int, int | None],
    options: ConverseOptions,
    on_progress: Callable[[int, int], None],
    *,
    quantization: Quantization,
    device: torch.device,
) -> Filling:
    """Add conversations to a store until it is full; another call adds others.

    Args:
        model: the target.
        folder: of the store.
        choose_taps: from the target's number of layers to those whose states are kept.
        documents: texts to talk about.
        bounds: tokens to add, and bytes of the store.
        options: how conversations are led.
        on_progress: called with the conversations and tokens that were added.
        quantization: of the target meanwhile.
        device: where it runs.

    Raises:
        OutpaceError: the model or the store cannot be used, or the disk is full.
    """
    target = TargetParts.load(model)
    config = target.config
    frame = Frame.of(Tokenizer.load(target.folder), config.eos_token_ids)
    store = target.begin_store(folder, choose_taps(config.num_layers), states=True)
    precision = Precision(torch.bfloat16, quantization)
    decoder = load_decoder(target.folder, config, precision, device)
    # Whoever goes on with a store shall not say again what is in it.
    seed = zlib.crc32(f"{options.seed} {len(store.keys())}".encode())
    length = min(options.length, config.max_position_embeddings)
    options = replace(options, length=length, seed=seed)
    run = Converse(decoder, frame, config.eos_token_ids, store.info.taps, options)
    with Filling(store, *bounds) as filling:
        found = run.examples(openings(seed, documents), f"talk-{seed}")
        for count, example in enumerate(found, 1):
            filling.add(example)
            on_progress(count, filling.tokens)
            if filling.is_full:
                break
    return filling
