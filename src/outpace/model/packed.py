"""Packed weights, kept on disk: made once, read by every later start.

Packing takes as long as reading and rounding all weights does; a kept file is read in a moment. It
is read and not mapped, because the pages of a file are small: out of them a decoding step reads its
weights a fifth slower (see ``outpace.kernels.arena``).
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from outpace.kernels.arena import Arena
from outpace.kernels.packing import Format, Packed, group_of
from outpace.model.blocks import load_blocks
from outpace.model.config import ModelConfig
from outpace.model.converted import short_stem
from outpace.model.fingerprint import fingerprint
from outpace.model.keeping import keep
from outpace.model.loader import load_weights
from outpace.model.precision import Precision
from outpace.model.tensor_file import Planned, read_tensors, write_tensors
from outpace.model.weights import WeightSource, panels_shape

# To be raised with every change of the panels' layout or of how weights are rounded.
PACKING_VERSION = 2
FILE = "packed.safetensors"
# Numbers from which on packing takes over a second or so: rounding is slow, reordering is not.
QUANTIZED_WORTH, FLOATS_WORTH = 1 << 25, 1 << 29
_FUSED = {
    "q_proj.weight": ("q_proj.weight", "k_proj.weight", "v_proj.weight"),
    "gate_proj.weight": ("gate_proj.weight", "up_proj.weight"),
}
_log = logging.getLogger(__name__)


class KeptWeights:
    """Packed weights out of a file, for ``NativeDecoder``."""

    def __init__(self, file: Path) -> None:
        self._tensors, metadata = read_tensors(file, Arena().bytes)
        self._matrices: dict[str, list[Any]] = json.loads(metadata["matrices"])

    def take(self, *names: str) -> Tensor:
        """The named vectors, one after the other, in float32."""
        return torch.cat([self._tensors[name] for name in names])

    def packed(self, *names: str, format: Format, group: int) -> Packed:
        """The named weights as they were packed, whatever is asked for now."""
        key = _key(names)
        kept_as, kept_group, inputs, outputs = self._matrices[key]
        return Packed(Format[kept_as], kept_group, inputs, outputs, self._tensors[key])


def is_worth_keeping(config: ModelConfig, precision: Precision) -> bool:
    """Whether packing takes long enough for another copy of the weights on the disk."""
    numbers = sum(math.prod(shape) for shape in config.weight_shapes().values())
    return numbers >= (FLOATS_WORTH if precision.linear.is_float else QUANTIZED_WORTH)


def kept_weights(
    folder: Path, config: ModelConfig, precision: Precision, cache: Path
) -> KeptWeights | WeightSource:
    """The packed weights of a checkpoint: those in the cache, packed before if need be.

    They belong to the checkpoint's folder and are made anew when its files, the precision or
    the packing change. Where the cache cannot be written, the checkpoint itself is returned, to
    be packed in memory.

    Raises:
        CheckpointError: the checkpoint is damaged or does not fit the configuration.
    """
    origin = _origin(folder, config, precision)
    identity = json.dumps([str(folder.resolve()), origin["precision"]])
    key = hashlib.sha256(identity.encode()).hexdigest()[:12]
    final = cache / "packed" / f"{short_stem(folder.resolve().name)}-{key}"
    make = functools.partial(_write, folder=folder, config=config, precision=precision)
    try:
        return KeptWeights(keep(final, origin, make) / FILE)
    except OSError as error:
        _log.warning(
            "%s: cannot keep the packed weights (%s), so that every start packs them; free some "
            "space, or set OUTPACE_CACHE to another folder",
            final.parent,
            error.strerror or error,
        )
        return checkpoint_weights(folder, config, precision)


def checkpoint_weights(folder: Path, config: ModelConfig, precision: Precision) -> WeightSource:
    """The tensors of a checkpoint, with the integers they were made from where these are asked for.

    Raises:
        CheckpointError: the checkpoint is damaged or does not fit the configuration.
    """
    blocks = load_blocks(folder, config) if precision.quantization != "none" else None
    return WeightSource(load_weights(folder, config), config.weight_shapes(), blocks)


def _origin(folder: Path, config: ModelConfig, precision: Precision) -> dict[str, Any]:
    """All that the packed weights depend on."""
    shapes = json.dumps(config.weight_shapes()).encode()
    times = {file.name: file.stat().st_mtime_ns for file in sorted(folder.glob("*.safetensors"))}
    formats = (precision.linear, precision.head)
    return {
        "packing": PACKING_VERSION,
        # The fingerprint sees samples only: an edit elsewhere shows in the time.
        "fingerprint": fingerprint(folder),
        "times": times,
        "shapes": hashlib.sha256(shapes).hexdigest(),
        "precision": [[one.name, group_of(one, precision.group)] for one in formats],
    }


def _write(target: Path, folder: Path, config: ModelConfig, precision: Precision) -> None:
    source = checkpoint_weights(folder, config, precision)
    shapes = config.weight_shapes()
    planned: dict[str, Planned] = {}
    kept_as: dict[str, list[Any]] = {}
    for names in _fused_names(shapes):
        is_table = names[0] in (config.embedding_name, config.head_name)
        wanted = precision.head if is_table else precision.linear
        format, group = source.choose(*names, format=wanted, group=precision.group)
        outputs, inputs = source.shape(*names)
        pieces = functools.partial(source.panels, *names, format=format, group=group)
        size = panels_shape(format, group, outputs, inputs)
        planned[_key(names)] = Planned(torch.uint8, size, pieces)
        kept_as[_key(names)] = [format.name, group_of(format, group), inputs, outputs]
    # The vectors come last: their sizes are no multiples of the alignment.
    for name, shape in shapes.items():
        if len(shape) == 1:
            planned[name] = Planned(torch.float32, shape, functools.partial(_vector, source, name))
    write_tensors(target / FILE, planned, {"matrices": json.dumps(kept_as)})


def _vector(source: WeightSource, name: str) -> list[Tensor]:
    return [source.take(name).float()]


def _fused_names(shapes: Mapping[str, tuple[int, ...]]) -> list[tuple[str, ...]]:
    """The matrices of ``NativeDecoder``: which tensors stand below one another."""
    found = []
    later: set[str] = set()
    for name, shape in shapes.items():
        if len(shape) == 2 and name not in later:
            prefix, short = name.rsplit(".", 2)[0], ".".join(name.rsplit(".", 2)[1:])
            names = tuple(f"{prefix}.{one}" for one in _FUSED.get(short, (short,)))
            later.update(names)
            found.append(names)
    return found


def _key(names: tuple[str, ...]) -> str:
    return "+".join(names)
