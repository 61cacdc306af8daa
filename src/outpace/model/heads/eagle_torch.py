"""The pass of an EAGLE-3 head on PyTorch's operators."""

from __future__ import annotations

import torch
from torch import Tensor

from outpace.cache.pools import KVPool
from outpace.kernels.packing import Format, Quantized
from outpace.model.attention import AttentionPlan, PagedAttention
from outpace.model.batch import Batch, joined
from outpace.model.heads.eagle import EagleHeadConfig
from outpace.model.heads.eagle_pass import ATTENTION, LAYER, MLP, QKV, Embed, rope_of
from outpace.model.layers import RMSNorm, make_norm, silu_and_mul
from outpace.model.linear import Linear, make_linear
from outpace.model.precision import Precision
from outpace.model.rope import rotate_
from outpace.model.weights import WeightSource


class TorchEaglePass:
    """An EAGLE-3 head of PyTorch's operators: for every device, and the reference.

    Args:
        config: the shape.
        source: every tensor of ``config.weight_shapes()``.
        precision: what the weights become; the activations are of its dtype.
        embed: token ids ``[N]`` to ``[N, hidden]``.
        max_positions: longest context of the target.
        device: where they go.
    """

    def __init__(
        self,
        config: EagleHeadConfig,
        source: WeightSource,
        precision: Precision,
        embed: Embed,
        max_positions: int,
        device: torch.device,
    ) -> None:
        self.config = config
        self.dtype = precision.dtype
        self.device = device
        self._embed = embed
        layer = config.layer
        maker = _Maker(source, precision, layer.rms_norm_eps, device)
        self._tap_norms = _norms_of_taps(maker, config)
        self._fc = maker.linear("fc.weight")
        self._input_norm = maker.norm(f"{LAYER}.input_layernorm.weight")
        self._hidden_norm = maker.norm(f"{LAYER}.hidden_norm.weight")
        qkv = [f"{ATTENTION}.{name}" for name in QKV]
        self._qkv = maker.linear(*(f"{one}.weight" for one in qkv), bias=layer.qkv_bias)
        self._query_norm = self._key_norm = None
        if layer.qk_norm:
            self._query_norm = maker.norm(f"{ATTENTION}.q_norm.weight")
            self._key_norm = maker.norm(f"{ATTENTION}.k_norm.weight")
        self._output = maker.linear(f"{ATTENTION}.o_proj.weight", bias=layer.output_bias)
        self._mlp_norm = maker.norm(f"{LAYER}.post_attention_layernorm.weight")
        names = [f"{MLP}.{name}.weight" for name in ("gate_proj", "up_proj")]
        self._gate_up = maker.linear(*names, bias=layer.mlp_bias)
        self._down = maker.linear(f"{MLP}.down_proj.weight", bias=layer.mlp_bias)
        self._norm = maker.norm("norm.weight")
        self._head = maker.linear("lm_head.weight", format=precision.head)
        self._rope = rope_of(config, max_positions, self.dtype, device)
        self.weight_bytes = maker.bytes_placed

    def combine(self, taps: Tensor) -> Tensor:
        """See ``EaglePass.combine``."""
        taps = taps.to(self.dtype)
        if self._tap_norms:
            parts = taps.chunk(len(self._tap_norms), -1)
            pairs = zip(self._tap_norms, parts, strict=True)
            taps = torch.cat([norm(part) for norm, part in pairs], -1)
        return self._fc(taps)

    def forward(self, batch: Batch, hidden: Tensor, pool: KVPool) -> Tensor:
        """See ``EaglePass.forward``."""
        layer, device = self.config.layer, self.device
        slots = joined(batch.slots)
        plan = AttentionPlan(
            batch.views, slots, layer.num_heads, layer.num_kv_heads, self.dtype, device
        )
        attend = PagedAttention(pool, plan, layer.windows, layer.head_dim**-0.5)
        normed = self._hidden_norm(hidden)
        query, kv = self._project(batch, normed)
        stream = normed if self.config.norm_before_residual else hidden
        stream = stream + self._output(attend(0, query, kv))
        stream = stream + self._down(silu_and_mul(self._gate_up(self._mlp_norm(stream))))
        return self._norm(stream) if self.config.norm_output else stream

    def write(self, batch: Batch, hidden: Tensor, pool: KVPool) -> None:
        """See ``EaglePass.write``."""
        _, kv = self._project(batch, self._hidden_norm(hidden))
        slots = torch.from_numpy(joined(batch.slots)).to(self.device)
        pool.layers[0].index_copy_(0, slots, kv)

    def _project(self, batch: Batch, normed: Tensor) -> tuple[Tensor, Tensor]:
        """Query ``[N, H, D]`` and key-value ``[N, 2, Hkv, D]`` of normed states."""
        layer, device = self.config.layer, self.device
        rotation = self._rope.lookup(torch.from_numpy(joined(batch.positions)).to(device))
        tokens = torch.from_numpy(joined(batch.token_ids)).to(device)
        x = torch.cat((self._input_norm(self._embed(tokens).to(self.dtype)), normed), -1)
        heads, kv_heads, width = layer.num_heads, layer.num_kv_heads, layer.head_dim
        qkv = self._qkv(x).view(x.shape[0], heads + 2 * kv_heads, width)
        query, key = qkv[:, :heads], qkv[:, heads : heads + kv_heads]
        if self._query_norm is not None and self._key_norm is not None:
            query.copy_(self._query_norm(query))
            key.copy_(self._key_norm(key))
        rotate_(qkv[:, : heads + kv_heads], *rotation)
        return query, qkv[:, heads:].view(x.shape[0], 2, kv_heads, width)

    def logits(self, hidden: Tensor) -> Tensor:
        """See ``EaglePass.logits``."""
        return self._head(hidden if self.config.norm_output else self._norm(hidden)).float()


class _Maker:
    """Puts weights where they are used, and counts the bytes of the matrices."""

    def __init__(
        self, source: WeightSource, precision: Precision, eps: float, device: torch.device
    ) -> None:
        self._source = source
        self._precision = precision
        self._eps = eps
        self._device = device
        self.bytes_placed = 0

    def norm(self, name: str) -> RMSNorm:
        """The norm with the named weight."""
        return make_norm(self._place(self._source.take(name)), self._eps)

    def linear(self, *names: str, bias: bool = False, format: Format | None = None) -> Linear:
        """The named layers as one."""
        precision = self._precision
        chosen = format or precision.linear
        weight = self._source.weight(*names, format=chosen, group=precision.group)
        placed = self._place(weight.values() if isinstance(weight, Quantized) else weight)
        self.bytes_placed += placed.nbytes
        biases = [name.removesuffix("weight") + "bias" for name in names]
        return make_linear(placed, self._place(self._source.take(*biases)) if bias else None)

    def _place(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._device, self._precision.dtype).contiguous()


def _norms_of_taps(maker: _Maker, config: EagleHeadConfig) -> list[RMSNorm]:
    """A norm for each part of the input; none if it goes in as it is."""
    if config.norm_before_fc:
        return [maker.norm("input_norm.weight")]
    if config.fc_norm:
        return [maker.norm(f"fc_norm.{i}.weight") for i in range(len(config.taps))]
    return []
