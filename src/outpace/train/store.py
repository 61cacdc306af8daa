"""Examples on disk: token ids, and what the target's layers made of them, shard by shard.

A shard is a safetensors file that appears whole or not at all, so that an interrupted run, a full
disk or a crash costs only what had not been written yet.
"""

from __future__ import annotations

import errno
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from outpace.errors import CapacityError, CheckpointError, InvalidValueError

_FORMAT = 1
_DESCRIPTION = "store.json"
_WORDS = ("keys", "kinds")  # of each example, in a shard's metadata


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """One text and the target's states on it.

    Attributes:
        key: names the entry that it was made from.
        kind: of request; empty if unknown.
        num_prompt: leading tokens that the target did not write; 0 for a text as it is.
        token_ids: ``[n]`` int32.
        taps: ``[n, taps * hidden]`` bf16, the tapped layers side by side; None: not kept.
        last: ``[n, hidden]`` bf16, after the final norm; None: not kept.
    """

    key: str
    kind: str
    num_prompt: int
    token_ids: Tensor
    taps: Tensor | None = None
    last: Tensor | None = None

    @property
    def nbytes(self) -> int:
        """About what it takes on disk."""
        states = sum(t.nbytes for t in (self.taps, self.last) if t is not None)
        return self.token_ids.nbytes + states


@dataclass(frozen=True, slots=True)
class StoreInfo:
    """What all examples of a store have in common.

    Attributes:
        model: the target as it was named.
        fingerprint: of the target's weights.
        vocab_size: of the target.
        hidden_size: of the target.
        taps: the layers whose states are kept.
        states: whether states are kept at all.
    """

    model: str
    fingerprint: str
    vocab_size: int
    hidden_size: int
    taps: tuple[int, ...]
    states: bool


class Store:
    """A folder of shards.

    Args:
        folder: an existing store, see `Store.open` and `Store.create`.
        info: what its description says.
    """

    def __init__(self, folder: Path, info: StoreInfo) -> None:
        self.folder = folder
        self.info = info

    @classmethod
    def create(cls, folder: Path, info: StoreInfo) -> Store:
        """Begin a store, or go on with one that was begun with the same description.

        Raises:
            InvalidValueError: there is a store of something else, or the folder cannot be written.
        """
        if (folder / _DESCRIPTION).is_file():
            store = cls.open(folder)
            for name, value in asdict(info).items():
                found = getattr(store.info, name)
                if name != "model" and found != value:
                    way_out = f"has {name} = {found}, this would be {value}; give another folder"
                    raise InvalidValueError("store", str(folder), way_out)
            return store
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _write_atomically(
                folder / _DESCRIPTION, json.dumps({"format": _FORMAT, **asdict(info)})
            )
        except OSError as error:
            raise InvalidValueError(
                "store", str(folder), f"cannot be written: {error.strerror}"
            ) from error
        return cls(folder, info)

    @classmethod
    def open(cls, folder: Path) -> Store:
        """Find a store.

        Raises:
            CheckpointError: there is none, or it is damaged.
        """
        try:
            said: dict[str, Any] = json.loads((folder / _DESCRIPTION).read_text("utf-8"))
            if said.pop("format") != _FORMAT:
                raise ValueError("made by another version")
            info = StoreInfo(**{**said, "taps": tuple(said["taps"])})
        except FileNotFoundError as error:
            raise CheckpointError(
                f"{folder}: no store of examples; make one with: outpace train capture"
            ) from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"{folder / _DESCRIPTION}: not readable ({error}); capture into another folder"
            ) from error
        return cls(folder, info)

    def shards(self) -> list[Path]:
        """The shards that are there now, oldest first."""
        return sorted(self.folder.glob("shard-*.safetensors"))

    def keys(self) -> set[str]:
        """The entries that were captured."""
        return {key for shard in self.shards() for key in _words(shard)["keys"]}

    @property
    def nbytes(self) -> int:
        """Of all shards."""
        return sum(shard.stat().st_size for shard in self.shards())

    def add(self, examples: Sequence[Example]) -> None:
        """Write a shard.

        Raises:
            CapacityError: the disk is full; earlier shards are whole, this one is not there.
        """
        if not examples:
            return
        last = self.shards()[-1:]
        number = int(last[0].stem.removeprefix("shard-")) + 1 if last else 0
        tensors = {
            "token_ids": torch.cat([e.token_ids.to(torch.int32) for e in examples]),
            "lengths": torch.tensor([len(e.token_ids) for e in examples]),
            "num_prompt": torch.tensor([e.num_prompt for e in examples]),
        }
        kept = ("taps", "last") if self.info.taps else ("last",)
        for name in kept if self.info.states else ():
            tensors[name] = torch.cat([getattr(e, name) for e in examples])
        words = {name: json.dumps([getattr(e, name[:-1]) for e in examples]) for name in _WORDS}
        path = self.folder / f"shard-{number:06d}.safetensors"
        partial = path.with_suffix(".partial")
        try:
            save_file(tensors, partial, words)
            os.replace(partial, path)
        except (OSError, SafetensorError) as error:
            partial.unlink(missing_ok=True)
            raise _no_room(self.folder, error) from error

    def read(self, shard: Path) -> Iterator[Example]:
        """The examples of a shard; their states are read when they are used.

        Raises:
            CheckpointError: the shard is damaged.
        """
        try:
            words = _words(shard)
            with safe_open(str(shard), framework="pt", device="cpu") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            bounds = [0, *tensors["lengths"].cumsum(0).tolist()]
            prompts = tensors["num_prompt"].tolist()
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise _damaged(shard, error) from error
        for i, (begin, end) in enumerate(itertools.pairwise(bounds)):
            states = (tensors[n][begin:end] if n in tensors else None for n in ("taps", "last"))
            yield Example(
                words["keys"][i],
                words["kinds"][i],
                prompts[i],
                tensors["token_ids"][begin:end],
                *states,
            )

    def __iter__(self) -> Iterator[Example]:
        """All examples that are there now."""
        for shard in self.shards():
            yield from self.read(shard)


def _words(shard: Path) -> dict[str, list[str]]:
    try:
        with safe_open(str(shard), framework="pt", device="cpu") as file:
            said = file.metadata() or {}
        return {name: json.loads(said[name]) for name in _WORDS}
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise _damaged(shard, error) from error


def _damaged(shard: Path, error: Exception) -> CheckpointError:
    reason = (str(error).splitlines() or ["unreadable"])[0][:160]
    return CheckpointError(f"{shard}: damaged ({reason}); remove it, the others are whole")


def _no_room(folder: Path, error: Exception) -> CapacityError:
    full = getattr(error, "errno", None) == errno.ENOSPC or "No space" in str(error)
    reason = "the disk is full" if full else (str(error).splitlines() or ["cannot be written"])[0]
    return CapacityError(
        f"{folder}: {reason}; what was written before is whole: make room and run the same "
        "command again, it goes on from there"
    )


def _write_atomically(path: Path, text: str) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(text, "utf-8")
    os.replace(partial, path)


def total_tokens(examples: Iterable[Example]) -> int:
    """Of all examples."""
    return sum(len(example.token_ids) for example in examples)
