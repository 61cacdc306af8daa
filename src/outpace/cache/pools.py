"""Key and value tensors, addressed by slot; they know nothing of requests or blocks."""

from __future__ import annotations

import torch


class KVPool:
    """The keys and values of one model, one tensor a layer.

    ``layers[i]`` has the shape ``[num_slots, 2, num_kv_heads, head_dim]``: index 0 of the second
    dimension is the key, 1 the value, so that one indexed copy writes both. A target and its
    drafter have a pool each and share one block table.
    """

    def __init__(
        self,
        num_layers: int,
        num_slots: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        shape = (num_slots, 2, num_kv_heads, head_dim)
        # Zeros, not empty: masked keys are multiplied by a weight of 0, which must not meet a NaN.
        self.layers = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(num_layers)]
        self.num_slots = num_slots
        self.device = device

    def move(self, source: list[int], target: list[int]) -> None:
        """Copy slots ``source`` to slots ``target`` in every layer; the two may overlap."""
        src = torch.tensor(source, device=self.device)
        dst = torch.tensor(target, device=self.device)
        for layer in self.layers:
            layer[dst] = layer[src]
