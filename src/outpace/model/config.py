"""What a checkpoint's ``config.json`` says, checked once and then trusted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outpace.errors import CheckpointError
from outpace.model.fields import Fields
from outpace.model.rope import RopeScaling, read_rope

SUPPORTED = ("llama", "mistral", "qwen2", "qwen3")

# What transformers assumes where a config.json leaves the field out.
_DEFAULT_POSITIONS = {"llama": 2048, "mistral": 131072, "qwen2": 32768, "qwen3": 32768}
_DEFAULT_KV_HEADS = {"mistral": 8, "qwen2": 32, "qwen3": 32}


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The shape of a decoder-only transformer, in the names of Hugging Face's ``config.json``.

    ``windows`` holds one entry a layer: the number of positions a token sees, itself included,
    or None where it sees all of them.
    """

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    tie_word_embeddings: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    qk_norm: bool
    windows: tuple[int | None, ...]
    eos_token_ids: tuple[int, ...]
    bos_token_id: int | None

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> ModelConfig:
        """Read the dict of a ``config.json``, in the layout of transformers 4 or 5.

        Raises:
            CheckpointError: the architecture is not supported, or a field is missing or absurd.
        """
        fields = Fields(raw)
        model_type = _model_type(fields)
        _refuse_variants(fields)
        hidden_size = fields.integer("hidden_size")
        num_layers = fields.integer("num_hidden_layers", maximum=10_000)
        num_heads = fields.integer("num_attention_heads", maximum=hidden_size)
        default_kv_heads = num_heads
        if "num_key_value_heads" not in raw:
            default_kv_heads = _DEFAULT_KV_HEADS.get(model_type, num_heads)
        num_kv_heads = fields.integer("num_key_value_heads", default_kv_heads)
        if num_heads % num_kv_heads:
            fields.fail("num_key_value_heads", num_kv_heads, f"must divide {num_heads} heads")
        rope_theta, rope_scaling = read_rope(fields)
        attention_bias = model_type in ("llama", "qwen3") and fields.boolean("attention_bias")
        return cls(
            model_type=model_type,
            vocab_size=fields.integer("vocab_size"),
            hidden_size=hidden_size,
            intermediate_size=fields.integer("intermediate_size"),
            num_layers=num_layers,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=_head_dim(fields, model_type, hidden_size, num_heads),
            max_position_embeddings=fields.integer(
                "max_position_embeddings", _DEFAULT_POSITIONS[model_type]
            ),
            rms_norm_eps=fields.number("rms_norm_eps", 1e-6),
            rope_theta=rope_theta,
            rope_scaling=rope_scaling,
            tie_word_embeddings=fields.boolean("tie_word_embeddings"),
            qkv_bias=attention_bias or model_type == "qwen2",
            output_bias=attention_bias,
            mlp_bias=model_type == "llama" and fields.boolean("mlp_bias"),
            qk_norm=model_type == "qwen3",
            windows=_windows(fields, model_type, num_layers),
            eos_token_ids=fields.token_ids("eos_token_id"),
            bos_token_id=next(iter(fields.token_ids("bos_token_id")), None),
        )

    @property
    def embedding_name(self) -> str:
        """The tensor with a row a token."""
        return "model.embed_tokens.weight"

    @property
    def head_name(self) -> str:
        """The tensor of the last linear layer; the embedding's where they are tied."""
        return self.embedding_name if self.tie_word_embeddings else "lm_head.weight"

    @property
    def weights_read(self) -> int:
        """Numbers that a forward pass reads: all, but of an embedding of its own a few rows."""
        shapes = self.weight_shapes()
        if not self.tie_word_embeddings:
            del shapes[self.embedding_name]
        return sum(math.prod(shape) for shape in shapes.values())

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor that the decoder needs: its Hugging Face name and its shape."""
        hidden = self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {
            "model.embed_tokens.weight": (self.vocab_size, hidden),
            "model.norm.weight": (hidden,),
        }
        if not self.tie_word_embeddings:
            shapes["lm_head.weight"] = (self.vocab_size, hidden)
        for layer in range(self.num_layers):
            for name, shape in self._layer_shapes().items():
                shapes[f"model.layers.{layer}.{name}"] = shape
        return shapes

    def _layer_shapes(self) -> dict[str, tuple[int, ...]]:
        hidden, inner = self.hidden_size, self.intermediate_size
        query, key = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        linears = {
            "self_attn.q_proj": (query, hidden, self.qkv_bias),
            "self_attn.k_proj": (key, hidden, self.qkv_bias),
            "self_attn.v_proj": (key, hidden, self.qkv_bias),
            "self_attn.o_proj": (hidden, query, self.output_bias),
            "mlp.gate_proj": (inner, hidden, self.mlp_bias),
            "mlp.up_proj": (inner, hidden, self.mlp_bias),
            "mlp.down_proj": (hidden, inner, self.mlp_bias),
        }
        shapes: dict[str, tuple[int, ...]] = {
            "input_layernorm.weight": (hidden,),
            "post_attention_layernorm.weight": (hidden,),
        }
        for name, (rows, columns, has_bias) in linears.items():
            shapes[f"{name}.weight"] = (rows, columns)
            if has_bias:
                shapes[f"{name}.bias"] = (rows,)
        if self.qk_norm:
            shapes["self_attn.q_norm.weight"] = (self.head_dim,)
            shapes["self_attn.k_norm.weight"] = (self.head_dim,)
        return shapes


def _model_type(fields: Fields) -> str:
    value = fields.get("model_type")
    if value not in SUPPORTED:
        raise CheckpointError(
            f"config.json: model_type = {value!r} is not supported; "
            f"these are: {', '.join(SUPPORTED)} (SmolLM and SmolLM2 are llama)"
        )
    return str(value)


def _refuse_variants(fields: Fields) -> None:
    """Refuse what would load and then compute something else than the model was trained for."""
    activation = fields.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        fields.fail("hidden_act", activation, "only 'silu' is supported")
    if fields.get("quantization_config") is not None:
        fields.fail(
            "quantization_config",
            fields.get("quantization_config"),
            "quantized safetensors are not supported; use the unquantized checkpoint or a GGUF",
        )


def _head_dim(fields: Fields, model_type: str, hidden_size: int, num_heads: int) -> int:
    if fields.get("head_dim") is None:
        if model_type == "qwen3" and not fields.has("head_dim"):
            return 128
        if hidden_size % num_heads:
            fields.fail("num_attention_heads", num_heads, f"must divide hidden_size {hidden_size}")
        head_dim = hidden_size // num_heads
    else:
        head_dim = fields.integer("head_dim", maximum=65_536)
    if head_dim % 2:
        fields.fail("head_dim", head_dim, "must be even (rotary position embedding)")
    return head_dim


def _windows(fields: Fields, model_type: str, num_layers: int) -> tuple[int | None, ...]:
    full: tuple[int | None, ...] = (None,) * num_layers
    if model_type == "llama":
        return full
    if model_type == "mistral":
        # A null means full attention; a missing field means transformers' default.
        if fields.has("sliding_window") and fields.get("sliding_window") is None:
            return full
        return (fields.integer("sliding_window", 4096),) * num_layers
    if not fields.boolean("use_sliding_window") or (
        fields.has("sliding_window") and fields.get("sliding_window") is None
    ):
        return full
    window = fields.integer("sliding_window", 4096)
    kinds = fields.get("layer_types")
    if kinds is None:
        first = fields.integer("max_window_layers", 28, minimum=0)
        return tuple(window if layer >= first else None for layer in range(num_layers))
    known = {"full_attention": None, "sliding_attention": window}
    if (
        not isinstance(kinds, list)
        or len(kinds) != num_layers
        or not all(isinstance(kind, str) and kind in known for kind in kinds)
    ):
        fields.fail("layer_types", kinds, f"must name {' or '.join(known)} for each layer")
    return tuple(known[kind] for kind in kinds)
