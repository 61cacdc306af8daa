"""Every supported family against transformers, in fp32, on tiny random checkpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf
from safetensors.torch import load_file

from outpace.cache.pools import KVPool
from outpace.model.batch import Batch
from outpace.model.config import ModelConfig
from outpace.model.decoder import Decoder, Hidden
from outpace.model.native_decoder import NativeDecoder
from outpace.model.precision import Precision
from outpace.model.torch_decoder import TorchDecoder
from outpace.model.weights import WeightSource

CPU = torch.device("cpu")
TINY: dict[str, Any] = {
    "vocab_size": 131,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
    "eos_token_id": None,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LINEAR = {"rope_type": "linear", "factor": 2.5, "rope_theta": 10000.0}
SLIDING = {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1}

FAMILIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "llama": (tf.LlamaConfig, {}),
    "llama multi-head": (tf.LlamaConfig, {"num_key_value_heads": 6, "rms_norm_eps": 1e-3}),
    "llama3 rope": (tf.LlamaConfig, {"rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    "linear rope": (tf.LlamaConfig, {"rope_parameters": LINEAR}),
    "llama biases": (tf.LlamaConfig, {"attention_bias": True, "mlp_bias": True}),
    "llama head_dim": (tf.LlamaConfig, {"head_dim": 20}),
    "mistral window": (tf.MistralConfig, {"sliding_window": 9}),
    "mistral full": (tf.MistralConfig, {"sliding_window": None, "head_dim": 16}),
    "qwen2 tied": (tf.Qwen2Config, {"tie_word_embeddings": True}),
    "qwen2 sliding": (tf.Qwen2Config, SLIDING),
    "qwen3": (tf.Qwen3Config, {"head_dim": 16}),
    "qwen3 bias sliding": (tf.Qwen3Config, {"head_dim": 32, "attention_bias": True, **SLIDING}),
}


def run(
    decoder: Decoder, pool: KVPool, tokens: list[int], start: int = 0, **options: Any
) -> Hidden:
    """Run the tokens from ``start`` on, as one request whose cache begins at slot 8."""
    end = len(tokens)
    batch = Batch()
    batch.append_run(np.array(tokens[start:]), start, np.arange(8, 8 + end))
    return decoder.forward(batch, pool, **options)


def make_pool(config: ModelConfig, num_slots: int = 1024) -> KVPool:
    return KVPool(
        config.num_layers, num_slots, config.num_kv_heads, config.head_dim, torch.float32, CPU
    )


def decoders(config: ModelConfig, weights: Mapping[str, torch.Tensor]) -> list[Decoder]:
    """A decoder of each kind that there is for this shape here."""
    precision = Precision(torch.float32)
    source = WeightSource(weights, config.weight_shapes())
    made: list[Decoder] = [TorchDecoder(config, source, precision, CPU)]
    if NativeDecoder.fits(config):
        made.append(NativeDecoder(config, source, precision))
    return made


@pytest.fixture(params=FAMILIES, ids=lambda name: name.replace(" ", "-"))
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, list[Decoder]]:
    """transformers' model, and ours read from what it saved."""
    config_type, options = FAMILIES[request.param]
    torch.manual_seed(11)
    model = tf.AutoModelForCausalLM.from_config(config_type(**{**TINY, **options})).eval()
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            if "norm" in name or "bias" in name:  # these start as ones and zeros
                tensor.add_(torch.randn_like(tensor) * 0.2)
    model.save_pretrained(tmp_path)
    config = ModelConfig.from_hf(json.loads((tmp_path / "config.json").read_text()))
    weights = load_file(tmp_path / "model.safetensors")
    assert {name: tuple(tensor.shape) for name, tensor in weights.items()} == (
        config.weight_shapes()
    )
    return model, decoders(config, weights)


@torch.inference_mode()
def test_logits_and_greedy_continuation_equal_transformers(
    pair: tuple[Any, list[Decoder]],
) -> None:
    model, made = pair
    for decoder in made:
        check_logits_and_greedy_continuation(model, decoder)


def check_logits_and_greedy_continuation(model: Any, decoder: Decoder) -> None:
    tokens = [int(token) for token in np.random.default_rng(5).integers(0, 131, 40)]
    reference = model(torch.tensor([tokens]), output_hidden_states=True)
    pool = make_pool(decoder.config)
    hidden = run(decoder, pool, tokens, taps=(1, 0))
    logits = decoder.logits(hidden.last[: len(tokens)])
    torch.testing.assert_close(logits, reference.logits[0], atol=1e-4, rtol=1e-4)
    assert hidden.taps is not None
    taps = torch.cat([reference.hidden_states[2][0], reference.hidden_states[1][0]], -1)
    torch.testing.assert_close(hidden.taps[: len(tokens)], taps, atol=1e-4, rtol=1e-4)

    expected = model.generate(
        torch.tensor([tokens]),
        attention_mask=torch.ones(1, len(tokens), dtype=torch.int64),
        max_new_tokens=24,
        do_sample=False,
        pad_token_id=0,
    )[0].tolist()
    last = logits[-1]
    while len(tokens) < len(expected):
        tokens.append(int(last.argmax()))
        hidden = run(decoder, pool, tokens, start=len(tokens) - 1)
        last = decoder.logits(hidden.last[:1])[0]
    assert tokens == expected


@torch.inference_mode()
def test_first_layers_only() -> None:
    torch.manual_seed(3)
    model = tf.LlamaForCausalLM(tf.LlamaConfig(**TINY)).eval()
    config = ModelConfig.from_hf(model.config.to_dict())
    tokens = list(range(10, 22))
    states = model(torch.tensor([tokens]), output_hidden_states=True).hidden_states
    for decoder in decoders(config, model.state_dict()):
        hidden = run(decoder, make_pool(config), tokens, layers=range(2))
        torch.testing.assert_close(
            hidden.last[: len(tokens)], model.model.norm(states[2][0]), atol=1e-4, rtol=1e-4
        )
        assert hidden.taps is None


@pytest.mark.parametrize("scaling", [None, LLAMA3, LINEAR], ids=["default", "llama3", "linear"])
def test_rope_table_equals_transformers(scaling: dict[str, Any] | None) -> None:
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    from outpace.model.rope import Rope

    options = {} if scaling is None else {"rope_parameters": scaling}
    raw = tf.LlamaConfig(**{**TINY, "max_position_embeddings": 50_000, **options})
    config = ModelConfig.from_hf(raw.to_dict())
    rope = Rope(config.head_dim, config.rope_theta, config.rope_scaling, 50_000, torch.float32, CPU)
    positions = torch.tensor([0, 1, 255, 4095, 4096, 40_000, 49_999])
    cosine, sine = rope.lookup(positions)
    expected = LlamaRotaryEmbedding(raw)(torch.zeros(1), positions[None])
    half = config.head_dim // 2
    torch.testing.assert_close(cosine[:, 0], expected[0][0], atol=1e-6, rtol=0)
    torch.testing.assert_close(sine[:, 0, half:], expected[1][0, :, half:], atol=1e-6, rtol=0)
    torch.testing.assert_close(sine[:, 0, :half], -expected[1][0, :, :half], atol=1e-6, rtol=0)
