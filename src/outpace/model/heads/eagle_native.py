"""The pass of an EAGLE-3 head on the compiled kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from outpace.cache.pools import KVPool
from outpace.kernels.native import HeadShape, KernelLinear, Source
from outpace.kernels.rows import KernelNorm
from outpace.kernels.stack import KernelStack, Layer
from outpace.model.batch import Batch, joined
from outpace.model.heads.eagle import EagleHeadConfig
from outpace.model.heads.eagle_pass import ATTENTION, LAYER, MLP, QKV, Embed, rope_of
from outpace.model.precision import Precision
from outpace.model.rows_seen import rows_seen
from outpace.model.weights import WeightSource


class NativeEaglePass:
    """An EAGLE-3 head on the compiled kernels: one call for its layer, activations in float32.

    The wide input of the attention is never put together: the embedding's half of the matrix and
    the hidden state's are multiplied one after the other, each with its norm.

    Args:
        config: the shape.
        source: every tensor of ``halved``.
        precision: what the linear layers become; the cache is of its dtype.
        embed: token ids ``[N]`` to ``[N, hidden]``.
        max_positions: longest context of the target.
    """

    def __init__(
        self,
        config: EagleHeadConfig,
        source: WeightSource,
        precision: Precision,
        embed: Embed,
        max_positions: int,
    ) -> None:
        self.config = config
        self.dtype = precision.dtype
        self.device = torch.device("cpu")
        self._embed = embed
        layer = config.layer
        maker = _Maker(source, precision, layer.rms_norm_eps)
        self._combine = _combining(maker, config)
        # The stream begins before the norm of its state, or behind it.
        norm = f"{LAYER}.hidden_norm.weight"
        self._begin: Callable[[Tensor], Tensor] = torch.clone
        if config.norm_before_residual:
            self._begin = KernelNorm(maker.vector(norm), layer.rms_norm_eps)
        shape = HeadShape(layer.num_heads, layer.num_kv_heads, layer.head_dim)
        self._layer = KernelStack(
            shape,
            [_make_layer(maker, config, None if config.norm_before_residual else norm)],
            layer.intermediate_size,
            layer.rms_norm_eps,
            layer.head_dim**-0.5,
        )
        self._norm = KernelNorm(maker.vector("norm.weight"), layer.rms_norm_eps)
        self._head = maker.linear(
            "lm_head.weight", norm=None if config.norm_output else "norm.weight", is_head=True
        )
        self._rope = rope_of(config, max_positions, torch.float32, self.device)
        self.weight_bytes = maker.bytes_packed

    def combine(self, taps: Tensor) -> Tensor:
        """See ``EaglePass.combine``."""
        combined = torch.empty(taps.shape[0], self.config.hidden_size)
        for begin, end, linear in self._combine:
            linear(taps[:, begin:end], combined)
        return combined

    def forward(self, batch: Batch, hidden: Tensor, pool: KVPool) -> Tensor:
        """See ``EaglePass.forward``."""
        stream = self._begin(hidden)
        self._layer(stream, rows_seen(batch, self._rope), pool.layers, beside=self._embedded(batch))
        return self._norm(stream) if self.config.norm_output else stream

    def write(self, batch: Batch, hidden: Tensor, pool: KVPool) -> None:
        """See ``EaglePass.write``."""
        seen = rows_seen(batch, self._rope)
        self._layer.write(self._begin(hidden), seen, pool.layers[0], self._embedded(batch))

    def _embedded(self, batch: Batch) -> Tensor:
        return self._embed(torch.from_numpy(joined(batch.token_ids)))

    def logits(self, hidden: Tensor) -> Tensor:
        """See ``EaglePass.logits``."""
        logits = torch.empty(hidden.shape[0], self.config.draft_vocab_size)
        self._head(hidden, logits)
        return logits


class _Maker:
    """Gives the kernels their weights, and counts the bytes of those that are packed."""

    def __init__(self, source: WeightSource, precision: Precision, eps: float) -> None:
        self._source = source
        self._precision = precision
        self._eps = eps
        self.bytes_packed = 0

    def vector(self, name: str) -> Tensor:
        """A tensor in float32."""
        return self._source.take(name).float().contiguous()

    def linear(
        self,
        *names: str,
        norm: str | None = None,
        biases: Sequence[str] = (),
        gated: bool = False,
        add: bool = False,
        is_head: bool = False,
    ) -> KernelLinear:
        """The named layers as one: of the normed input, or of the gated one."""
        precision = self._precision
        format = precision.head if is_head else precision.linear
        weight = self._source.packed(*names, format=format, group=precision.group)
        self.bytes_packed += weight.data.nbytes
        bias = torch.cat([self.vector(name) for name in biases]) if biases else None
        source = Source.GATED if gated else Source.PLAIN if norm is None else Source.NORM
        scale = None if norm is None else self.vector(norm)
        return KernelLinear(weight, bias, source, scale, self._eps, add=add)


def _make_layer(maker: _Maker, config: EagleHeadConfig, norm: str | None) -> Layer:
    """The one layer; ``norm`` is of the state, where the stream holds it as it came."""
    layer = config.layer
    biased = [f"{ATTENTION}.{name}.bias" for name in QKV] if layer.qkv_bias else []
    by_embedding, by_hidden = halved_names(QKV)
    inner = ("gate_proj", "up_proj")
    return Layer(
        qkv=maker.linear(*by_hidden, norm=norm, biases=biased),
        beside=maker.linear(*by_embedding, norm=f"{LAYER}.input_layernorm.weight", add=True),
        query_norm=maker.vector(f"{ATTENTION}.q_norm.weight") if layer.qk_norm else None,
        key_norm=maker.vector(f"{ATTENTION}.k_norm.weight") if layer.qk_norm else None,
        window=layer.windows[0] or 0,
        output=maker.linear(
            f"{ATTENTION}.o_proj.weight",
            biases=[f"{ATTENTION}.o_proj.bias"] if layer.output_bias else [],
            add=True,
        ),
        gate_up=maker.linear(
            *(f"{MLP}.{name}.weight" for name in inner),
            norm=f"{LAYER}.post_attention_layernorm.weight",
            biases=[f"{MLP}.{name}.bias" for name in inner] if layer.mlp_bias else [],
        ),
        down=maker.linear(
            f"{MLP}.down_proj.weight",
            biases=[f"{MLP}.down_proj.bias"] if layer.mlp_bias else [],
            gated=True,
            add=True,
        ),
    )


def _combining(maker: _Maker, config: EagleHeadConfig) -> list[tuple[int, int, KernelLinear]]:
    """The parts of the input, from and to which column, and what each is multiplied with."""
    if not config.fc_norm:
        norm = "input_norm.weight" if config.norm_before_fc else None
        return [(0, config.tapped_size, maker.linear("fc.weight", norm=norm))]
    width = config.target_hidden_size
    return [
        (
            i * width,
            (i + 1) * width,
            maker.linear(f"fc.{i}.weight", norm=f"fc_norm.{i}.weight", add=i > 0),
        )
        for i in range(len(config.taps))
    ]


def halved(tensors: Mapping[str, Tensor], config: EagleHeadConfig) -> dict[str, Tensor]:
    """The tensors as ``NativeEaglePass`` takes them: wide matrices cut into what they multiply."""
    cut = dict(tensors)
    hidden, width = config.hidden_size, config.target_hidden_size
    for name, *halves in zip(QKV, *halved_names(QKV), strict=True):
        whole = cut.pop(f"{ATTENTION}.{name}.weight")
        cut[halves[0]] = whole[:, :hidden].contiguous()
        cut[halves[1]] = whole[:, hidden:].contiguous()
    if config.fc_norm:
        whole = cut.pop("fc.weight")
        for i in range(len(config.taps)):
            cut[f"fc.{i}.weight"] = whole[:, i * width : (i + 1) * width].contiguous()
    return cut


def halved_names(names: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """What the parts of the attention's matrices for embedding and hidden state are called."""
    prefixes = [f"{ATTENTION}.{name}" for name in names]
    return [f"{one}.of_embedding" for one in prefixes], [f"{one}.of_hidden" for one in prefixes]
