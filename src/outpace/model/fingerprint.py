"""Which weights these are: what a trained head keeps of its target, to notice another one."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from torch import Tensor

from outpace.model.config import ModelConfig
from outpace.model.loader import load_config, load_weights

# To be raised when the same weights get another fingerprint: it is part of it.
VERSION = 1
_SAMPLES, _SAMPLE_BYTES = 8, 4096  # of each tensor


def fingerprint(folder: Path | str) -> str:
    """A cheap, stable identity of a checkpoint's weights: 32 hex digits.

    It covers what the configuration says of the computation, and of every tensor its name, shape,
    dtype, and 8 samples of 4 KiB (all of it, if it is smaller). Neither the folder's place and
    age nor how the tensors are spread over files matter. Training of any kind changes every
    number of a tensor, and so the samples; an edit of single numbers may go unseen.

    Args:
        folder: with config.json and safetensors files.

    Raises:
        CheckpointError: the checkpoint is missing, damaged, or of an unsupported model.
    """
    folder = Path(folder)
    config = load_config(folder)
    digest = hashlib.sha256(f"{VERSION} {_computation(config)}".encode())
    for name, tensor in sorted(load_weights(folder, config).items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(_sampled(tensor))
    return digest.hexdigest()[:32]


def _computation(config: ModelConfig) -> str:
    """What decides the result beside the tensors; named, so that new fields change nothing."""
    parts = (
        config.model_type,
        config.num_heads,
        config.num_kv_heads,
        config.head_dim,
        config.rms_norm_eps,
        config.rope_theta,
        config.rope_scaling,
        config.windows,
    )
    return " ".join(map(str, parts))


def _sampled(tensor: Tensor) -> bytes:
    data = tensor.reshape(-1).view(torch.uint8)
    size = len(data)
    if size <= _SAMPLES * _SAMPLE_BYTES:
        return data.numpy().tobytes()
    step = (size - _SAMPLE_BYTES) / (_SAMPLES - 1)
    begins = [int(i * step) for i in range(_SAMPLES)]
    return b"".join(data[begin : begin + _SAMPLE_BYTES].numpy().tobytes() for begin in begins)
