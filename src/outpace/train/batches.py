"""From a growing store to padded batches of bounded size."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from outpace.errors import InvalidValueError
from outpace.train.store import Example, Store

_HELD_OUT_OF = 20  # one entry in so many is for validation
_MIXED_SHARDS = 4


@dataclass(frozen=True, slots=True, eq=False)
class TrainBatch:
    """Texts side by side, filled up with zeros at their ends.

    Attributes:
        token_ids: ``[B, n]`` int64.
        lengths: ``[B]``.
        num_prompt: ``[B]`` tokens that the target did not write.
        taps: ``[B, n, taps * hidden]``, or None.
        last: ``[B, n, hidden]``, or None.
        kinds: of request.
    """

    token_ids: Tensor
    lengths: Tensor
    num_prompt: Tensor
    taps: Tensor | None
    last: Tensor | None
    kinds: tuple[str, ...] = ()

    def to(self, device: torch.device) -> TrainBatch:
        """On a device."""
        return TrainBatch(
            self.token_ids.to(device),
            self.lengths.to(device),
            self.num_prompt.to(device),
            None if self.taps is None else self.taps.to(device),
            None if self.last is None else self.last.to(device),
            self.kinds,
        )

    def states(self) -> tuple[Tensor, Tensor]:
        """Taps and last hidden states, of a batch that has both."""
        if self.taps is None or self.last is None:
            raise ValueError("this batch was captured without hidden states")
        return self.taps, self.last

    @property
    def num_tokens(self) -> int:
        """Without the filling."""
        return int(self.lengths.sum())


def is_held_out(example: Example) -> bool:
    """Whether an example is for validation: decided by its entry, the same in every run."""
    return zlib.crc32(example.key.encode()) % _HELD_OUT_OF == 0


def pad(examples: Sequence[Example]) -> TrainBatch:
    """Lay examples side by side."""

    def padded(tensors: Sequence[Tensor | None]) -> Tensor | None:
        if any(t is None for t in tensors):
            return None
        return torch.nn.utils.rnn.pad_sequence([t for t in tensors if t is not None], True)

    token_ids = padded([e.token_ids.long() for e in examples])
    assert token_ids is not None
    return TrainBatch(
        token_ids,
        torch.tensor([len(e.token_ids) for e in examples]),
        torch.tensor([e.num_prompt for e in examples]),
        padded([e.taps for e in examples]),
        padded([e.last for e in examples]),
        tuple(e.kind for e in examples),
    )


def grouped(examples: Sequence[Example], max_tokens: int) -> list[TrainBatch]:
    """Batches of examples of about the same length, each at most ``max_tokens`` with filling."""
    batches: list[TrainBatch] = []
    group: list[Example] = []
    for example in sorted(examples, key=lambda e: len(e.token_ids)):
        if group and (len(group) + 1) * len(example.token_ids) > max_tokens:
            batches.append(pad(group))
            group = []
        group.append(example)
    return batches + ([pad(group)] if group else [])


class Feed:
    """An endless stream of batches from stores that may still be growing.

    The shards that were read least often come first, so that what has just been captured is used
    next, and everything equally often in the end.

    Args:
        stores: of the same target.
        max_tokens: of a batch, filling included; what memory is bounded by.
        seed: of the order.
        part: which of how many processes this is; each reads other shards, if there are enough.
    """

    def __init__(
        self,
        stores: Sequence[Store],
        max_tokens: int,
        seed: int,
        part: tuple[int, int] = (0, 1),
    ) -> None:
        self._stores = stores
        self._max_tokens = max_tokens
        self._part = part
        self._random = random.Random(seed)
        self._visits: Counter[Path] = Counter()
        self.tokens_read = 0

    def __iter__(self) -> Iterator[TrainBatch]:
        while True:
            examples = [
                example
                for store, shard in self._next_shards()
                for example in store.read(shard)
                if not is_held_out(example)
            ]
            batches = grouped(examples, self._max_tokens)
            self._random.shuffle(batches)
            for batch in batches:
                self.tokens_read += batch.num_tokens
                yield batch

    @property
    def epochs(self) -> float:
        """How often the average shard was read."""
        return sum(self._visits.values()) / max(1, len(self._visits))

    def _next_shards(self) -> list[tuple[Store, Path]]:
        there = [(store, shard) for store in self._stores for shard in store.shards()]
        if not there:
            folder = str(self._stores[0].folder)
            raise InvalidValueError("store", folder, "has no examples yet; capture some first")
        place, processes = self._part
        there = there[place::processes] or there
        self._random.shuffle(there)
        there.sort(key=lambda pair: self._visits[pair[1]])
        chosen = there[:_MIXED_SHARDS]
        self._visits.update(shard for _, shard in chosen)
        return chosen


def held_out(stores: Sequence[Store], max_tokens: int, most: int) -> list[TrainBatch]:
    """Validation batches: at most ``most`` tokens of what is never trained on."""
    examples: list[Example] = []
    total = 0
    for store in stores:
        for example in store:
            if is_held_out(example) and total < most:
                examples.append(_copied(example))  # a view would keep its whole shard in memory
                total += len(example.token_ids)
    return grouped(examples, max_tokens)


def _copied(example: Example) -> Example:
    copies = [None if t is None else t.clone() for t in (example.taps, example.last)]
    return Example(
        example.key, example.kind, example.num_prompt, example.token_ids.clone(), *copies
    )
