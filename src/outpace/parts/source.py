"""A model that was found, and how it is loaded and measured."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

from outpace.cache.plan import ModelSize
from outpace.cache.pools import KVPool
from outpace.config import Dtype, Quantization
from outpace.control.kept import MeasuredCost
from outpace.engine.costs import model_cost
from outpace.engine.warmup import has_finite_logits
from outpace.errors import CheckpointError, InvalidValueError
from outpace.kernels.native import kernels
from outpace.model.build import load_decoder, stored_bytes
from outpace.model.config import ModelConfig
from outpace.model.converted import cache_folder
from outpace.model.linear import packing_works
from outpace.model.loader import load_config
from outpace.model.precision import Precision
from outpace.model.runner import ModelRunner
from outpace.model.source import resolve

_DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


@dataclass(frozen=True, slots=True)
class Source:
    """A model that was found and read, but not loaded.

    Attributes:
        folder: its checkpoint.
        config: what that says of it.
        precision: of weights and cache.
    """

    folder: Path
    config: ModelConfig
    precision: Precision

    @classmethod
    def find(
        cls, name: str, dtype: Dtype, quantization: Quantization, group: int, device: torch.device
    ) -> Source:
        """Find a model by name.

        Raises:
            CheckpointError: it is missing, damaged, or of an unsupported model.
        """
        folder = resolve(name)
        precision = Precision(choose_dtype(dtype, device), quantization, group)
        return cls(folder, load_config(folder), precision)

    def size(self, device: torch.device) -> ModelSize:
        """What it needs of the memory."""
        config, width = self.config, self.precision.dtype.itemsize
        per_token = 2 * config.num_layers * config.num_kv_heads * config.head_dim
        weights = stored_bytes(config, self.precision, device)
        return ModelSize(weights, per_token * width, config.max_position_embeddings)

    def load(
        self, num_slots: int, device: torch.device, head_tokens: Collection[int] | None = None
    ) -> ModelRunner:
        """Load it, with a cache of so many slots.

        Args:
            num_slots: of the cache.
            device: where to.
            head_tokens: for which its head is loaded; None: all.

        Raises:
            CheckpointError: its weights are damaged.
        """
        config, dtype = self.config, self.precision.dtype
        decoder = load_decoder(self.folder, config, self.precision, device, head_tokens)
        shape = (config.num_layers, num_slots, config.num_kv_heads, config.head_dim)
        runner = ModelRunner(decoder, KVPool(*shape, dtype, device))
        if not has_finite_logits(runner):
            raise CheckpointError(
                f"{self.folder}: the model computes NaN or infinity in {dtype}; its weights "
                "are damaged: download it again"
            )
        return runner

    def cost(self, runner: ModelRunner, seconds: float) -> MeasuredCost:
        """What steps cost, measured or kept."""
        return model_cost(
            runner, self.folder, str(self.precision), seconds, cache_folder() / "costs"
        )


def choose_device(name: str | None) -> torch.device:
    """The device of a name; None: the GPU if there is one.

    Raises:
        InvalidValueError: it is not there.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise InvalidValueError("device", name, "is not available here; try cpu") from error
    return device


def choose_dtype(dtype: Dtype, device: torch.device) -> torch.dtype:
    """The precision that ``auto`` stands for: bf16, but fp32 on processors without bf16 kernels.

    There bf16 is emulated and several times slower than fp32, although it is half the bytes.
    """
    if dtype != "auto":
        return _DTYPES[dtype]
    fast = bool(kernels().name) or packing_works(torch.bfloat16)
    emulated = device.type == "cpu" and not fast
    return torch.float32 if emulated else torch.bfloat16


def available_bytes(device: torch.device) -> int:
    """Memory that is free where a model would go."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return int(psutil.virtual_memory().available)
