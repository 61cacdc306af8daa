"""The EAGLE-3 head (Li et al. 2025, arXiv 2503.01840) as it is trained.

Its tensors have the names of the ``speculators`` format, so that what is saved is the format. The
head guesses the token after next: at position t it has the target's tapped states at t and the
embedding of the token at t + 1, and says what comes at t + 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class EagleShape:
    """Sizes of a head.

    Attributes:
        hidden_size: of the target and of the head.
        intermediate_size: of its feed-forward part.
        num_heads: of its attention.
        num_kv_heads: likewise.
        head_dim: likewise.
        rms_norm_eps: of all norms.
        rope_theta: base of the rotary frequencies.
        taps: the target's layers (from 0) after which it sees the residual stream.
        draft_vocab_size: tokens that it can say.
    """

    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    taps: tuple[int, ...]
    draft_vocab_size: int


class RMSNorm(nn.Module):
    """Root-mean-square norm, computed in float32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """``[..., size]``."""
        wide = x.float()
        return wide * (wide.square().mean(-1, keepdim=True) + self.eps).rsqrt() * self.weight


class _Attention(nn.Module):
    def __init__(self, shape: EagleShape) -> None:
        super().__init__()
        wide, width = 2 * shape.hidden_size, shape.head_dim
        self.q_proj = nn.Linear(wide, shape.num_heads * width, bias=False)
        self.k_proj = nn.Linear(wide, shape.num_kv_heads * width, bias=False)
        self.v_proj = nn.Linear(wide, shape.num_kv_heads * width, bias=False)
        self.o_proj = nn.Linear(shape.num_heads * width, shape.hidden_size, bias=False)
        self.head_dim = width

    def forward(
        self, x: Tensor, angles: tuple[Tensor, Tensor], past: list[tuple[Tensor, Tensor]]
    ) -> Tensor:
        """``[B, n, 2 hidden]``; the keys and values of this depth are added to ``past``."""
        batch, length = x.shape[:2]
        query = rotate(self._split(self.q_proj(x)), angles)
        key = rotate(self._split(self.k_proj(x)), angles)
        past.append((key, self._split(self.v_proj(x))))
        groups = query.shape[1] // key.shape[1]
        keys, values = (
            torch.cat(parts, 2).repeat_interleave(groups, 1) for parts in zip(*past, strict=True)
        )
        mask = depth_mask(length, len(past), x.device)
        attended = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
        joined: Tensor = self.o_proj(attended.transpose(1, 2).reshape(batch, length, -1))
        return joined

    def _split(self, x: Tensor) -> Tensor:
        """``[B, n, heads * width]`` to ``[B, heads, n, width]``."""
        return x.view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)


def depth_mask(length: int, depths: int, device: torch.device) -> Tensor:
    """``[n, depths * n]``, True where the newest depth's row t sees a key.

    What was guessed from position t sees the true states up to t, and of the earlier guesses those
    that started at t as well.
    """
    causal = torch.ones(length, length, dtype=torch.bool, device=device).tril()
    own = torch.eye(length, dtype=torch.bool, device=device)
    return torch.cat([causal, *[own] * (depths - 1)], 1)


def rotary_angles(positions: Tensor, width: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosine and sine ``[n, width / 2]`` of positions ``[n]``."""
    steps = torch.arange(0, width, 2, device=positions.device, dtype=torch.float32)
    angles = positions.float()[:, None] * theta ** (-steps / width)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, angles: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary embedding of ``[B, heads, n, width]``: the first half pairs with the second."""
    cos, sin = (part.to(x.dtype) for part in angles)
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class _MLP(nn.Module):
    def __init__(self, shape: EagleShape) -> None:
        super().__init__()
        hidden, inner = shape.hidden_size, shape.intermediate_size
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """``[..., hidden]``."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class _Layer(nn.Module):
    def __init__(self, shape: EagleShape) -> None:
        super().__init__()
        hidden, eps = shape.hidden_size, shape.rms_norm_eps
        self.input_layernorm = RMSNorm(hidden, eps)
        self.hidden_norm = RMSNorm(hidden, eps)
        self.self_attn = _Attention(shape)
        self.post_attention_layernorm = RMSNorm(hidden, eps)
        self.mlp = _MLP(shape)

    def forward(
        self,
        embedded: Tensor,
        state: Tensor,
        angles: tuple[Tensor, Tensor],
        past: list[tuple[Tensor, Tensor]],
    ) -> Tensor:
        """The residual stream begins after the norm (``norm_before_residual``)."""
        stream = self.hidden_norm(state)
        both = torch.cat([self.input_layernorm(embedded), stream], -1)
        stream = stream + self.self_attn(both, angles, past)
        out: Tensor = stream + self.mlp(self.post_attention_layernorm(stream))
        return out


class EagleHead(nn.Module):
    """A norm for each tap, a projection, one decoder layer, and a head of frequent tokens."""

    def __init__(self, shape: EagleShape) -> None:
        super().__init__()
        hidden, eps = shape.hidden_size, shape.rms_norm_eps
        self.shape = shape
        self.fc_norm = nn.ModuleList(RMSNorm(hidden, eps) for _ in shape.taps)
        self.fc = nn.Linear(len(shape.taps) * hidden, hidden, bias=False)
        self.layers = nn.ModuleList([_Layer(shape)])
        self.norm = RMSNorm(hidden, eps)
        self.lm_head = nn.Linear(hidden, shape.draft_vocab_size, bias=False)

    @property
    def layer(self) -> _Layer:
        """Its one decoder layer."""
        layer = self.layers[0]
        assert isinstance(layer, _Layer)
        return layer

    def project(self, taps: Tensor) -> Tensor:
        """Tapped states ``[..., taps * hidden]`` to ``[..., hidden]``."""
        parts = taps.chunk(len(self.fc_norm), -1)
        normed = [norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)]
        out: Tensor = self.fc(torch.cat(normed, -1))
        return out

    def unroll(self, taps: Tensor, embedded: Tensor, depths: int) -> Iterator[Tensor]:
        """Run ahead from every position at once, on the true tokens (training-time test).

        Args:
            taps: ``[B, n, taps * hidden]``.
            embedded: ``[B, n + depths, hidden]``, of the tokens at the same positions and after.
            depths: how many tokens ahead.

        Yields:
            For each depth d the states ``[B, n, hidden]`` before the final norm: row t says what
            comes at t + 2 + d.
        """
        length = taps.shape[1]
        state = self.project(taps)
        past: list[tuple[Tensor, Tensor]] = []
        for depth in range(depths):
            positions = torch.arange(depth, depth + length, device=taps.device)
            angles = rotary_angles(positions, self.shape.head_dim, self.shape.rope_theta)
            following = embedded[:, depth + 1 : depth + 1 + length]
            state = self.layer(following, state, angles, past)
            yield state
