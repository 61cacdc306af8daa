"""A model as a plan sees it: how many weights a step touches, and what a token leaves behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from outpace.model.fields import Fields

_DENSE = (
    *("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"),
    *("phi3", "granite", "olmo2", "smollm3"),
)
_MIXTURES = ("mixtral", "qwen2_moe", "qwen3_moe")
KNOWN_TYPES = (*_DENSE, *_MIXTURES)
_DEFAULT_HEAD_DIM = {"qwen3": 128, "gemma": 256, "gemma2": 256, "gemma3_text": 256}
_ALWAYS_TIED = ("gemma", "gemma2", "gemma3_text")


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts in every layer.

    Attributes:
        count: experts of a layer.
        active: experts that one token is sent to.
        inner: width of one expert.
        shared_inner: width of the expert that every token passes, 0 where there is none.
    """

    count: int
    active: int
    inner: int
    shared_inner: int = 0

    def touched(self, rows: int) -> float:
        """Expected number of distinct experts that ``rows`` tokens are sent to.

        E * (1 - (1 - active / E)^rows): as if tokens chose independently and evenly. Neighbouring
        tokens of one text choose more alike, so real steps touch somewhat fewer.
        """
        return self.count * (1 - (1 - self.active / self.count) ** rows)


@dataclass(frozen=True, slots=True)
class Architecture:
    """The shape of a decoder-only transformer with gated layers.

    Attributes:
        name: for people.
        inner: width of a dense layer's feed-forward part; unused in a mixture.
        context: the longest context, in tokens.
        tied: whether the head is the embedding's matrix.
        window: positions that the windowed layers see, None where all layers see everything.
        windowed_layers: how many those are.
        extra_weights: of layers that are not of the usual kind, read in every step.
    """

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocab: int
    context: int
    tied: bool
    experts: Experts | None = None
    window: int | None = None
    windowed_layers: int = 0
    extra_weights: int = 0

    @property
    def attention_weights(self) -> int:
        """Weights of one layer's four attention matrices."""
        query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return self.hidden * (2 * query + 2 * key)

    @property
    def always_read(self) -> int:
        """Weights of all layers that every step reads, whatever its tokens are."""
        if self.experts is None:
            gated = 3 * self.hidden * self.inner
        else:
            router = self.hidden * self.experts.count
            gated = router + 3 * self.hidden * self.experts.shared_inner
        return self.layers * (self.attention_weights + gated) + self.extra_weights

    @property
    def expert_weights(self) -> int:
        """Weights of one expert in all layers together; 0 for a dense model."""
        return 0 if self.experts is None else self.layers * 3 * self.hidden * self.experts.inner

    @property
    def layer_weights(self) -> int:
        """Weights of all layers."""
        count = 0 if self.experts is None else self.experts.count
        return self.always_read + count * self.expert_weights

    @property
    def head_weights(self) -> int:
        """Weights of the matrix that gives logits."""
        return self.vocab * self.hidden

    @property
    def outer_weights(self) -> int:
        """Weights of embedding and head: one matrix where they are tied, else two."""
        return self.head_weights * (1 if self.tied else 2)

    @property
    def weights(self) -> int:
        """All weights but norms and biases, which are less than a thousandth."""
        return self.layer_weights + self.outer_weights

    def weights_read(self, rows: int) -> float:
        """Weights of the layers that a step of ``rows`` rows reads from memory."""
        if self.experts is None:
            return float(self.always_read)
        return self.always_read + self.experts.touched(rows) * self.expert_weights

    @property
    def weights_per_row(self) -> int:
        """Weights of the layers that one row is multiplied with."""
        active = 0 if self.experts is None else self.experts.active
        return self.always_read + active * self.expert_weights

    @property
    def cache_per_position(self) -> int:
        """Numbers that one layer keeps for one token: its key and its value."""
        return 2 * self.kv_heads * self.head_dim

    def cache_numbers(self, context: int) -> int:
        """Numbers in the cache of one sequence of ``context`` tokens, over all layers."""
        short = context if self.window is None else min(context, self.window)
        positions = (self.layers - self.windowed_layers) * context + self.windowed_layers * short
        return positions * self.cache_per_position

    def eagle_head(self, vocab: int = 32_000) -> Architecture:
        """One layer on the target's hidden states with a reduced vocabulary, as in EAGLE-3.

        The layer's query, key and value matrices take embedding and hidden state side by side,
        and one matrix joins three hidden states into one (arXiv 2503.01840).
        """
        query, key = self.heads * self.head_dim, self.kv_heads * self.head_dim
        wider = self.hidden * (query + 2 * key)
        return replace(
            self,
            name=f"eagle head for {self.name}",
            layers=1,
            inner=self.inner if self.experts is None else self.hidden * 4,
            vocab=min(vocab, self.vocab),
            experts=None,
            window=None,
            windowed_layers=0,
            extra_weights=wider + 3 * self.hidden * self.hidden,
        )

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any], name: str) -> Architecture:
        """Read the dict of a ``config.json``.

        Raises:
            CheckpointError: a field that a plan needs is missing or absurd, or the model is of a
                kind whose costs these formulas do not describe.
        """
        nested = raw.get("text_config") if isinstance(raw, Mapping) else None
        fields = Fields(nested if isinstance(nested, Mapping) else raw, name)
        kind = fields.get("model_type")
        if kind not in KNOWN_TYPES:
            fields.fail("model_type", kind, f"a plan knows {', '.join(KNOWN_TYPES)}")
        hidden = fields.integer("hidden_size")
        layers = fields.integer("num_hidden_layers", maximum=10_000)
        heads = fields.integer("num_attention_heads", maximum=hidden)
        default_width = _DEFAULT_HEAD_DIM.get(kind, max(hidden // heads, 1))
        window, windowed = _windows(fields, kind, layers)
        experts = _experts(fields, kind)
        return cls(
            name=name,
            hidden=hidden,
            layers=layers,
            heads=heads,
            kv_heads=fields.integer("num_key_value_heads", heads, maximum=heads),
            head_dim=fields.integer("head_dim", default_width, maximum=65_536),
            inner=fields.integer("intermediate_size", None if experts is None else 1),
            vocab=fields.integer("vocab_size"),
            context=fields.integer("max_position_embeddings"),
            tied=fields.boolean("tie_word_embeddings", kind in _ALWAYS_TIED),
            experts=experts,
            window=window,
            windowed_layers=windowed,
        )


def _experts(fields: Fields, kind: str) -> Experts | None:
    if kind not in _MIXTURES:
        return None
    if fields.get("mlp_only_layers") or fields.get("decoder_sparse_step", 1) != 1:
        fields.fail(
            "decoder_sparse_step",
            fields.get("decoder_sparse_step"),
            "a plan takes a mixture in every layer; layers without one are not described",
        )
    if kind == "mixtral":
        count = fields.integer("num_local_experts", maximum=100_000)
        inner, shared = fields.integer("intermediate_size"), 0
    else:
        count = fields.integer("num_experts", maximum=100_000)
        inner = fields.integer("moe_intermediate_size")
        shared = 0
        if kind == "qwen2_moe":
            shared = fields.integer("shared_expert_intermediate_size", minimum=0)
    active = fields.integer("num_experts_per_tok", maximum=count)
    return Experts(count, active, inner, shared)


def _windows(fields: Fields, kind: str, layers: int) -> tuple[int | None, int]:
    """The window and the number of layers that have it."""
    if fields.get("sliding_window") is None or kind in ("llama", "gemma"):
        return None, 0
    window = fields.integer("sliding_window")
    types = fields.get("layer_types")
    if isinstance(types, list) and len(types) == layers:
        windowed = sum(one == "sliding_attention" for one in types)
    elif kind == "gemma2":  # every other layer
        windowed = (layers + 1) // 2
    elif kind == "gemma3_text":
        pattern = fields.integer("sliding_window_pattern", 6)
        windowed = layers - layers // pattern
    elif kind.startswith("qwen"):
        first = fields.integer("max_window_layers", layers, minimum=0)
        windowed = max(layers - first, 0) if fields.boolean("use_sliding_window") else 0
    else:
        windowed = layers
    return (window, windowed) if windowed else (None, 0)
