"""What the target says, and the step from a drafter's states to losses and gradients.

Logits over a vocabulary are the largest tensors of training; here they exist for a few rows at a
time, forward and backward, and never as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from outpace.train.figures import Figures
from outpace.train.losses import Compared, LossName, compare

CHUNK_VALUES = 2**21  # logits that are there at once: a few megabytes stay in the cache


def chunks(rows: int, vocab: int) -> list[slice]:
    """Slices of rows whose logits are there at once."""
    size = max(1, CHUNK_VALUES // vocab)
    return [slice(begin, begin + size) for begin in range(0, rows, size)]


@dataclass(frozen=True, slots=True, eq=False)
class Goal:
    """The target's distributions after each of some states.

    Attributes:
        states: ``[rows, hidden]`` after the target's final norm.
        table: ``[vocab, hidden]`` of the target's head, of the tokens that can be said.
        kept: ``[rows, vocab]`` probabilities in the table's dtype, or None: made when wanted.
    """

    states: Tensor
    table: Tensor
    kept: Tensor | None = None

    @classmethod
    @torch.no_grad()
    def make(cls, last: Tensor, table: Tensor, keep: bool) -> Goal:
        """From hidden states ``[B, n, hidden]``; several depths are worth keeping it."""
        states = last.flatten(0, 1).to(table.dtype)
        goal = cls(states, table)
        if not keep:
            return goal
        kept = states.new_empty(len(states), len(table))
        for part in chunks(len(states), len(table)):
            kept[part] = goal.probs(torch.arange(len(states), device=states.device)[part])
        return cls(states, table, kept)

    def probs(self, rows: Tensor) -> Tensor:
        """``[len(rows), vocab]`` float32."""
        if self.kept is not None:
            return self.kept[rows].float()
        return (self.states[rows] @ self.table.T).float().softmax(-1)

    def compare(self, rows: Tensor, logits: Tensor, loss: LossName) -> tuple[Compared, Tensor]:
        """Compare logits ``[len(rows), vocab]``, which are used up, with these rows.

        Returns:
            Losses and gradients, and ``[len(rows)]`` whether the likeliest token is the same.
        """
        p = self.probs(rows)
        right = p.argmax(-1) == logits.argmax(-1)
        return compare(p, logits, loss), right


@torch.no_grad()
def table_step(
    states: Tensor,
    weight: Tensor,
    goal: Goal,
    goal_rows: Tensor,
    row_weights: Tensor,
    share: float,
    loss: LossName,
) -> tuple[Tensor, Figures]:
    """Through the last linear layer and back.

    Args:
        states: ``[rows, hidden]`` that the layer reads.
        weight: ``[vocab, hidden]`` of the layer; its gradient is added to where it wants one.
        goal: what should come out.
        goal_rows: ``[rows]`` the goal's row of each.
        row_weights: ``[rows]``.
        share: factor of all gradients.
        loss: see ``losses.compare``.

    Returns:
        The gradient ``[rows, hidden]`` of the states, and figures of one depth.
    """
    narrow, inputs = weight.to(goal.table.dtype), states.to(goal.table.dtype)
    if weight.requires_grad and weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    gradient, figures = torch.empty_like(states), Figures.of_one_depth()
    for part in chunks(len(states), len(weight)):
        logits = (inputs[part] @ narrow.T).float()
        compared, right = goal.compare(goal_rows[part], logits, loss)
        figures.count(compared, row_weights[part], right)
        by_logits = compared.gradient.mul_((row_weights[part] * share)[:, None]).to(narrow.dtype)
        gradient[part] = by_logits @ narrow
        if weight.grad is not None:
            weight.grad += by_logits.T @ inputs[part]
    return gradient, figures


@torch.no_grad()
def table_figures(
    states: Tensor, weight: Tensor, goal: Goal, goal_rows: Tensor, loss: LossName
) -> tuple[Figures, Tensor]:
    """Figures of one depth without gradients, and ``[rows]`` the likeliest entry of the table."""
    narrow, inputs = weight.to(goal.table.dtype), states.to(goal.table.dtype)
    figures, best = Figures.of_one_depth(), torch.empty_like(goal_rows)
    for part in chunks(len(states), len(weight)):
        logits = (inputs[part] @ narrow.T).float()
        best[part] = logits.argmax(-1)
        compared, right = goal.compare(goal_rows[part], logits, loss)
        figures.count(compared, torch.ones_like(compared.loss), right)
    return figures, best


@torch.no_grad()
def likeliest(last: Tensor, table: Tensor) -> Tensor:
    """``[B, n]`` the target's likeliest token after each state ``[B, n, hidden]``."""
    states = last.flatten(0, 1).to(table.dtype)
    best = [(states[part] @ table.T).argmax(-1) for part in chunks(len(states), len(table))]
    return torch.cat(best).view(last.shape[:2])


def some_of(rows: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """At most so many of ``rows``, chosen at random: where a whole vocabulary makes each dear."""
    order = torch.randperm(len(rows), generator=generator)
    return rows[order[:most].to(rows.device)]
