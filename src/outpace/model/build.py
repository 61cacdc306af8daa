"""Which decoder a model gets."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path

import torch
from torch import Tensor

from outpace.kernels.packing import packed_bytes
from outpace.model.blocks import Blocks
from outpace.model.config import ModelConfig
from outpace.model.converted import cache_folder
from outpace.model.decoder import Decoder
from outpace.model.native_decoder import NativeDecoder
from outpace.model.packed import checkpoint_weights, is_worth_keeping, kept_weights
from outpace.model.precision import Precision
from outpace.model.torch_decoder import TorchDecoder
from outpace.model.weights import WeightSource


def make_decoder(
    config: ModelConfig,
    weights: Mapping[str, Tensor],
    precision: Precision,
    device: torch.device,
    blocks: Mapping[str, Blocks] | None = None,
) -> Decoder:
    """A decoder with its weights: on the compiled kernels where they serve, else on PyTorch's.

    Args:
        config: the shape.
        weights: every tensor of ``config.weight_shapes()``, in any floating dtype.
        precision: what they become.
        device: where they go.
        blocks: integers that some of the tensors were made from (see ``WeightSource``).

    Raises:
        CheckpointError: a tensor is missing or has another shape.
    """
    source = WeightSource(weights, config.weight_shapes(), blocks)
    if _is_native(config, device):
        return NativeDecoder(config, source, precision)
    return TorchDecoder(config, source, precision, device)


def load_decoder(
    folder: Path,
    config: ModelConfig,
    precision: Precision,
    device: torch.device,
    head_tokens: Collection[int] | None = None,
) -> Decoder:
    """The decoder of a checkpoint folder; what takes long to pack is kept in the cache.

    With ``head_tokens`` a decoder on the compiled kernels gives a logit to these tokens only.

    Raises:
        CheckpointError: the checkpoint is damaged or does not fit the configuration.
    """
    if not _is_native(config, device):
        return TorchDecoder(
            config, checkpoint_weights(folder, config, precision), precision, device
        )
    if is_worth_keeping(config, precision):
        kept = kept_weights(folder, config, precision, cache_folder())
        return NativeDecoder(config, kept, precision, head_tokens)
    source = checkpoint_weights(folder, config, precision)
    return NativeDecoder(config, source, precision, head_tokens)


def _is_native(config: ModelConfig, device: torch.device) -> bool:
    return device.type == "cpu" and NativeDecoder.fits(config)


def stored_bytes(config: ModelConfig, precision: Precision, device: torch.device) -> int:
    """About how much memory a model's weights take."""
    shapes = config.weight_shapes()
    total = 0
    if not _is_native(config, device):  # integers are stored as the numbers they stand for
        total = sum(math.prod(shape) for shape in shapes.values())
        if config.tie_word_embeddings and device.type == "cpu":  # the head is packed: a copy
            total += math.prod(shapes[config.embedding_name])
        return total * precision.dtype.itemsize
    for name, shape in shapes.items():
        if len(shape) == 1:
            total += 4 * shape[0]
        else:
            is_table = name in (config.embedding_name, config.head_name)
            format = precision.head if is_table else precision.linear
            total += packed_bytes(format, precision.group, *shape)
    return total
