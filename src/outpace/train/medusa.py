"""Medusa heads (Cai et al. 2024, arXiv 2401.10774): each guesses one place further ahead.

Head i reads the target's last hidden state at t and says what comes at t + 2 + i. The heads end in
the target's own head, which is not trained: what is left of each is a residual block.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from outpace.train.batches import TrainBatch
from outpace.train.eagle_task import row_weights
from outpace.train.export import write_head
from outpace.train.figures import Figures, chain_steps
from outpace.train.goal import Goal, chunks, likeliest, some_of, table_figures, table_step
from outpace.train.losses import LossName
from outpace.train.target_parts import TargetParts


class _Block(nn.Module):
    """x + silu(W x + b), which is x at first."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x + F.silu(self.linear(x))
        return out


class MedusaHeads(nn.ModuleList):
    """Heads whose tensors have the names of the published layout.

    Args:
        hidden_size: of the target.
        num_heads: places ahead.
        num_layers: residual blocks of a head.
    """

    def __init__(self, hidden_size: int, num_heads: int, num_layers: int = 1) -> None:
        super().__init__(
            nn.Sequential(*(_Block(hidden_size) for _ in range(num_layers)))
            for _ in range(num_heads)
        )
        self.num_layers = num_layers


@dataclass(frozen=True, slots=True)
class MedusaOptions:
    """What heads are trained for.

    Attributes:
        decay: weight of each head against the one before.
        loss: see ``losses.compare``.
        rows: positions of a batch that are learned from, chosen at random: the target's whole
            vocabulary makes each of them dear.
        seed: of that choice.
    """

    decay: float = 0.8
    loss: LossName = "kl"
    rows: int = 512
    seed: int = 0


class MedusaTask:
    """Computes losses and their gradients.

    Args:
        heads: in training.
        target_head: ``[vocab, hidden]`` of the target, frozen.
        options: see there.
    """

    def __init__(self, heads: MedusaHeads, target_head: Tensor, options: MedusaOptions) -> None:
        self.module: nn.Module = heads
        self._heads = heads
        self._table = target_head
        self._options = options
        self._generator = torch.Generator().manual_seed(options.seed)

    def learn(self, batch: TrainBatch, scale: float = 1.0) -> Figures:
        """Add the gradient of a batch's loss, times ``scale``."""
        options, figures = self._options, Figures()
        assert batch.last is not None
        goal = Goal.make(batch.last, self._table, keep=False)
        flat = batch.last.flatten(0, 1).float()
        total = sum(options.decay**d for d in range(len(self._heads)))
        for depth, head in enumerate(self._heads):
            own = row_weights(batch, depth, 0.0).flatten().nonzero().flatten()
            rows = some_of(own, options.rows, self._generator)
            if not len(rows):
                break
            state = head(flat[rows])
            share = scale * options.decay**depth / total / len(rows)
            ones = torch.ones(len(rows), device=rows.device)
            gradient, found = table_step(
                state.detach(), self._table, goal, rows + depth + 1, ones, share, options.loss
            )
            figures.add(found.at_depth(depth))
            torch.autograd.backward([state], [gradient])
        return figures

    @torch.no_grad()
    def judge(self, batch: TrainBatch, depths: int) -> Figures:
        """Accuracy and overlap by head, and a greedy walk in chains of the heads' best guesses."""
        figures = Figures()
        assert batch.last is not None
        goal = Goal.make(batch.last, self._table, keep=False)
        said = likeliest(batch.last, self._table).flatten()
        flat = batch.last.flatten(0, 1).float()
        depths = min(depths, len(self._heads))
        right = torch.zeros(depths, len(flat), dtype=torch.bool, device=flat.device)
        for depth in range(depths):
            rows = row_weights(batch, depth, 0.0).flatten().nonzero().flatten()
            state = self._heads[depth](flat[rows])
            found, best = table_figures(
                state, self._table, goal, rows + depth + 1, self._options.loss
            )
            right[depth, rows] = best == said[rows + depth + 1]
            figures.add(found.at_depth(depth))
        shaped = right.view(depths, *batch.token_ids.shape)
        figures.emitted, figures.steps = chain_steps(shaped, batch.num_prompt, batch.lengths)
        return figures


@torch.no_grad()
def rank_accuracies(
    heads: MedusaHeads, table: Tensor, batches: list[TrainBatch], ranks: int
) -> list[list[float]]:
    """How often the token at a rank of a head is right, ``[head][rank]``: what shapes a tree."""
    hits = torch.zeros(len(heads), ranks)
    counts = torch.zeros(len(heads), 1)
    for batch in batches:
        assert batch.last is not None
        said = likeliest(batch.last, table).flatten()
        flat = batch.last.flatten(0, 1).float()
        for depth, head in enumerate(heads):
            rows = row_weights(batch, depth, 0.0).flatten().nonzero().flatten()
            for span in chunks(len(rows), len(table)):
                part = rows[span]
                logits = head(flat[part]).to(table.dtype) @ table.T
                top = logits.topk(ranks).indices
                hits[depth] += (top == said[part + depth + 1, None]).sum(0).cpu()
                counts[depth] += len(part)
    table_of_shares: list[list[float]] = (hits / counts.clamp_min(1)).tolist()
    return [[round(share, 4) for share in row] for row in table_of_shares]


def export_medusa(
    folder: Path, heads: MedusaHeads, target: TargetParts, accuracies: list[list[float]]
) -> None:
    """Write heads in the published layout, without final layers: they share the target's.

    Raises:
        OSError: the folder cannot be written; what was there before is whole.
    """
    tensors = {
        name: tensor.detach().to("cpu", torch.bfloat16).contiguous()
        for name, tensor in heads.state_dict().items()
    }
    config = {
        "model_type": "medusa",
        "medusa_num_heads": len(heads),
        "medusa_num_layers": heads.num_layers,
        "hidden_size": target.config.hidden_size,
        "vocab_size": target.config.vocab_size,
        "base_model_name_or_path": target.name,
        "tree_accuracies": accuracies,
        "target_fingerprint": target.fingerprint,
    }
    write_head(folder, tensors, config)
