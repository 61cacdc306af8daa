"""The decoder on PyTorch's operators: for every device, and the reference for the kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from outpace.cache.pools import KVPool
from outpace.kernels.packing import Format, Quantized
from outpace.model.attention import AttentionPlan, PagedAttention
from outpace.model.batch import Batch, joined
from outpace.model.config import ModelConfig
from outpace.model.decoder import Hidden, joined_taps
from outpace.model.layers import RMSNorm, make_norm, silu_and_mul
from outpace.model.linear import Linear, PackedLinear, make_linear, padded_rows
from outpace.model.precision import Precision
from outpace.model.rope import Rope, rotate_
from outpace.model.weights import WeightSource


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    input_norm: RMSNorm
    qkv: Linear
    qk_norm: RMSNorm | None
    output: Linear
    mlp_norm: RMSNorm
    gate_up: Linear
    down: Linear


class TorchDecoder:
    """A decoder of PyTorch's operators.

    Quantized weights are computed with as the numbers that they stand for: nothing is saved.

    Args:
        config: the shape.
        source: every tensor of ``config.weight_shapes()``.
        precision: what the weights become; the activations are of its dtype.
        device: where they go.
    """

    def __init__(
        self, config: ModelConfig, source: WeightSource, precision: Precision, device: torch.device
    ) -> None:
        self.config = config
        self.dtype = precision.dtype
        self.device = device
        placed = _Placed(source, precision, device)
        self._layers = [_make_layer(placed, config, layer) for layer in range(config.num_layers)]
        self._norm = make_norm(placed.tensor("model.norm.weight"), config.rms_norm_eps)
        self._embedding = placed.matrix(config.embedding_name, format=precision.head)
        head = self._embedding
        if not config.tie_word_embeddings:
            head = placed.matrix(config.head_name, format=precision.head)
        self._head = make_linear(head, None)
        self.weight_bytes = config.weights_read * self.dtype.itemsize
        packed = "oneDNN, prepacked" if isinstance(self._head, PackedLinear) else "PyTorch"
        self.kernels = packed if device.type == "cpu" else f"{packed} on {device.type}"
        self._rope = Rope(
            config.head_dim,
            config.rope_theta,
            config.rope_scaling,
            config.max_position_embeddings,
            self.dtype,
            device,
        )
        self._scale = config.head_dim**-0.5

    def forward(
        self,
        batch: Batch,
        pool: KVPool,
        taps: tuple[int, ...] = (),
        layers: Sequence[int] | None = None,
    ) -> Hidden:
        """See ``Decoder.forward``."""
        config, device = self.config, self.device
        padding = padded_rows(batch.num_rows, self.dtype) - batch.num_rows
        token_ids, positions, slots = (
            joined(pieces, padding) for pieces in (batch.token_ids, batch.positions, batch.slots)
        )
        plan = AttentionPlan(
            batch.views, slots, config.num_heads, config.num_kv_heads, self.dtype, device
        )
        attend = PagedAttention(pool, plan, config.windows, self._scale)
        rotation = self._rope.lookup(torch.from_numpy(positions).to(device))
        stream = self.embed(torch.from_numpy(token_ids).to(device))
        tapped: dict[int, Tensor] = {}
        for index in range(config.num_layers) if layers is None else layers:
            layer = self._layers[index]
            query, kv = self._project(layer, layer.input_norm(stream), rotation)
            stream = stream + layer.output(attend(index, query, kv))
            inner = silu_and_mul(layer.gate_up(layer.mlp_norm(stream)))
            stream = stream + layer.down(inner)
            if index in taps:
                tapped[index] = stream
        return Hidden(self._norm(stream), joined_taps(tapped, taps))

    def embed(self, token_ids: Tensor) -> Tensor:
        """See ``Decoder.embed``."""
        return F.embedding(token_ids, self._embedding)

    def logits(self, hidden: Tensor) -> Tensor:
        """Apply the head: ``hidden [R, hidden] -> [R, vocab]`` in float32, for any R."""
        rows = hidden.shape[0]
        padding = padded_rows(rows, self.dtype) - rows
        if padding:
            hidden = F.pad(hidden, (0, 0, 0, padding))
        # The slice is of the padded result, whose first rows are contiguous: no copy.
        return self._head(hidden)[:rows].float()

    def _project(
        self, layer: _Layer, x: Tensor, rotation: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Query ``[N, H, D]`` and key-value ``[N, 2, Hkv, D]``, views of one tensor."""
        config = self.config
        heads, kv_heads, width = config.num_heads, config.num_kv_heads, config.head_dim
        qkv = layer.qkv(x).view(x.shape[0], heads + 2 * kv_heads, width)
        query_and_key = qkv[:, : heads + kv_heads]
        if layer.qk_norm is not None:
            query_and_key.copy_(layer.qk_norm(query_and_key))
        rotate_(query_and_key, *rotation)
        return qkv[:, :heads], qkv[:, heads:].view(x.shape[0], 2, kv_heads, width)


class _Placed:
    """A checkpoint's tensors in the dtype and on the device that they are used in."""

    def __init__(self, source: WeightSource, precision: Precision, device: torch.device) -> None:
        self._source = source
        self._precision = precision
        self._device = device

    def tensor(self, *names: str) -> Tensor:
        """Tensors, one below the other."""
        return self._place(self._source.take(*names))

    def matrix(self, *names: str, format: Format) -> Tensor:
        """Weights of linear layers with the values that they have in a format."""
        weight = self._source.weight(*names, format=format, group=self._precision.group)
        return self._place(weight.values() if isinstance(weight, Quantized) else weight)

    def linear(self, prefix: str, *names: str, bias: bool) -> Linear:
        """Fuse the named linear layers of one input into one."""
        weights = [f"{prefix}.{name}.weight" for name in names]
        weight = self.matrix(*weights, format=self._precision.linear)
        offset = self.tensor(*(f"{prefix}.{name}.bias" for name in names)) if bias else None
        return make_linear(weight, offset)

    def _place(self, tensor: Tensor) -> Tensor:
        return tensor.to(self._device, self._precision.dtype).contiguous()


def _make_layer(source: _Placed, config: ModelConfig, index: int) -> _Layer:
    prefix = f"model.layers.{index}"
    attention, mlp, eps = f"{prefix}.self_attn", f"{prefix}.mlp", config.rms_norm_eps
    qk_norm = None
    if config.qk_norm:
        # One norm for query and key heads alike: the weight has a row a head.
        query = source.tensor(f"{attention}.q_norm.weight").expand(config.num_heads, -1)
        key = source.tensor(f"{attention}.k_norm.weight").expand(config.num_kv_heads, -1)
        qk_norm = make_norm(torch.cat((query, key)), eps)
    return _Layer(
        input_norm=make_norm(source.tensor(f"{prefix}.input_layernorm.weight"), eps),
        qkv=source.linear(attention, "q_proj", "k_proj", "v_proj", bias=config.qkv_bias),
        qk_norm=qk_norm,
        output=source.linear(attention, "o_proj", bias=config.output_bias),
        mlp_norm=make_norm(source.tensor(f"{prefix}.post_attention_layernorm.weight"), eps),
        gate_up=source.linear(mlp, "gate_proj", "up_proj", bias=config.mlp_bias),
        down=source.linear(mlp, "down_proj", bias=config.mlp_bias),
    )
