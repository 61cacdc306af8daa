"""Heads in the ``speculators`` format, with the fingerprint of the target they were trained for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from outpace.train.eagle import EagleHead
from outpace.train.target_parts import TargetParts
from outpace.whole_file import appearing

_FORMAT_VERSION = "0.9.0"  # of the speculators package whose fields these are
# Under which name others find what is ours alone to call "demo".
_PUBLISHED = {"demo": "HuggingFaceTB/SmolLM2-135M-Instruct"}


def vocabulary_maps(vocabulary: Tensor, vocab_size: int) -> dict[str, Tensor]:
    """``d2t``: how far each id is from the target's; ``t2d``: which of the target's there are."""
    known = torch.zeros(vocab_size, dtype=torch.bool)
    known[vocabulary] = True
    return {"d2t": vocabulary - torch.arange(len(vocabulary)), "t2d": known}


def eagle_config(head: EagleHead, target: TargetParts, depths: int) -> dict[str, Any]:
    """The config.json of an EAGLE-3 head."""
    shape, config = head.shape, target.config
    return {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_version": _FORMAT_VERSION,
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": depths}],
            "verifier": {
                "name_or_path": _PUBLISHED.get(target.name, target.name),
                "architectures": [f"{config.model_type.title()}ForCausalLM"],
            },
        },
        "transformer_layer_config": {
            "model_type": "llama",
            "vocab_size": config.vocab_size,
            "hidden_size": shape.hidden_size,
            "intermediate_size": shape.intermediate_size,
            "num_hidden_layers": 1,
            "num_attention_heads": shape.num_heads,
            "num_key_value_heads": shape.num_kv_heads,
            "head_dim": shape.head_dim,
            "rms_norm_eps": shape.rms_norm_eps,
            "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_theta},
            "max_position_embeddings": config.max_position_embeddings,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
        },
        "draft_vocab_size": shape.draft_vocab_size,
        "target_hidden_size": config.hidden_size,
        # The format counts the states before the layers: what layer i gives is number i + 1.
        "eagle_aux_hidden_state_layer_ids": [tap + 1 for tap in shape.taps],
        "norm_before_residual": True,
        "norm_before_fc": False,
        "fc_norm": True,
        "norm_output": False,
        "embed_requires_grad": False,
        "tie_word_embeddings": False,
        "target_fingerprint": target.fingerprint,
    }


def export_eagle(
    folder: Path, head: EagleHead, vocabulary: Tensor, target: TargetParts, depths: int
) -> None:
    """Write config.json and model.safetensors, the weights in bf16.

    Raises:
        OSError: the folder cannot be written; what was there before is whole.
    """
    tensors = {
        name: tensor.detach().to("cpu", torch.bfloat16).contiguous()
        for name, tensor in head.state_dict().items()
    }
    tensors.update(vocabulary_maps(vocabulary.cpu(), target.config.vocab_size))
    write_head(folder, tensors, eagle_config(head, target, depths))


def write_head(folder: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
    """Write a folder's two files, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    weights, description = folder / "model.safetensors", folder / "config.json"
    with appearing(description) as words, appearing(weights) as numbers:
        save_file(dict(tensors), numbers, {"format": "pt"})
        words.write_text(json.dumps(config, indent=2) + "\n", "utf-8")
