"""A head that begins with what the target knows: its last layer, its norm, its head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from outpace.model.config import ModelConfig
from outpace.train.batches import TrainBatch
from outpace.train.eagle import EagleHead, EagleShape


def eagle_shape(config: ModelConfig, taps: tuple[int, ...], draft_vocab_size: int) -> EagleShape:
    """A head with a layer like the target's."""
    return EagleShape(
        config.hidden_size,
        config.intermediate_size,
        config.num_heads,
        config.num_kv_heads,
        config.head_dim,
        config.rms_norm_eps,
        config.rope_theta,
        taps,
        draft_vocab_size,
    )


@torch.no_grad()
def started_head(
    shape: EagleShape,
    weights: Mapping[str, Tensor],
    config: ModelConfig,
    vocabulary: Tensor,
    stream_scale: float,
) -> EagleHead:
    """A head whose layer is the target's last one.

    Its residual stream has a root mean square of 1 where the target's is ``stream_scale``, so
    what its layer adds is scaled down by that. Of the taps it begins with the last, of the
    embedding with nothing.

    Args:
        shape: of the head, with a layer like the target's.
        weights: the target's tensors.
        config: of the target.
        vocabulary: ``[draft_vocab]`` the target's ids of the tokens that it can say.
        stream_scale: root mean square of the target's residual stream at its last layer.
    """
    head = EagleHead(shape)
    hidden, last = shape.hidden_size, f"model.layers.{config.num_layers - 1}"
    layer = head.layer

    def given(name: str) -> Tensor:
        return weights[f"{last}.{name}.weight"].float()

    head.fc.weight.zero_()
    head.fc.weight[:, -hidden:] = torch.eye(hidden)
    before = given("input_layernorm")  # folded into what reads it: the stream itself stays plain
    for name in ("q_proj", "k_proj", "v_proj"):
        weight = getattr(layer.self_attn, name).weight
        weight.zero_()
        weight[:, hidden:] = given(f"self_attn.{name}") * before
    layer.self_attn.o_proj.weight.copy_(given("self_attn.o_proj") / stream_scale)
    layer.post_attention_layernorm.weight.copy_(given("post_attention_layernorm"))
    for name in ("gate_proj", "up_proj"):
        getattr(layer.mlp, name).weight.copy_(given(f"mlp.{name}"))
    layer.mlp.down_proj.weight.copy_(given("mlp.down_proj") / stream_scale)
    head.norm.weight.copy_(weights["model.norm.weight"].float())
    head.lm_head.weight.copy_(weights[config.head_name][vocabulary].float())
    return head


def stream_scale(batches: Sequence[TrainBatch], hidden_size: int) -> float:
    """The usual root mean square of the target's residual stream at the last of its taps.

    The median, because the first tokens of a text have streams that are many times larger.
    """
    last = torch.cat([_own_rows(batch)[:, -hidden_size:] for batch in batches])
    return float(last.float().square().mean(-1).sqrt().median())


def _own_rows(batch: TrainBatch) -> Tensor:
    taps, _ = batch.states()
    there = torch.arange(taps.shape[1]) < batch.lengths[:, None]
    return taps[there]
