"""Finding a head's files and reading their tensors."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from outpace.errors import CheckpointError, in_short
from outpace.model.loader import read_json
from outpace.model.source import resolve

PICKLED = (".bin", ".pt", ".pth")
# The names under which heads are published, the usual one first.
_USUAL = ("model.safetensors", "medusa_lm_head.safetensors")
_CHOICES = "give a head's folder, which `outpace train` writes as OUT/head, or a hub name"


@dataclass(frozen=True, slots=True)
class HeadFiles:
    """A head on disk.

    Attributes:
        config: of its config.json.
        config_file: where that is.
        weights: a safetensors file, or a pickled one if it was named itself.
    """

    config: dict[str, Any]
    config_file: Path
    weights: Path

    def tensors(self) -> dict[str, Tensor]:
        """All tensors of the weights' file, in the dtype of the file.

        A pickled file is opened without running any code that may be in it.

        Raises:
            CheckpointError: the file is damaged, truncated, or holds something else.
        """
        try:
            if self.weights.suffix in PICKLED:
                loaded = torch.load(self.weights, map_location="cpu", weights_only=True)
            else:
                loaded = load_file(self.weights)
        except (SafetensorError, OSError, RuntimeError, EOFError, ValueError) as error:
            raise CheckpointError(
                f"{self.weights}: damaged or truncated ({in_short(error)}); download it again"
            ) from error
        except pickle.UnpicklingError as error:
            raise CheckpointError(
                f"{self.weights}: not a plain file of tensors ({in_short(error)}); convert it to "
                "safetensors where you trust it"
            ) from error
        if not isinstance(loaded, dict) or not all(
            isinstance(name, str) and isinstance(tensor, Tensor) for name, tensor in loaded.items()
        ):
            raise CheckpointError(f"{self.weights}: holds something else than tensors by name")
        return loaded


def find_head(name: str) -> HeadFiles:
    """The files of a head.

    Args:
        name: a folder with config.json and one safetensors file; or that file; or a pickled file
            beside a config.json, which is only opened when it is named itself; or a hub name.

    Raises:
        CheckpointError: nothing fits; the text says what would.
    """
    path = Path(name).expanduser()
    try:
        named = path if path.is_file() and path.name != "config.json" else None
    except (OSError, ValueError):  # too long for a file's name, or a zero byte in it
        named = None
    if named is not None and path.suffix not in (*PICKLED, ".safetensors"):
        raise CheckpointError(f"{name}: not a head; give a folder with config.json and safetensors")
    folder = named.parent if named is not None else _folder(name, path)
    config_file = folder / "config.json"
    return HeadFiles(read_json(config_file), config_file, named or _weights(folder))


def _folder(name: str, path: Path) -> Path:
    """A head's folder, here or from the hub."""
    inside = path / "head"
    if os.path.isfile(inside / "config.json") and not os.path.isfile(path / "config.json"):
        raise CheckpointError(f"{name}: no head, but {inside} is one; give that folder")
    try:
        return resolve(name)
    except CheckpointError as error:
        what = str(error).split("; ")[0]
        raise CheckpointError(f"{what}; {_CHOICES}") from error


def _weights(folder: Path) -> Path:
    found = sorted(folder.glob("*.safetensors"))
    for name in _USUAL:
        if folder / name in found:
            return folder / name
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(file.name for file in found)
        raise CheckpointError(f"{folder}: several weights ({names}); name the file of the head")
    pickled = sorted(file for file in folder.iterdir() if file.suffix in PICKLED)
    if pickled:
        raise CheckpointError(
            f"{folder}: only pickled weights ({pickled[0].name}); convert them to safetensors, or "
            "name the file itself to have its tensors read without running what else is in it"
        )
    raise CheckpointError(f"{folder}: no safetensors file with the weights of a head")
