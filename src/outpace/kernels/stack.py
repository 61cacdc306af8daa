"""All layers of a decoder in one call: nobody waits for the interpreter between two of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from outpace.kernels.native import HeadShape, KernelLinear, address, kernels

# The arguments of a linear layer that is not there.
_NOTHING = (0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0, False)


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """One layer's parts.

    Attributes:
        qkv: of the normed stream to queries, keys and values.
        query_norm: ``[head width]`` float32, or None.
        key_norm: the same for keys.
        window: positions that a row sees; 0 means all.
        output: of the attended values, added to the stream.
        gate_up: of the normed stream to the gate and what it lets through.
        down: of silu(gate) * up, added to the stream.
        beside: of another input than the stream, added to queries, keys and values; or None.
    """

    qkv: KernelLinear
    query_norm: Tensor | None
    key_norm: Tensor | None
    window: int
    output: KernelLinear
    gate_up: KernelLinear
    down: KernelLinear
    beside: KernelLinear | None = None

    @property
    def arguments(self) -> tuple[float, ...]:
        """As the compiled code wants them."""
        beside = _NOTHING if self.beside is None else self.beside.arguments
        linears = (self.output, self.gate_up, self.down)
        values = [*self.qkv.arguments, *beside]
        values += [value for linear in linears for value in linear.arguments]
        return (*values, address(self.query_norm), address(self.key_norm), self.window)


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What the rows of a batch are to the attention; the same in every layer.

    Attributes:
        positions: ``[N]`` int64.
        angles: cosines and sines ``[P, head width / 2]`` float32, by position.
        targets: ``[N]`` int64, the slots that are written.
        rows: ``[N, 2]`` int32, where in ``slots`` a row's slots begin and how many they are.
        slots: int32, in the order of their positions.
    """

    positions: Tensor
    angles: tuple[Tensor, Tensor]
    targets: Tensor
    rows: Tensor
    slots: Tensor


class KernelStack:
    """The layers of a decoder.

    Args:
        shape: of the heads.
        layers: in order.
        inner_size: width of the gated activation.
        eps: of the norms of queries and keys.
        scale: the factor on query-key products.
    """

    def __init__(
        self, shape: HeadShape, layers: Sequence[Layer], inner_size: int, eps: float, scale: float
    ) -> None:
        module = kernels().module
        assert module is not None
        self._run = module.run_stack
        self._kept = tuple(layers)  # their memory is used by address
        self._inner_size = inner_size
        values = [value for layer in layers for value in layer.arguments]
        self._stack = module.make_stack(
            shape.heads, shape.kv_heads, shape.width, eps, scale, *values
        )

    def __call__(
        self,
        stream: Tensor,
        seen: Seen,
        caches: Sequence[Tensor],
        first: int = 0,
        beside: Tensor | None = None,
    ) -> None:
        """Run the layers from ``first`` on, as many as there are caches.

        Args:
            stream: ``[N, hidden]`` float32 with contiguous rows; read and added to.
            seen: the rows.
            caches: ``[slots, 2, Hkv, D]`` each, all bf16 or all float32.
            first: the first layer.
            beside: ``[N, n]`` float32 with contiguous rows, for layers with another input.
        """
        if caches:
            self._pass(stream, seen, caches, first, beside, seen.rows.data_ptr())

    def write(self, stream: Tensor, seen: Seen, cache: Tensor, beside: Tensor) -> None:
        """Write the first layer's keys and values only; the stream stays as it is."""
        self._pass(stream, seen, [cache], 0, beside, 0)

    def _pass(
        self,
        stream: Tensor,
        seen: Seen,
        caches: Sequence[Tensor],
        first: int,
        beside: Tensor | None,
        views: int,
    ) -> None:
        self._run(
            self._stack,
            first,
            first + len(caches),
            stream.shape[0],
            stream.data_ptr(),
            stream.stride(0),
            address(beside),
            0 if beside is None else beside.stride(0),
            self._inner_size,
            caches[0].dtype == torch.bfloat16,
            seen.positions.data_ptr(),
            seen.angles[0].data_ptr(),
            seen.angles[1].data_ptr(),
            seen.targets.data_ptr(),
            views,
            seen.slots.data_ptr(),
            *[cache.data_ptr() for cache in caches],
        )
