"""The decoder on the compiled kernels: one call for all layers, activations in float32."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import torch
from torch import Tensor

from outpace.cache.pools import KVPool
from outpace.kernels.native import HeadShape, KernelLinear, Source, attention_fits, kernels
from outpace.kernels.packing import Format, Packed
from outpace.kernels.rows import KernelNorm, KernelTable
from outpace.kernels.stack import KernelStack, Layer
from outpace.model.batch import Batch, joined
from outpace.model.config import ModelConfig
from outpace.model.decoder import Hidden, joined_taps
from outpace.model.precision import Precision
from outpace.model.rope import Rope
from outpace.model.rows_seen import rows_seen

_CPU = torch.device("cpu")


class Weights(Protocol):
    """Where the weights come from: a checkpoint, or what was packed and kept before."""

    def take(self, *names: str) -> Tensor:
        """The named vectors, one after the other."""
        ...

    def packed(self, *names: str, format: Format, group: int) -> Packed:
        """The named weights of linear layers of one input, one below the other."""
        ...


class NativeDecoder:
    """A decoder on the compiled kernels, whose rows have the same bits in every batch.

    Args:
        config: the shape; ``fits`` says which ones there are kernels for.
        source: every tensor of ``config.weight_shapes()``.
        precision: what the linear layers become; the cache is of its dtype.
        head_tokens: the tokens that get a logit, others minus infinity; None: all. A draft that
            never proposes rare tokens reads a head that is much smaller (Zhao et al. 2025,
            "FR-Spec", arXiv 2502.14856).
    """

    def __init__(
        self,
        config: ModelConfig,
        source: Weights,
        precision: Precision,
        head_tokens: Collection[int] | None = None,
    ) -> None:
        self.config = config
        self.dtype = precision.dtype
        self.device = _CPU
        self.kernels = f"compiled for {kernels().name}"
        maker = _Maker(source, precision, config.rms_norm_eps)
        layers = [_make_layer(maker, config, layer) for layer in range(config.num_layers)]
        self._norm = KernelNorm(maker.tensor("model.norm.weight"), config.rms_norm_eps)
        head = maker.packed(config.head_name, format=precision.head)
        self.weight_bytes = maker.bytes_packed
        self._head_tokens: Tensor | None = None
        if head_tokens is not None and len(head_tokens) < config.vocab_size:
            narrow, self._head_tokens = head.panels_of(head_tokens)
            self.weight_bytes -= head.data.nbytes - narrow.data.nbytes
            self._head = KernelLinear(narrow)
        else:
            self._head = KernelLinear(head)
        table = head  # one of its own is not read by a pass, but for a few rows
        if not config.tie_word_embeddings:
            table = maker.packed(config.embedding_name, format=precision.head)
        self._embedding = KernelTable(table)
        self._rope = Rope(
            config.head_dim,
            config.rope_theta,
            config.rope_scaling,
            config.max_position_embeddings,
            torch.float32,
            _CPU,
        )
        shape = HeadShape(config.num_heads, config.num_kv_heads, config.head_dim)
        self._stack = KernelStack(
            shape, layers, config.intermediate_size, config.rms_norm_eps, config.head_dim**-0.5
        )

    @staticmethod
    def fits(config: ModelConfig) -> bool:
        """Whether the kernels are here and know the shape of the heads."""
        shape = HeadShape(config.num_heads, config.num_kv_heads, config.head_dim)
        return bool(kernels().name) and attention_fits(shape)

    def forward(
        self,
        batch: Batch,
        pool: KVPool,
        taps: tuple[int, ...] = (),
        layers: Sequence[int] | None = None,
    ) -> Hidden:
        """See ``Decoder.forward``."""
        seen = rows_seen(batch, self._rope)
        stream = self.embed(torch.from_numpy(joined(batch.token_ids)))
        tapped: dict[int, Tensor] = {}
        for start, stop in _runs(range(self.config.num_layers) if layers is None else layers, taps):
            self._stack(stream, seen, pool.layers[start:stop], start)
            if stop - 1 in taps:
                tapped[stop - 1] = stream.clone()
        return Hidden(self._norm(stream), joined_taps(tapped, taps))

    def embed(self, token_ids: Tensor) -> Tensor:
        """See ``Decoder.embed``."""
        return self._embedding(token_ids)

    def logits(self, hidden: Tensor) -> Tensor:
        """Apply the head: ``hidden [R, hidden] -> [R, vocab]`` in float32, for any R."""
        rows, vocab, tokens = hidden.shape[0], self.config.vocab_size, self._head_tokens
        logits = torch.empty(rows, vocab if tokens is None else len(tokens))
        self._head(hidden, logits)
        if tokens is None:
            return logits
        return torch.full((rows, vocab), -torch.inf).index_copy_(1, tokens, logits)


def _runs(layers: Sequence[int], taps: Collection[int]) -> list[tuple[int, int]]:
    """First and one past the last of each stretch of consecutive layers, cut behind taps."""
    runs: list[tuple[int, int]] = []
    for layer in layers:
        if runs and runs[-1][1] == layer and layer - 1 not in taps:
            runs[-1] = runs[-1][0], layer + 1
        else:
            runs.append((layer, layer + 1))
    return runs


class _Maker:
    """Gives the kernels their weights, and counts the bytes of those that are packed."""

    def __init__(self, source: Weights, precision: Precision, eps: float) -> None:
        self._source = source
        self._precision = precision
        self._eps = eps
        self.bytes_packed = 0

    def tensor(self, *names: str) -> Tensor:
        """Tensors, one below the other, in float32."""
        return self._source.take(*names).float().contiguous()

    def packed(self, *names: str, format: Format) -> Packed:
        """The weights of linear layers of one input as one."""
        packed = self._source.packed(*names, format=format, group=self._precision.group)
        self.bytes_packed += packed.data.nbytes
        return packed

    def linear(
        self, prefix: str, *names: str, bias: bool, norm: str | None = None, gated: bool = False
    ) -> KernelLinear:
        """The named layers as one: of the normed stream, or added to it."""
        weight = self.packed(
            *(f"{prefix}.{name}.weight" for name in names), format=self._precision.linear
        )
        offset = self.tensor(*(f"{prefix}.{name}.bias" for name in names)) if bias else None
        if norm is not None:
            return KernelLinear(weight, offset, Source.NORM, self.tensor(norm), self._eps)
        source = Source.GATED if gated else Source.PLAIN
        return KernelLinear(weight, offset, source, add=True)


def _make_layer(maker: _Maker, config: ModelConfig, index: int) -> Layer:
    prefix = f"model.layers.{index}"
    attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
    normed = (f"{prefix}.input_layernorm.weight", f"{prefix}.post_attention_layernorm.weight")
    return Layer(
        qkv=maker.linear(
            attention, "q_proj", "k_proj", "v_proj", bias=config.qkv_bias, norm=normed[0]
        ),
        query_norm=maker.tensor(f"{attention}.q_norm.weight") if config.qk_norm else None,
        key_norm=maker.tensor(f"{attention}.k_norm.weight") if config.qk_norm else None,
        window=config.windows[index] or 0,
        output=maker.linear(attention, "o_proj", bias=config.output_bias),
        gate_up=maker.linear(mlp, "gate_proj", "up_proj", bias=config.mlp_bias, norm=normed[1]),
        down=maker.linear(mlp, "down_proj", bias=config.mlp_bias, gated=True),
    )
