"""Tiny heads made on the spot, in every layout that is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor

from outpace.cache.pools import KVPool
from outpace.config import EagleConfig, Quantization
from outpace.model.heads.eagle_load import EagleHead, read_eagle_head
from outpace.model.heads.eagle_pass import EaglePass
from outpace.model.heads.eagle_torch import TorchEaglePass
from outpace.model.heads.files import find_head
from outpace.model.heads.medusa import read_medusa_heads
from outpace.model.precision import Precision
from outpace.model.runner import ModelRunner
from outpace.model.weights import WeightSource
from outpace.spec.drafters.eagle import EagleDrafter
from outpace.spec.drafters.medusa import MedusaDrafter

Layout = Literal["speculators", "original"]

DRAFT_VOCAB = 48
# A decoder layer for the target of `engines`, wide enough to be of use.
LAYER: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,  # less than the target's: no limit
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
}
FLAGS: dict[str, Any] = {
    "draft_vocab_size": DRAFT_VOCAB,
    "eagle_aux_hidden_state_layer_ids": [1, 2, 3],
    "norm_before_residual": False,
}


def eagle_tensors(seed: int = 0, scale: float = 0.15, **flags: Any) -> dict[str, Tensor]:
    """Random weights for `LAYER` by their speculators names; it says every other token."""
    chosen = FLAGS | flags
    layer = LAYER | chosen.get("transformer_layer_config", {})
    hidden, inner, vocab = layer["hidden_size"], layer["intermediate_size"], layer["vocab_size"]
    queries = layer["num_attention_heads"] * layer["head_dim"]
    keys = layer["num_key_value_heads"] * layer["head_dim"]
    tapped = 64 * len(chosen["eagle_aux_hidden_state_layer_ids"])
    draft = chosen["draft_vocab_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, tapped),
        "layers.0.hidden_norm.weight": (hidden,),
        "layers.0.input_layernorm.weight": (hidden,),
        "layers.0.post_attention_layernorm.weight": (hidden,),
        "layers.0.self_attn.q_proj.weight": (queries, 2 * hidden),
        "layers.0.self_attn.k_proj.weight": (keys, 2 * hidden),
        "layers.0.self_attn.v_proj.weight": (keys, 2 * hidden),
        "layers.0.self_attn.o_proj.weight": (hidden, queries),
        "layers.0.mlp.gate_proj.weight": (inner, hidden),
        "layers.0.mlp.up_proj.weight": (inner, hidden),
        "layers.0.mlp.down_proj.weight": (hidden, inner),
        "norm.weight": (hidden,),
        "lm_head.weight": (draft, hidden),
    }
    if chosen.get("norm_before_fc"):
        shapes["input_norm.weight"] = (tapped,)
    if chosen.get("fc_norm"):
        shapes |= {f"fc_norm.{i}.weight": (64,) for i in range(tapped // 64)}
    if layer["model_type"] == "qwen3":
        shapes |= {f"layers.0.self_attn.{x}_norm.weight": (layer["head_dim"],) for x in "qk"}
    if layer.get("attention_bias"):
        names = (("q_proj", queries), ("k_proj", keys), ("v_proj", keys), ("o_proj", hidden))
        shapes |= {f"layers.0.self_attn.{name}.bias": (width,) for name, width in names}
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        name: torch.randn(shape, generator=generator) * scale + ("norm" in name)
        for name, shape in shapes.items()
    }
    if draft < vocab:
        ids = torch.arange(draft) * (vocab // draft)
        tensors["d2t"] = ids - torch.arange(draft)
        tensors["t2d"] = torch.zeros(vocab, dtype=torch.bool).index_fill_(0, ids, True)
    return tensors


def write_eagle(
    folder: Path,
    tensors: dict[str, Tensor] | None = None,
    layout: Layout = "speculators",
    **flags: Any,
) -> Path:
    """A head on disk; ``flags`` go to its config.json."""
    chosen = FLAGS | flags
    layer = LAYER | chosen.pop("transformer_layer_config", {})
    tensors = eagle_tensors(**flags) if tensors is None else tensors
    if layout == "speculators":
        config = {
            "architectures": ["Eagle3Speculator"],
            "speculators_model_type": "eagle3",
            "transformer_layer_config": layer,
            **chosen,
        }
    else:
        config = {"architectures": ["LlamaForCausalLMEagle3"], **layer, **chosen}
        tensors = {
            name.replace("layers.0.", "midlayer."): tensor for name, tensor in tensors.items()
        }
    return write_head(folder, config, tensors)


def write_head(
    folder: Path, config: dict[str, Any], tensors: dict[str, Tensor], name: str = "model"
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({n: t.contiguous() for n, t in tensors.items()}, folder / f"{name}.safetensors")
    return folder


def medusa_tensors(
    num_heads: int = 3, seed: int = 0, vocab: int | None = 96, scale: float = 0.15
) -> dict[str, Tensor]:
    """Random heads of one block; without a vocabulary they end in the target's own head."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for i in range(num_heads):
        tensors[f"{i}.0.linear.weight"] = torch.randn(64, 64, generator=generator) * scale
        tensors[f"{i}.0.linear.bias"] = torch.randn(64, generator=generator) * scale
        if vocab is not None:
            tensors[f"{i}.1.weight"] = torch.randn(vocab, 64, generator=generator) * scale
    return tensors


def read_eagle(folder: Path, target: ModelRunner) -> EagleHead:
    return read_eagle_head(find_head(str(folder)), target.decoder.config)


def prepared(
    head: EagleHead, target: ModelRunner, quantization: Quantization = "none", native: bool = True
) -> EaglePass:
    precision = Precision(target.decoder.dtype, quantization, group=32)
    if native:
        return head.prepared(target.decoder, precision)
    source = WeightSource(head.tensors, head.config.weight_shapes())
    decoder = target.decoder
    limit = decoder.config.max_position_embeddings
    return TorchEaglePass(head.config, source, precision, decoder.embed, limit, decoder.device)


def eagle_drafter(
    folder: Path,
    target: ModelRunner,
    quantization: Quantization = "none",
    native: bool = True,
    block_size: int = 16,
    **options: Any,
) -> EagleDrafter:
    """A drafter for the target of `engines`, or one like it."""
    head = read_eagle(folder, target)
    made = prepared(head, target, quantization, native)
    layer = head.config.layer
    pool = KVPool(
        1, target.pool.num_slots, layer.num_kv_heads, layer.head_dim, made.dtype, made.device
    )
    config = EagleConfig(str(folder), **options)
    return EagleDrafter(made, head.vocabulary, pool, block_size, config)


def medusa_drafter(folder: Path, target: ModelRunner) -> MedusaDrafter:
    heads = read_medusa_heads(find_head(str(folder)), target.decoder.config)
    precision = Precision(target.decoder.dtype)
    return MedusaDrafter(heads.prepared(target.decoder, precision), heads.vocabulary)
