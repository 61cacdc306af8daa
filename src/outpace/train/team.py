"""Several processes that train one module: each on its own batches, all with the mean gradient.

Two processes of one thread each are faster than one of two threads wherever anything else runs:
they wait for each other once a step instead of at the end of every product.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from outpace.errors import InvalidValueError


class Team:
    """The place of this process among those that train together.

    Attributes:
        rank: from 0; the first one looks, saves and decides when it is over.
        size: how many there are.
    """

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank = rank
        self.size = size

    @classmethod
    def join(cls) -> Team:
        """The team that ``torchrun`` started this process in; alone without it.

        Raises:
            InvalidValueError: the others cannot be reached.
        """
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size == 1:
            return cls()
        try:
            dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        except (RuntimeError, ValueError) as error:
            raise InvalidValueError(
                "WORLD_SIZE", size, f"the other processes cannot be reached ({error}); use torchrun"
            ) from error
        return cls(dist.get_rank(), size)

    def average(self, parameters: Iterable[nn.Parameter]) -> None:
        """Let every process have the mean of all gradients."""
        if self.size == 1:
            return
        gradients = [
            torch.zeros_like(p) if p.grad is None else p.grad for p in parameters if p.requires_grad
        ]
        flat = torch.cat([gradient.flatten() for gradient in gradients])  # one message
        dist.all_reduce(flat)
        flat /= self.size
        for gradient, value in zip(
            gradients, torch.split(flat, [g.numel() for g in gradients]), strict=True
        ):
            gradient.copy_(value.view_as(gradient))

    def share(self, tensor: Tensor) -> Tensor:
        """The tensor of the first process, written into that of each other."""
        if self.size > 1:
            dist.broadcast(tensor, 0)
        return tensor

    def agree(self, value: float) -> float:
        """The first process's value, for all."""
        if self.size == 1:
            return value
        shared = torch.tensor([value], dtype=torch.float64)
        dist.broadcast(shared, 0)
        return float(shared)
