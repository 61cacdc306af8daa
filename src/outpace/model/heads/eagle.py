"""What the config.json of an EAGLE-3 head says, in either published layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outpace.errors import CheckpointError, DraftError
from outpace.model.config import ModelConfig
from outpace.model.fields import Fields

# What transformers assumes for fields that a nested configuration leaves out because they have
# these values: the speculators format stores differences only.
_ASSUMED: dict[str, dict[str, Any]] = {
    "llama": {
        "vocab_size": 32_000,
        "hidden_size": 4096,
        "intermediate_size": 11_008,
        "num_attention_heads": 32,
    },
    "qwen3": {
        "vocab_size": 151_936,
        "hidden_size": 4096,
        "intermediate_size": 22_016,
        "num_attention_heads": 32,
    },
}


@dataclass(frozen=True, slots=True)
class EagleHeadConfig:
    """The shape of an EAGLE-3 head (Li et al. 2025, arXiv 2503.01840).

    Attributes:
        layer: of its one decoder layer, whose attention sees twice the hidden size.
        target_hidden_size: width of a tapped state.
        draft_vocab_size: tokens that it can say.
        taps: the target's layers (from 0) after which it sees the residual stream.
        norm_before_residual: the residual stream of its layer begins after the norm.
        norm_before_fc: one norm over all tapped states together.
        fc_norm: a norm for each of the tapped states.
        norm_output: what is fed back is the state after the final norm (EAGLE-3.1).
        has_embedding: it brings its own embedding table.
        target_fingerprint: of the target it was trained for; empty if it does not say.
    """

    layer: ModelConfig
    target_hidden_size: int
    draft_vocab_size: int
    taps: tuple[int, ...]
    norm_before_residual: bool
    norm_before_fc: bool
    fc_norm: bool
    norm_output: bool
    has_embedding: bool
    target_fingerprint: str

    @property
    def hidden_size(self) -> int:
        """Width of the head's own stream."""
        return self.layer.hidden_size

    @property
    def tapped_size(self) -> int:
        """Width of all tapped states side by side."""
        return len(self.taps) * self.target_hidden_size

    def weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor that the head needs, but the maps of its vocabulary, and its shape."""
        hidden, layer = self.hidden_size, self.layer
        shapes = {
            name.removeprefix("model."): shape
            for name, shape in layer.weight_shapes().items()
            if name not in (layer.embedding_name, layer.head_name)
        }
        shapes = {name: shape for name, shape in shapes.items() if name != "norm.weight"}
        for name in ("q_proj", "k_proj", "v_proj"):
            key = f"layers.0.self_attn.{name}.weight"
            shapes[key] = (shapes[key][0], 2 * hidden)
        shapes["layers.0.hidden_norm.weight"] = (hidden,)
        shapes["fc.weight"] = (hidden, self.tapped_size)
        shapes["norm.weight"] = (hidden,)
        shapes["lm_head.weight"] = (self.draft_vocab_size, hidden)
        if self.norm_before_fc:
            shapes["input_norm.weight"] = (self.tapped_size,)
        if self.fc_norm:
            for index in range(len(self.taps)):
                shapes[f"fc_norm.{index}.weight"] = (self.target_hidden_size,)
        if self.has_embedding:
            shapes["embed_tokens.weight"] = (layer.vocab_size, hidden)
        return shapes


def read_eagle_config(
    raw: Mapping[str, Any], where: str, target: ModelConfig, has_embedding: bool
) -> EagleHeadConfig:
    """Read a config.json in the speculators format or in the original EAGLE-3 layout.

    Args:
        raw: the JSON object.
        where: its file, for errors.
        target: the model that is drafted for.
        has_embedding: whether the checkpoint has an embedding table.

    Raises:
        CheckpointError: a field is missing, absurd, or of a variant that is not supported.
        DraftError: the head does not fit the target.
    """
    fields = Fields(raw, where)
    layer = _layer(fields)
    if layer.vocab_size < target.vocab_size:
        raise DraftError(
            f"{where}: the head is for a vocabulary of {layer.vocab_size} tokens, the target has "
            f"{target.vocab_size}; choose a head that was trained for this target"
        )
    _refuse_variants(fields)
    width = fields.integer("target_hidden_size", layer.hidden_size)
    if width != target.hidden_size:
        raise DraftError(
            f"{where}: the head is for hidden states of {width} numbers, the target has "
            f"{target.hidden_size}; choose a head that was trained for this target"
        )
    if not has_embedding and layer.hidden_size != target.hidden_size:
        raise CheckpointError(
            f"{where}: hidden_size = {layer.hidden_size} differs from the target's "
            f"{target.hidden_size}, so the head needs an embed_tokens.weight of its own"
        )
    fingerprint = fields.get("target_fingerprint") or ""
    if not isinstance(fingerprint, str):
        fields.fail("target_fingerprint", fingerprint, "must be a text")
    config = EagleHeadConfig(
        layer=layer,
        target_hidden_size=width,
        draft_vocab_size=fields.integer("draft_vocab_size", layer.vocab_size),
        taps=_taps(fields, target),
        norm_before_residual=fields.boolean("norm_before_residual"),
        norm_before_fc=fields.boolean("norm_before_fc"),
        fc_norm=fields.boolean("fc_norm"),
        norm_output=fields.boolean("norm_output"),
        has_embedding=has_embedding,
        target_fingerprint=fingerprint,
    )
    if config.norm_before_fc and config.fc_norm:
        fields.fail("fc_norm", True, "excludes norm_before_fc; one of the two must be false")
    return config


def _layer(fields: Fields) -> ModelConfig:
    nested = fields.get("transformer_layer_config")
    if nested is None:
        inner = Fields({"model_type": "llama", **fields.raw}, fields.where)
    elif isinstance(nested, Mapping):
        assumed = _ASSUMED.get(str(nested.get("model_type", "qwen3")), {})
        whole = {"model_type": "qwen3", "num_hidden_layers": 32, **assumed, **nested}
        inner = Fields(whole, f"{fields.where}: transformer_layer_config")
    else:
        fields.fail("transformer_layer_config", nested, "must be an object")
    layers = inner.integer("num_hidden_layers")
    if layers != 1:
        inner.fail("num_hidden_layers", layers, "heads of one decoder layer are supported")
    try:
        return ModelConfig.from_hf(inner.raw)
    except CheckpointError as error:
        raise CheckpointError(str(error).replace("config.json", inner.where, 1)) from error


def _refuse_variants(fields: Fields) -> None:
    """Refuse what would load and then compute something else than the head was trained for."""
    eagle = fields.get("eagle_config")
    if isinstance(eagle, Mapping) and eagle.get("use_aux_hidden_state") is False:
        fields.fail("eagle_config", eagle, "heads on the last hidden state alone are not supported")
    if fields.get("logit_scale") not in (None, 1, 1.0):
        fields.fail("logit_scale", fields.get("logit_scale"), "must be 1")


def _taps(fields: Fields, target: ModelConfig) -> tuple[int, ...]:
    """The tapped layers, from 0.

    The format counts states: number i is what layer i gets, which is what layer i - 1 gives.
    Without a list it is the states before layers 2, half of all and the last but two.
    """
    count = target.num_layers
    states = fields.get("eagle_aux_hidden_state_layer_ids")
    if states is None:
        states = [2, count // 2, count - 3]
    if not isinstance(states, list) or not states:
        fields.fail("eagle_aux_hidden_state_layer_ids", states, "must list numbers of states")
    for state in states:
        if not isinstance(state, int) or isinstance(state, bool) or not 1 <= state <= count:
            fields.fail(
                "eagle_aux_hidden_state_layer_ids",
                states,
                f"the target has the states 1 to {count}, each after a layer of that number",
            )
    return tuple(state - 1 for state in states)
