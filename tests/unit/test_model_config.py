"""What a config.json may and may not say."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from outpace.errors import CheckpointError
from outpace.model.build import make_decoder
from outpace.model.config import ModelConfig
from outpace.model.precision import Precision
from outpace.model.rope import RopeScaling

BASE: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "eos_token_id": 2,
    "bos_token_id": 1,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}


def read(**changes: Any) -> ModelConfig:
    return ModelConfig.from_hf({**BASE, **changes})


def test_llama() -> None:
    config = read()
    assert (config.head_dim, config.num_kv_heads, config.rope_theta) == (16, 2, 10_000.0)
    assert config.windows == (None, None)
    assert (config.eos_token_ids, config.bos_token_id) == ((2,), 1)
    extras = (config.qkv_bias, config.output_bias, config.mlp_bias, config.qk_norm)
    assert not any(extras)
    raw = {name: value for name, value in BASE.items() if name != "num_key_value_heads"}
    assert ModelConfig.from_hf(raw).num_kv_heads == 4


def test_both_layouts_of_the_rotary_settings() -> None:
    expected = RopeScaling("llama3", 8.0, 1.0, 4.0, 128)
    old = read(rope_theta=500_000, rope_scaling=LLAMA3)
    new = read(rope_parameters={**LLAMA3, "rope_theta": 500_000})
    assert old == new
    assert (new.rope_theta, new.rope_scaling) == (500_000.0, expected)
    assert read(rope_scaling={"type": "linear", "factor": 2}).rope_scaling == (
        RopeScaling("linear", 2.0)
    )
    assert read(rope_scaling=None, rope_parameters={"rope_type": "default"}).rope_scaling is None


def test_windows() -> None:
    mistral = {"model_type": "mistral"}
    assert read(**mistral).windows == (4096, 4096)
    assert read(**mistral, sliding_window=None).windows == (None, None)
    assert read(**mistral, sliding_window=7).windows == (7, 7)
    qwen = {"model_type": "qwen2", "sliding_window": 7}
    assert read(**qwen).windows == (None, None)
    assert read(**qwen, use_sliding_window=True, max_window_layers=1).windows == (None, 7)
    kinds = ["sliding_attention", "full_attention"]
    assert read(**qwen, use_sliding_window=True, layer_types=kinds).windows == (7, None)


def test_biases_and_norms_of_the_families() -> None:
    qwen2, qwen3 = read(model_type="qwen2"), read(model_type="qwen3", attention_bias=True)
    assert (qwen2.qkv_bias, qwen2.output_bias, qwen2.qk_norm) == (True, False, False)
    assert (qwen3.qkv_bias, qwen3.output_bias, qwen3.qk_norm) == (True, True, True)
    assert qwen3.head_dim == 128
    shapes = qwen3.weight_shapes()
    assert shapes["model.layers.1.self_attn.q_proj.weight"] == (512, 64)
    assert shapes["model.layers.1.self_attn.k_norm.weight"] == (128,)
    assert shapes["lm_head.weight"] == (100, 64)
    assert "lm_head.weight" not in read(tie_word_embeddings=True).weight_shapes()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "mamba"}, ["model_type = 'mamba'", "llama, mistral, qwen2, qwen3"]),
        ({"model_type": None}, ["model_type = None"]),
        ({"model_type": ["llama"]}, ["model_type = ['llama']"]),
        ({"hidden_act": "gelu"}, ["hidden_act = 'gelu'", "silu"]),
        ({"quantization_config": {"bits": 4}}, ["quantization_config"]),
        ({"num_attention_heads": 0}, ["num_attention_heads = 0"]),
        ({"num_key_value_heads": 3}, ["num_key_value_heads = 3"]),
        ({"num_hidden_layers": -1}, ["num_hidden_layers = -1"]),
        ({"num_hidden_layers": 10**9}, ["num_hidden_layers = 1000000000"]),
        ({"vocab_size": "many"}, ["vocab_size = 'many'"]),
        ({"vocab_size": True}, ["vocab_size = True"]),
        ({"vocab_size": 10**40}, ["vocab_size"]),
        ({"hidden_size": None}, ["hidden_size is null"]),
        ({"hidden_size": 66}, ["must divide hidden_size 66"]),
        ({"head_dim": 15}, ["head_dim = 15", "even"]),
        ({"head_dim": [64]}, ["head_dim = [64]"]),
        ({"rms_norm_eps": float("nan")}, ["rms_norm_eps = nan"]),
        ({"rms_norm_eps": 10**400}, ["rms_norm_eps"]),
        ({"rope_theta": 0}, ["rope_theta = 0"]),
        ({"rope_scaling": "linear"}, ["rope_scaling = 'linear'"]),
        ({"rope_scaling": {"rope_type": "yarn"}}, ["rope_scaling: rope_type = 'yarn'", "llama3"]),
        ({"rope_scaling": {"type": "dynamic"}}, ["'dynamic'"]),
        ({"rope_scaling": {"rope_type": {}}}, ["rope_type = {}"]),
        ({"rope_scaling": {"type": "linear"}}, ["factor is missing"]),
        ({"rope_scaling": {**LLAMA3, "low_freq_factor": 4.0}}, ["high_freq_factor = 4.0"]),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, ["rope_parameters"]),
        ({"partial_rotary_factor": 0.5}, ["partial_rotary_factor = 0.5"]),
        ({"tie_word_embeddings": "yes"}, ["tie_word_embeddings = 'yes'"]),
        ({"eos_token_id": "</s>"}, ["eos_token_id = '</s>'"]),
        ({"eos_token_id": [1, -5]}, ["eos_token_id = [1, -5]"]),
        ({"model_type": "mistral", "sliding_window": 0}, ["sliding_window = 0"]),
        (
            {"model_type": "qwen2", "use_sliding_window": True, "layer_types": ["full_attention"]},
            ["layer_types"],
        ),
    ],
)
def test_bad_values_are_named(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(CheckpointError) as caught:
        read(**changes)
    message = str(caught.value)
    assert "\n" not in message
    assert all(word in message for word in words), message


@pytest.mark.parametrize("raw", [[], None, "llama", 3])
def test_not_an_object(raw: Any) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json must hold an object"):
        ModelConfig.from_hf(raw)


@pytest.mark.parametrize("field", ["vocab_size", "hidden_size", "num_hidden_layers"])
def test_missing_fields_are_named(field: str) -> None:
    with pytest.raises(CheckpointError, match=f"{field} is missing"):
        ModelConfig.from_hf({name: value for name, value in BASE.items() if name != field})


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)
FIELDS = [
    *BASE,
    "head_dim",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "sliding_window",
    "use_sliding_window",
    "layer_types",
    "max_window_layers",
    "attention_bias",
    "mlp_bias",
    "hidden_act",
    "tie_word_embeddings",
]


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(["llama", "mistral", "qwen2", "qwen3"]),
    st.dictionaries(st.sampled_from(FIELDS), JUNK, max_size=3),
)
def test_junk_gives_a_config_or_a_checkpoint_error(family: str, junk: dict[str, Any]) -> None:
    try:
        config = read(**{"model_type": family, "use_sliding_window": True, **junk})
    except CheckpointError:
        return
    assert len(config.windows) == config.num_layers
    assert config.num_heads % config.num_kv_heads == 0


def test_decoder_names_tensors_that_do_not_fit() -> None:
    config = read()
    weights = {name: torch.zeros(shape) for name, shape in config.weight_shapes().items()}
    cpu = torch.device("cpu")
    decoder = make_decoder(config, weights, Precision(torch.bfloat16), cpu)
    numbers = sum(t.numel() for name, t in weights.items() if name != "model.embed_tokens.weight")
    assert numbers <= decoder.weight_bytes / 2 <= 1.5 * numbers
    name = "model.layers.1.mlp.up_proj.weight"
    with pytest.raises(CheckpointError, match=r"up_proj\.weight has the shape \[3\]"):
        make_decoder(config, {**weights, name: torch.zeros(3)}, Precision(torch.float32), cpu)
    del weights[name]
    with pytest.raises(CheckpointError, match=f"lacks the tensor {name}"):
        make_decoder(config, weights, Precision(torch.float32), cpu)
