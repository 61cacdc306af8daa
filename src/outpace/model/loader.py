"""Checkpoint folders in HF layout: configuration and weights."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from outpace.errors import CheckpointError, in_short
from outpace.model.config import ModelConfig

FLOAT_DTYPES = ("F64", "F32", "F16", "BF16")
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"


def load_config(folder: Path) -> ModelConfig:
    """Read config.json; end-of-text ids are those of it and of generation_config.json together.

    Raises:
        CheckpointError: a file is missing, is not JSON, or describes an unsupported model.
    """
    raw = read_json(folder / "config.json")
    generation = folder / "generation_config.json"
    if generation.is_file():
        raw["eos_token_id"] = eos_ids(raw, read_json(generation)) or None
    try:
        return ModelConfig.from_hf(raw)
    except CheckpointError:
        raise
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise CheckpointError(
            f"{folder / 'config.json'}: {reason}; download the checkpoint again"
        ) from error


def read_json(file: Path) -> dict[str, Any]:
    """Read a JSON object from a file of a checkpoint.

    Raises:
        CheckpointError: the file is missing, unreadable, or not a JSON object.
    """
    if not file.parent.is_dir():
        raise CheckpointError(f"{file.parent}: not a folder; give a folder with a checkpoint in it")
    try:
        value = json.loads(file.read_text("utf-8"))
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{file}: no such file; the folder must hold a checkpoint in HF layout"
        ) from error
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{file}: not readable as JSON ({error}); download the checkpoint again"
        ) from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{file}: holds {type(value).__name__}, not a JSON object")
    return value


def eos_ids(*configs: dict[str, Any]) -> list[int]:
    """Return the `eos_token_id`s of several configurations, in order, without repetition."""
    found: list[int] = []
    for config in configs:
        value = config.get("eos_token_id")
        found += [v for v in (value if isinstance(value, list) else [value]) if type(v) is int]
    return list(dict.fromkeys(found))


_LAYER = re.compile(r"model\.layers\.(\d{1,6})\.")


def is_file(path: Path) -> bool:
    """Whether there is such a file; a name that is too long for one has none."""
    try:
        return path.is_file()
    except OSError:
        return False


def load_weights(folder: Path, config: ModelConfig) -> dict[str, Tensor]:
    """Load exactly the tensors of `config.weight_shapes()`, in the dtype of the file.

    The tensors are views of memory-mapped files: pages are read when they are first used. Tensors
    that the model does not have (stored rotary frequencies, heads of other tasks) are ignored.

    Raises:
        CheckpointError: a tensor is missing, has another shape or is not floating point, or a file
            is missing or damaged; the text names both.
    """
    shapes = config.weight_shapes()
    places = _places(folder, shapes)
    by_file: dict[Path, list[str]] = {}
    for name, file in places.items():
        by_file.setdefault(file, []).append(name)
    weights: dict[str, Tensor] = {}
    for file, names in by_file.items():
        with _opened(file) as opened:
            present = set(opened.keys())
            _refuse_more_layers(present, config.num_layers, file)
            for name in names:
                if name not in present:
                    raise CheckpointError(_missing([n for n in names if n not in present], file))
                weights[name] = _checked(opened, name, shapes[name], file)
    return {name: weights[name] for name in shapes}


def _refuse_more_layers(names: Iterable[str], num_layers: int, file: Path) -> None:
    """Layers that config.json does not count would be left out without a word."""
    for name in names:
        match = _LAYER.match(name)
        if match is not None and int(match[1]) >= num_layers:
            raise CheckpointError(
                f"{file}: has the tensor {name}, but config.json says num_hidden_layers = "
                f"{num_layers}; one of the two is not of this model"
            )


def _places(folder: Path, names: Iterable[str]) -> dict[str, Path]:
    """Which file holds each tensor, by the index if there is one."""
    index = folder / INDEX
    if not index.is_file():
        single = folder / SINGLE
        if not single.is_file():
            raise CheckpointError(_no_weights(folder))
        return dict.fromkeys(names, single)
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict):
        raise CheckpointError(f"{index}: has no weight_map; download the checkpoint again")
    missing = [name for name in names if name not in weight_map]
    if missing:
        raise CheckpointError(_missing(missing, index))
    places = {name: folder / str(weight_map[name]) for name in names}
    for name, file in places.items():
        # An index is data: it must not lead out of the folder.
        if Path(str(weight_map[name])).name != str(weight_map[name]):
            raise CheckpointError(f"{index}: tensor {name} is said to be in {weight_map[name]!r}")
        if not is_file(file):
            raise CheckpointError(
                f"{file}: named in {INDEX} for tensor {name} but missing; download it"
            )
    return places


def _no_weights(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder}: not a folder; give a folder with a checkpoint in it"
    pickled = sorted(folder.glob("*.bin")) + sorted(folder.glob("*.pt*"))
    if pickled:
        return (
            f"{folder}: only pickled weights ({pickled[0].name}), which are never opened because "
            "they can run code; convert them to safetensors"
        )
    return f"{folder}: no {SINGLE} and no {INDEX}; the folder must hold safetensors weights"


def _missing(names: list[str], file: Path) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return (
        f"{file}: tensor {', '.join(names[:3])}{more} missing; config.json and weights do not "
        "belong together, or the weights are quantized in a way that is not supported"
    )


@contextlib.contextmanager
def _opened(file: Path) -> Any:
    try:
        with safe_open(str(file), framework="pt", device="cpu") as opened:
            yield opened
    except (SafetensorError, OSError) as error:
        reason = in_short(error)
        raise CheckpointError(
            f"{file}: damaged or truncated safetensors ({reason}); download it again"
        ) from error


def _checked(opened: Any, name: str, shape: tuple[int, ...], file: Path) -> Tensor:
    view = opened.get_slice(name)
    if view.get_dtype() not in FLOAT_DTYPES:
        raise CheckpointError(
            f"{file}: tensor {name} has dtype {view.get_dtype()}; supported: "
            f"{', '.join(FLOAT_DTYPES)} (quantized checkpoints: use the original, or a GGUF file)"
        )
    found = tuple(view.get_shape())
    if found != tuple(shape):
        raise CheckpointError(
            f"{file}: tensor {name} has shape {found}, config.json asks for {tuple(shape)}; they "
            "do not belong together"
        )
    tensor: Tensor = opened.get_tensor(name)
    return tensor
