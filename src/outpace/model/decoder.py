"""The decoder: token ids and positions in, hidden states and logits out.

One class for all supported families; what differs between them is in ``ModelConfig``. Attention
and the cache are behind one callable (``Attend``), so that nothing here knows of requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from outpace.errors import CheckpointError
from outpace.model.attention import Attend
from outpace.model.config import ModelConfig
from outpace.model.layers import RMSNorm, make_norm, silu_and_mul
from outpace.model.linear import Linear, make_linear, padded_rows
from outpace.model.rope import Rope, rotate_


@dataclass(frozen=True, slots=True, eq=False)
class Hidden:
    """What a forward pass leaves.

    Attributes:
        last: ``[N, hidden]``, after the final norm.
        taps: ``[N, len(taps) * hidden]``, the residual stream after each of the layers that were
            asked for, side by side in the order asked; None when none were.
    """

    last: Tensor
    taps: Tensor | None


@dataclass(frozen=True, slots=True, eq=False)
class _Layer:
    input_norm: RMSNorm
    qkv: Linear
    qk_norm: RMSNorm | None
    output: Linear
    mlp_norm: RMSNorm
    gate_up: Linear
    down: Linear


class Decoder:
    """A decoder-only transformer with its weights.

    Args:
        config: the shape.
        weights: every tensor of ``config.weight_shapes()``, in any floating dtype.
        dtype: what the weights are cast to and computed in.
        device: where they go.

    Raises:
        CheckpointError: a tensor is missing or has another shape.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, Tensor],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.config = config
        self.dtype = dtype
        self.device = device
        source = _Weights(weights, config.weight_shapes(), dtype, device)
        self._embedding = source.take("model.embed_tokens.weight")
        self._layers = [_make_layer(source, config, layer) for layer in range(config.num_layers)]
        self._norm = make_norm(source.take("model.norm.weight"), config.rms_norm_eps)
        tied = config.tie_word_embeddings
        head = self._embedding if tied else source.take("lm_head.weight")
        self._head = make_linear(head, None)
        # As read each forward pass; a tied table counts once.
        self.weight_bytes = source.bytes_taken
        self._rope = Rope(
            config.head_dim,
            config.rope_theta,
            config.rope_scaling,
            config.max_position_embeddings,
            dtype,
            device,
        )

    def padded_rows(self, rows: int) -> int:
        """Return the batch size to pad ``rows`` to (see ``linear.padded_rows``)."""
        return padded_rows(rows, self.dtype)

    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        attend: Attend,
        taps: tuple[int, ...] = (),
        num_layers: int | None = None,
    ) -> Hidden:
        """Run the layers over one flat batch.

        Args:
            token_ids: ``[N]`` int64, N as ``padded_rows`` gives it.
            positions: ``[N]`` int64.
            attend: writes the batch's keys and values and attends (``PagedAttention``).
            taps: layers (from 0) after which the residual stream is kept.
            num_layers: run only the first of them; None runs all.
        """
        rows = token_ids.shape[0]
        assert rows == self.padded_rows(rows), f"{rows} rows are not padded"
        rotation = self._rope.lookup(positions)
        stream = F.embedding(token_ids, self._embedding)
        tapped: dict[int, Tensor] = {}
        for index, layer in enumerate(self._layers[:num_layers]):
            query, kv = self._project(layer, layer.input_norm(stream), rotation)
            stream = stream + layer.output(attend(index, query, kv))
            inner = silu_and_mul(layer.gate_up(layer.mlp_norm(stream)))
            stream = stream + layer.down(inner)
            if index in taps:
                tapped[index] = stream
        kept = torch.cat([tapped[index] for index in taps], -1) if taps else None
        return Hidden(self._norm(stream), kept)

    def logits(self, hidden: Tensor) -> Tensor:
        """Apply the head: ``hidden [R, hidden] -> [R, vocab]`` in float32, for any R."""
        rows = hidden.shape[0]
        padding = self.padded_rows(rows) - rows
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


class _Weights:
    """Hands out the tensors of a checkpoint, checked, cast and placed."""

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        shapes: Mapping[str, tuple[int, ...]],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._tensors = tensors
        self._shapes = shapes
        self._dtype = dtype
        self._device = device
        self.bytes_taken = 0

    def take(self, *names: str) -> Tensor:
        """Return the named tensors, one below the other."""
        parts = list(self._parts(names))
        tensor = parts[0] if len(parts) == 1 else torch.cat(parts)
        self.bytes_taken += tensor.nbytes
        return tensor

    def linear(self, prefix: str, *names: str, bias: bool) -> Linear:
        """Fuse the named linear layers of one input into one."""
        weight = self.take(*(f"{prefix}.{name}.weight" for name in names))
        offset = self.take(*(f"{prefix}.{name}.bias" for name in names)) if bias else None
        return make_linear(weight, offset)

    def _parts(self, names: tuple[str, ...]) -> Iterator[Tensor]:
        for name in names:
            if name not in self._tensors:
                raise CheckpointError(f"the checkpoint lacks the tensor {name}")
            tensor = self._tensors[name]
            if tuple(tensor.shape) != self._shapes[name]:
                raise CheckpointError(
                    f"the tensor {name} has the shape {list(tensor.shape)}; "
                    f"config.json asks for {list(self._shapes[name])}"
                )
            yield tensor.detach().to(self._device, self._dtype).contiguous()


def _make_layer(source: _Weights, config: ModelConfig, index: int) -> _Layer:
    prefix = f"model.layers.{index}"
    attention, mlp, eps = f"{prefix}.self_attn", f"{prefix}.mlp", config.rms_norm_eps
    qk_norm = None
    if config.qk_norm:
        # One norm for query and key heads alike: the weight has a row a head.
        query = source.take(f"{attention}.q_norm.weight").expand(config.num_heads, -1)
        key = source.take(f"{attention}.k_norm.weight").expand(config.num_kv_heads, -1)
        qk_norm = make_norm(torch.cat((query, key)), eps)
    return _Layer(
        input_norm=make_norm(source.take(f"{prefix}.input_layernorm.weight"), eps),
        qkv=source.linear(attention, "q_proj", "k_proj", "v_proj", bias=config.qkv_bias),
        qk_norm=qk_norm,
        output=source.linear(attention, "o_proj", bias=config.output_bias),
        mlp_norm=make_norm(source.take(f"{prefix}.post_attention_layernorm.weight"), eps),
        gate_up=source.linear(mlp, "gate_proj", "up_proj", bias=config.mlp_bias),
        down=source.linear(mlp, "down_proj", bias=config.mlp_bias),
    )
