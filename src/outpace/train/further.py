"""Heads that are there already, to be trained further: with the shape and words that they have."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from outpace.errors import DraftError
from outpace.model.heads import eagle_load, medusa
from outpace.model.heads.files import find_head
from outpace.train.eagle import EagleHead, EagleShape
from outpace.train.medusa import MedusaHeads
from outpace.train.target_parts import TargetParts


def old_eagle(folder: Path, target: TargetParts) -> tuple[EagleHead, Tensor]:
    """An EAGLE head in training's form, and ``[draft_vocab]`` the target's ids of its words.

    Raises:
        CheckpointError: it is missing or damaged.
        DraftError: it is for another target, or of a build that training does not have.
    """
    read = eagle_load.read_eagle_head(find_head(str(folder)), target.config)
    config, layer = read.config, read.config.layer
    shape = EagleShape(
        config.hidden_size,
        layer.intermediate_size,
        layer.num_heads,
        layer.num_kv_heads,
        layer.head_dim,
        layer.rms_norm_eps,
        layer.rope_theta,
        config.taps,
        config.draft_vocab_size,
    )
    head = EagleHead(shape)
    ours = {name: tuple(tensor.shape) for name, tensor in head.state_dict().items()}
    flags = config.norm_before_residual and config.fc_norm and not config.norm_output
    if not flags or layer.rope_scaling is not None or ours != config.weight_shapes():
        raise DraftError(
            f"{folder}: this build of an EAGLE-3 head drafts but cannot be trained further here; "
            "train a new one with: outpace train eagle"
        )
    head.load_state_dict({name: tensor.float() for name, tensor in read.tensors.items()})
    ids = read.vocabulary.ids
    return head, torch.arange(config.draft_vocab_size) if ids is None else ids.clone()


def old_medusa(folder: Path, target: TargetParts) -> MedusaHeads:
    """Medusa heads in training's form.

    Raises:
        CheckpointError: they are missing or damaged.
        DraftError: they are for another target, or end in heads of their own.
    """
    read = medusa.read_medusa_heads(find_head(str(folder)), target.config)
    config = read.config
    if not config.shares_head:
        raise DraftError(
            f"{folder}: these Medusa heads end in heads of their own and cannot be trained further "
            "here; train new ones with: outpace train medusa"
        )
    heads = MedusaHeads(config.hidden_size, config.num_heads, config.num_layers)
    heads.load_state_dict({name: tensor.float() for name, tensor in read.tensors.items()})
    return heads
