"""One training step of an EAGLE head: guesses from every position, compared with the target."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from outpace.train.batches import TrainBatch
from outpace.train.eagle import EagleHead
from outpace.train.figures import Figures, chain_steps
from outpace.train.goal import Goal, likeliest, table_figures, table_step
from outpace.train.losses import LossName


@dataclass(frozen=True, slots=True)
class EagleOptions:
    """What a head is trained for.

    Attributes:
        depths: tokens ahead that it learns to guess on its own states.
        decay: weight of each depth against the one before.
        loss: see ``losses.compare``.
        prompt_weight: of rows that predict the prompt, against 1 for the target's own words.
        prompt_share: of these rows, how many take part, chosen at random: they are half of all and
            say less than the others.
        vary_depths: batches go one, two, ... ``depths`` tokens ahead in turn instead of all the
            whole way. The first guess, which all others wait for, is then learned most, and a step
            costs about two thirds.
        seed: of the choice of rows.
    """

    depths: int = 3
    decay: float = 0.8
    loss: LossName = "mix"
    prompt_weight: float = 0.2
    prompt_share: float = 1.0
    vary_depths: bool = False
    seed: int = 0


class EagleTask:
    """Computes losses and their gradients.

    Args:
        head: in training; its parameters get the gradients.
        embedding: ``[vocab, hidden]`` of the target, frozen.
        target_head: ``[vocab, hidden]`` of the target.
        vocabulary: ``[draft_vocab]`` the target's ids of what the head can say.
        options: see there.
    """

    def __init__(
        self,
        head: EagleHead,
        embedding: Tensor,
        target_head: Tensor,
        vocabulary: Tensor,
        options: EagleOptions,
    ) -> None:
        self.module: nn.Module = head
        self._head = head
        self._embedding = embedding
        self._target_head = target_head
        self._target_rows = target_head[vocabulary]
        self._vocabulary = vocabulary
        self._options = options
        self._random = torch.Generator().manual_seed(options.seed)
        self._batches = 0

    def learn(self, batch: TrainBatch, scale: float = 1.0) -> Figures:
        """Add the gradient of a batch's loss, times ``scale``."""
        options, figures = self._options, Figures()
        taps, last = batch.states()
        goal = Goal.make(last, self._target_rows, keep=True)
        depths = self._depths_now()
        embedded = self._embedded(batch, depths)
        total = sum(options.decay**d for d in range(depths))
        states, gradients = [], []
        for depth, state in enumerate(self._head.unroll(taps, embedded, depths)):
            weights = row_weights(batch, depth, options.prompt_weight).flatten()
            if options.prompt_share < 1.0 and depth == 0:
                own = row_weights(batch, depth, 0.0).flatten() > 0
                drawn = torch.rand(weights.shape, generator=self._random).to(weights.device)
                weights = weights.where(own | (drawn < options.prompt_share), 0.0)
            rows = weights.nonzero().flatten()
            if not len(rows):
                break
            share = scale * options.decay**depth / total / float(weights.sum())
            normed = self._head.norm(state.flatten(0, 1)[rows])
            gradient, found = table_step(
                normed.detach(),
                self._head.lm_head.weight,
                goal,
                rows + depth + 1,
                weights[rows],
                share,
                options.loss,
            )
            figures.add(found.at_depth(depth))
            states.append(normed)
            gradients.append(gradient)
        if states:
            torch.autograd.backward(states, gradients)
        return figures

    def _depths_now(self) -> int:
        self._batches += 1
        most = self._options.depths
        return 1 + self._batches % most if self._options.vary_depths else most

    def _embedded(self, batch: TrainBatch, depths: int) -> Tensor:
        ids = torch.nn.functional.pad(batch.token_ids, (0, depths + 1))
        return self._embedding[ids].float()

    @torch.no_grad()
    def judge(self, batch: TrainBatch, depths: int) -> Figures:
        """Accuracy and overlap by depth on the target's own words, and a greedy walk over them."""
        figures = Figures()
        taps, last = batch.states()
        said = likeliest(last, self._target_head).flatten()
        right = torch.zeros(depths, len(said), dtype=torch.bool, device=said.device)
        goal = Goal.make(last, self._target_rows, keep=True)
        embedded = self._embedded(batch, depths)
        for depth, state in enumerate(self._head.unroll(taps, embedded, depths)):
            rows = row_weights(batch, depth, 0.0).flatten().nonzero().flatten()
            normed = self._head.norm(state.flatten(0, 1)[rows])
            goal_rows = rows + depth + 1
            found, best = table_figures(
                normed, self._head.lm_head.weight, goal, goal_rows, self._options.loss
            )
            right[depth, rows] = self._vocabulary[best] == said[goal_rows]
            found.correct = [int(right[depth].sum())]  # also where the head has no word for it
            figures.add(found.at_depth(depth))
        shaped = right.view(depths, *batch.token_ids.shape)
        figures.emitted, figures.steps = chain_steps(shaped, batch.num_prompt, batch.lengths)
        return figures


def row_weights(batch: TrainBatch, depth: int, prompt_weight: float) -> Tensor:
    """``[B, n]``: what row t counts at a depth, where its goal is the target's row t + 1 + depth.

    Prompts are only guessed one ahead: further ahead it is the target's own words that matter.
    """
    beside = prompt_weight if depth == 0 else 0.0
    goal = torch.arange(batch.token_ids.shape[1], device=batch.token_ids.device) + 1 + depth
    weights = torch.where(goal >= batch.num_prompt[:, None], 1.0, beside)
    return weights * (goal < batch.lengths[:, None])
