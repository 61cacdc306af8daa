"""The parts of a target that training a drafter needs: its tables and its shape."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from outpace.errors import DraftError
from outpace.model.config import ModelConfig
from outpace.model.fingerprint import fingerprint
from outpace.model.loader import load_config, load_weights
from outpace.model.source import resolve
from outpace.train.store import Example, Store


@dataclass(frozen=True, slots=True, eq=False)
class TargetParts:
    """A target that is not run, only looked up in.

    Attributes:
        name: as it was given.
        folder: its checkpoint.
        config: its shape.
        fingerprint: of its weights.
        weights: all tensors, memory-mapped.
    """

    name: str
    folder: Path
    config: ModelConfig
    fingerprint: str
    weights: Mapping[str, Tensor]

    @classmethod
    def load(cls, name: str) -> TargetParts:
        """Find a target.

        Raises:
            CheckpointError: it is missing, damaged or not supported.
        """
        folder = resolve(name)
        config = load_config(folder)
        weights = load_weights(folder, config)
        return cls(name, folder, config, fingerprint(folder), weights)

    def check(self, store: Store) -> None:
        """Refuse examples of another target.

        Raises:
            DraftError: they are of another one.
        """
        if store.info.fingerprint != self.fingerprint:
            raise DraftError(
                f"{store.folder}: captured from {store.info.model!r} with the fingerprint "
                f"{store.info.fingerprint}, but model = {self.name!r} has {self.fingerprint}; "
                "capture from this target, or name the other one"
            )

    @property
    def embedding(self) -> Tensor:
        """``[vocab, hidden]``."""
        return self.weights[self.config.embedding_name]

    @property
    def head(self) -> Tensor:
        """``[vocab, hidden]``."""
        return self.weights[self.config.head_name]


@torch.no_grad()
def likely_tokens(
    stores: Sequence[Store], size: int, head: Tensor, always: Sequence[int], most_rows: int
) -> Tensor:
    """The tokens that a target is likeliest to say.

    Its probabilities are added up over states, which tells rare tokens apart after far fewer of
    them than counting what was said would.

    Args:
        stores: with states.
        size: how many tokens.
        head: ``[vocab, hidden]`` of the target.
        always: tokens that are there in any case, such as ends of text.
        most_rows: states to look at, of the target's own words.

    Returns:
        Ascending ids ``[size]``, or all of them where the vocabulary is not larger.
    """
    if size >= len(head):
        return torch.arange(len(head))
    mass = torch.zeros(len(head), dtype=torch.float64)
    rows = 0
    for example in itertools.chain(*zip_longest_of(stores)):
        if rows >= most_rows:
            break
        assert example.last is not None
        own = example.last[max(example.num_prompt - 1, 0) :]
        mass += (own.to(head.dtype) @ head.T).float().softmax(-1).sum(0)
        rows += len(own)
    mass[list(always)] = float("inf")
    return mass.topk(size).indices.sort().values


def zip_longest_of(stores: Sequence[Store]) -> Iterator[list[Example]]:
    """The examples of stores in turn."""
    for some in itertools.zip_longest(*stores):
        yield [example for example in some if example is not None]
