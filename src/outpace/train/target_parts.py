"""The parts of a target that training a drafter needs: its tables and its shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from outpace.errors import DraftError
from outpace.model.config import ModelConfig
from outpace.model.fingerprint import fingerprint
from outpace.model.loader import load_config, load_weights
from outpace.model.source import resolve
from outpace.train.store import Store, StoreInfo


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

    def begin_store(self, folder: Path, taps: tuple[int, ...], states: bool) -> Store:
        """A new store of this target's answers, or one to go on with.

        Raises:
            InvalidValueError: there is a store of something else, or the folder cannot be written.
        """
        config = self.config
        sizes = config.vocab_size, config.hidden_size
        return Store.create(folder, StoreInfo(self.name, self.fingerprint, *sizes, taps, states))

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
