"""From stores to a trained drafter on disk: what the commands of ``outpace train`` run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from outpace.errors import InvalidValueError
from outpace.train.arithmetic import narrow_dtype
from outpace.train.batches import Feed, TrainBatch, held_out, is_held_out
from outpace.train.draft import DraftOptions, DraftTask, export_draft, new_draft, old_draft
from outpace.train.eagle import EagleHead
from outpace.train.eagle_task import EagleOptions, EagleTask
from outpace.train.export import export_eagle
from outpace.train.figures import Figures
from outpace.train.further import old_eagle, old_medusa
from outpace.train.loop import Loop, LoopOptions, LoopState, Task
from outpace.train.medusa import (
    MedusaHeads,
    MedusaOptions,
    MedusaTask,
    export_medusa,
    rank_accuracies,
)
from outpace.train.start_eagle import eagle_shape, started_head, stream_scale
from outpace.train.states import TargetStates
from outpace.train.store import Store
from outpace.train.target_parts import TargetParts
from outpace.train.team import Team
from outpace.train.vocabulary import kept_vocabulary, likely_tokens

FINAL, START = "head", "start"
_VOCABULARY_ROWS = 60_000
_FEWEST_TOKENS = 2_000
_RANKED_BATCHES = 2  # of what is held out: enough for shares of a few hundred rows


@dataclass(frozen=True, slots=True)
class Watch:
    """Who is told how it goes.

    Attributes:
        step: after each step, with the state and the step's figures.
        look: after each look at what is held out.
    """

    step: Callable[[LoopState, Figures], None] = lambda *_: None
    look: Callable[[LoopState, Figures], None] = lambda *_: None


@dataclass(frozen=True, slots=True)
class Ground:
    """What every recipe stands on.

    Attributes:
        target: the model that is drafted for.
        stores: its answers.
        folder: where the run and its result go.
        loop: how long and how fast.
        max_tokens: of a batch; what memory is bounded by.
        held_out_tokens: of validation.
        device: where it trains.
        resume: go on from the folder's checkpoint.
        team: the processes that train together; the first of them writes.
    """

    target: TargetParts
    stores: Sequence[Store]
    folder: Path
    loop: LoopOptions
    max_tokens: int
    held_out_tokens: int
    device: torch.device
    resume: bool
    team: Team = field(default_factory=Team)

    def check(self) -> None:
        """Refuse stores of another target, or with too little in them.

        Raises:
            OutpaceError: naming the store.
        """
        if not self.stores:
            raise InvalidValueError(
                "store", "", "give at least one folder of outpace train capture"
            )
        for store in self.stores:
            self.target.check(store)
        tokens, held_out = 0, False
        for example in (example for store in self.stores for example in store):
            tokens += len(example.token_ids)
            held_out = held_out or is_held_out(example)
            if held_out and tokens >= _FEWEST_TOKENS:
                return
        folders = ", ".join(str(store.folder) for store in self.stores)
        problem = f"has {tokens} tokens, fewer than {_FEWEST_TOKENS}: too few"
        if tokens >= _FEWEST_TOKENS:
            problem = "has no entry to be held out, so that nothing could be judged"
        raise InvalidValueError("store", folders, f"{problem}; capture more")

    @property
    def begins(self) -> bool:
        """Whether this process writes how the drafter was before it learned."""
        return self.team.rank == 0 and not self.resume

    @property
    def taps(self) -> tuple[int, ...]:
        """The layers that the stores listened to."""
        return self.stores[0].info.taps

    def batches(self, seed: int) -> tuple[Iterator[TrainBatch], list[TrainBatch]]:
        """What is trained on, and what is held out, with states."""
        part = (self.team.rank, self.team.size)
        feed: Any = Feed(self.stores, self.max_tokens, seed + self.team.rank, part)
        validation: Any = held_out(self.stores, self.max_tokens, self.held_out_tokens)
        if not all(store.info.states for store in self.stores):
            states = TargetStates(self.target, self.taps, self.max_tokens, self.device)
            feed, validation = states.filled(feed), list(states.filled(validation))
        return iter(feed), validation

    def run(
        self,
        task: Task,
        save: Callable[[LoopState], None],
        watch: Watch,
        feed: Iterator[TrainBatch],
        validation: list[TrainBatch],
    ) -> LoopState:
        """Train, from the checkpoint if that is wanted."""
        task.module.to(self.device)
        loop = Loop(task, self.folder, self.loop, self.device, self.team)
        if self.resume:
            loop.resume()
        return loop.run(feed, validation, watch.step, watch.look, save)


def train_eagle(
    ground: Ground,
    draft_vocab_size: int,
    options: EagleOptions,
    watch: Watch,
    begin: Path | None = None,
) -> LoopState:
    """Train an EAGLE head; ``start`` is how it began, ``head`` is the newest checkpoint.

    Args:
        ground: what it stands on.
        draft_vocab_size: tokens that a new head can say.
        options: what it is trained for.
        watch: who is told.
        begin: a head to train further; None: from the target's last layer.

    Raises:
        OutpaceError: the stores or the folder cannot be used.
    """
    ground.check()
    if not ground.taps:
        way_out = "was captured without tapped layers; capture with --taps auto"
        raise InvalidValueError("store", str(ground.stores[0].folder), way_out)
    torch.manual_seed(ground.loop.seed)
    target, folder = ground.target, ground.folder
    feed, validation = ground.batches(ground.loop.seed)
    table = target.head.to(ground.device, narrow_dtype(ground.device))
    embedding = target.embedding.to(ground.device, narrow_dtype(ground.device))
    first = list(islice(feed, 4))
    if begin is not None:
        head, vocabulary = old_eagle(begin, target)
    else:
        head, vocabulary = _new_eagle(ground, draft_vocab_size, table, first)
    if ground.begins:
        export_eagle(folder / START, head, vocabulary, target, options.depths + 1)
    task = EagleTask(
        head.to(ground.device), embedding, table, vocabulary.to(ground.device), options
    )

    def save(_: LoopState) -> None:
        export_eagle(folder / FINAL, head, vocabulary, target, options.depths + 1)

    return ground.run(task, save, watch, _chained(first, feed), validation)


def _new_eagle(
    ground: Ground, draft_vocab_size: int, table: Tensor, first: list[TrainBatch]
) -> tuple[EagleHead, Tensor]:
    """A head that begins with what the target knows, and the tokens that it can say."""
    target = ground.target
    vocabulary = kept_vocabulary(
        ground.folder / START,
        lambda: likely_tokens(
            ground.stores, draft_vocab_size, table, target.config.eos_token_ids, _VOCABULARY_ROWS
        ),
        ground.resume,
    )
    vocabulary = ground.team.share(vocabulary.contiguous())
    shape = eagle_shape(target.config, ground.taps, len(vocabulary))
    scale = stream_scale(first, target.config.hidden_size)
    return started_head(shape, target.weights, target.config, vocabulary, scale), vocabulary


def _chained(first: list[TrainBatch], rest: Iterator[TrainBatch]) -> Iterator[TrainBatch]:
    yield from first
    yield from rest


def train_medusa(
    ground: Ground,
    num_heads: int,
    num_layers: int,
    options: MedusaOptions,
    watch: Watch,
    begin: Path | None = None,
) -> LoopState:
    """Train Medusa heads: new ones of that many heads and layers, or those of a folder further.

    Raises:
        OutpaceError: the stores or the folder cannot be used.
    """
    ground.check()
    torch.manual_seed(ground.loop.seed)
    target = ground.target
    feed, validation = ground.batches(ground.loop.seed)
    table = target.head.to(ground.device, narrow_dtype(ground.device))
    if begin is not None:
        heads = old_medusa(begin, target)
    else:
        heads = MedusaHeads(target.config.hidden_size, num_heads, num_layers)
    judged = [batch.to(ground.device) for batch in validation]

    def save(_: LoopState, name: str = FINAL) -> None:
        ranks = rank_accuracies(heads, table, judged[:_RANKED_BATCHES], ranks=8)
        export_medusa(ground.folder / name, heads, target, ranks)

    if ground.begins:
        heads.to(ground.device)
        save(LoopState(), START)
    return ground.run(MedusaTask(heads, table, options), save, watch, feed, validation)


def train_draft(
    ground: Ground,
    start: Path | None,
    changes: Mapping[str, Any],
    options: DraftOptions,
    watch: Watch,
) -> LoopState:
    """Train a small model, from a checkpoint or from scratch.

    Raises:
        OutpaceError: the stores, the checkpoint, the configuration or the folder cannot be used.
    """
    ground.check()
    torch.manual_seed(ground.loop.seed)
    target = ground.target
    if start is not None and changes:
        way_out = (
            "only a model from scratch has a configuration to choose; leave one of the two out"
        )
        raise InvalidValueError("config", dict(changes), way_out)
    model: nn.Module = old_draft(start, target) if start else new_draft(target, dict(changes))
    feed, validation = ground.batches(ground.loop.seed)
    table = target.head.to(ground.device, narrow_dtype(ground.device))

    def save(state: LoopState, name: str = FINAL) -> None:
        export_draft(ground.folder / name, model, target, {"outpace_tokens": state.tokens})

    if ground.begins:
        save(LoopState(), START)
    return ground.run(DraftTask(model, table, options), save, watch, feed, validation)
