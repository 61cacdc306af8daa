"""The training loop: schedule, checkpoints, early stop; it does not know what it trains."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from outpace.errors import CapacityError, CheckpointError, in_short
from outpace.train.arithmetic import narrow_dtype
from outpace.train.batches import TrainBatch
from outpace.train.figures import Figures
from outpace.train.muon import Muon
from outpace.train.team import Team
from outpace.whole_file import appearing

STATE = "training.pt"


class Task(Protocol):
    """What is trained."""

    module: nn.Module

    def learn(self, batch: TrainBatch, scale: float = 1.0) -> Figures:
        """Add the gradient of a batch's loss, times ``scale``, to the module's parameters."""
        ...

    def judge(self, batch: TrainBatch, depths: int) -> Figures:
        """Figures of a batch that is not learned from."""
        ...


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """How long and how fast.

    Attributes:
        steps: the most optimizer steps; None: as many as the time allows.
        minutes: the most time; None: as long as the steps take. One of the two bounds the run.
        learning_rate: of vectors and tables (AdamW).
        matrix_rate: of the other matrices (Muon: Jordan et al. 2024).
        warmup: steps over which the rates rise.
        cooldown: share of the run over which they fall to zero.
        batches_a_step: whose gradients are added up.
        judge_every: seconds between two looks at what is held out, at least.
        judge_depths: tokens ahead at these looks.
        patience: looks without a better loss after which it stops; None: never.
        seed: of all that is random.
    """

    steps: int | None = None
    minutes: float | None = 30.0
    learning_rate: float = 2e-3
    matrix_rate: float = 4e-3
    warmup: int = 20
    cooldown: float = 0.4
    batches_a_step: int = 1
    judge_every: float = 120.0
    judge_depths: int = 4
    patience: int | None = None
    seed: int = 0


@dataclass(slots=True)
class LoopState:
    """Where a run stands; it is what a checkpoint keeps beside tensors."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    best_loss: float = math.inf
    looks_without_gain: int = 0
    curve: list[dict[str, Any]] = field(default_factory=list)


Save = Callable[[LoopState], None]


class Loop:
    """Trains a task in a folder.

    Args:
        task: what is trained.
        folder: of checkpoints and the log.
        options: how long and how fast.
        device: where; products are of bf16 where it multiplies that fast.
        team: the processes that train together.
    """

    def __init__(
        self,
        task: Task,
        folder: Path,
        options: LoopOptions,
        device: torch.device,
        team: Team | None = None,
    ) -> None:
        self._task = task
        self._folder = folder
        self._options = options
        self._device = device
        self._team = team or Team()
        self._optimizers = _optimizers(task.module, options)
        self.state = LoopState()

    def resume(self) -> bool:
        """Go on from the folder's checkpoint; False if there is none.

        Raises:
            CheckpointError: it is damaged or of something else.
        """
        path = self._folder / STATE
        if not path.is_file():
            return False
        try:
            kept = torch.load(path, map_location=self._device, weights_only=True)
            self._task.module.load_state_dict(kept["module"])
            for optimizer, said in zip(self._optimizers, kept["optimizers"], strict=True):
                optimizer.load_state_dict(said)
            self.state = LoopState(**json.loads(kept["state"]))
        except (OSError, RuntimeError, KeyError, ValueError, TypeError, EOFError) as error:
            reason = in_short(error)
            raise CheckpointError(
                f"{path}: cannot be resumed from ({reason}); remove it to begin again"
            ) from error
        return True

    def run(
        self,
        batches: Iterable[TrainBatch],
        validation: Sequence[TrainBatch],
        on_step: Callable[[LoopState, Figures], None],
        on_look: Callable[[LoopState, Figures], None],
        save: Save,
    ) -> LoopState:
        """Train until the bound, or no gain, or Ctrl-C; what was learned is saved in each case."""
        state, options = self.state, self._options
        began = time.monotonic() - state.seconds
        due = state.seconds + options.judge_every
        leads = self._team.rank == 0
        for parameter in self._task.module.parameters():
            self._team.share(parameter.data)
        feed = iter(batches)
        try:
            while (progress := self._team.agree(self._progress())) < 1.0:
                self._set_rates(progress)
                on_step(state, self._step(feed))
                state.seconds = time.monotonic() - began
                if leads and state.seconds >= due:
                    on_look(state, self.look(validation))
                    self.save(save)
                    # Looking shall never cost more than a fifth of the time.
                    now = time.monotonic() - began
                    due = now + max(options.judge_every, 4 * (now - state.seconds))
        finally:
            if leads and state.step:
                self.save(save)
        if leads:
            on_look(state, self.look(validation))
        return state

    def _step(self, feed: Any) -> Figures:
        figures = Figures()
        count = self._options.batches_a_step
        self._task.module.train()
        for _ in range(count):
            batch = next(feed).to(self._device)
            with self._autocast():
                figures.add(self._task.learn(batch, 1 / count))
            self.state.tokens += batch.num_tokens * self._team.size
        self._team.average(self._task.module.parameters())
        torch.nn.utils.clip_grad_norm_(self._task.module.parameters(), 1.0)
        for optimizer in self._optimizers:
            optimizer.step()
            optimizer.zero_grad()
        self.state.step += 1
        return figures

    def look(self, validation: Sequence[TrainBatch]) -> Figures:
        """Judge what is held out, and note it in the curve and the log."""
        figures = Figures()
        self._task.module.eval()
        for batch in validation:
            with self._autocast():
                figures.add(self._task.judge(batch.to(self._device), self._options.judge_depths))
        state = self.state
        better = figures.mean_loss < state.best_loss
        state.best_loss = min(state.best_loss, figures.mean_loss)
        state.looks_without_gain = 0 if better else state.looks_without_gain + 1
        entry = {"step": state.step, "tokens": state.tokens, "seconds": round(state.seconds)}
        state.curve.append({**entry, **figures.as_dict()})
        return figures

    def save(self, save: Save) -> None:
        """Write a checkpoint to resume from, and let the caller export.

        Raises:
            CapacityError: the disk is full; the checkpoint before is whole.
        """
        path = self._folder / STATE
        kept = {
            "module": self._task.module.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self._optimizers],
            "state": json.dumps(asdict(self.state)),
        }
        try:
            with appearing(path) as beside:
                torch.save(kept, beside)
            save(self.state)
        except (OSError, RuntimeError, SafetensorError) as error:
            reason = in_short(error)
            raise CapacityError(
                f"{self._folder}: the checkpoint cannot be written ({reason}); the one before is "
                "whole: make room and resume"
            ) from error

    def _progress(self) -> float:
        """From 0 to 1: by the steps or by the time, whichever is further, or by lost patience."""
        options, state = self._options, self.state
        if options.patience and state.looks_without_gain >= options.patience:
            return 1.0
        shares = [0.0]
        if options.steps is not None:
            shares.append(state.step / options.steps)
        if options.minutes is not None:
            shares.append(state.seconds / (60 * options.minutes))
        return max(shares)

    def _set_rates(self, progress: float) -> None:
        options = self._options
        warm = min(1.0, (self.state.step + 1) / max(1, options.warmup))
        cool = min(1.0, (1.0 - progress) / options.cooldown) if options.cooldown else 1.0
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["base_rate"] * warm * cool

    def _autocast(self) -> torch.autocast:
        narrow = narrow_dtype(self._device) == torch.bfloat16
        return torch.autocast(self._device.type, torch.bfloat16, enabled=narrow)


def _optimizers(module: nn.Module, options: LoopOptions) -> list[torch.optim.Optimizer]:
    """Muon for the matrices within layers, AdamW for tables over the vocabulary and vectors."""
    matrices: list[Tensor] = []
    others: list[Tensor] = []
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            continue
        table = "lm_head" in name or "embed" in name
        (matrices if parameter.ndim == 2 and not table else others).append(parameter)
    optimizers: list[torch.optim.Optimizer] = []
    if matrices:
        group = {"params": matrices, "base_rate": options.matrix_rate}
        optimizers.append(Muon([group], lr=options.matrix_rate))
    if others:
        group = {"params": others, "base_rate": options.learning_rate}
        rate = options.learning_rate
        optimizers.append(torch.optim.AdamW([group], rate, (0.9, 0.98), weight_decay=0.0))
    return optimizers
