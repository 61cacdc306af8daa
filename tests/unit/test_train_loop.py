"""The loop: it learns, stops, saves, resumes; figures walk as decoding does."""

from __future__ import annotations

import errno
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from outpace.errors import CapacityError, CheckpointError
from outpace.train import loop as module
from outpace.train.batches import Feed, TrainBatch, grouped, is_held_out
from outpace.train.figures import Figures, chain_steps
from outpace.train.loop import Loop, LoopOptions, LoopState
from outpace.train.store import Example, Store, StoreInfo

CPU = torch.device("cpu")
BATCH = TrainBatch(
    torch.zeros(1, 4, dtype=torch.long), torch.tensor([4]), torch.tensor([1]), None, None
)


class Parabola:
    """Learns to be 3; a judge's loss is what it is told."""

    def __init__(self, judged: list[float] | None = None) -> None:
        self.module: nn.Module = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(self.module.weight)
        self._judged = iter(judged or [])

    @property
    def value(self) -> float:
        return float(self.module.weight.detach())  # type: ignore[operator]

    def learn(self, batch: TrainBatch, scale: float = 1.0) -> Figures:
        loss = (self.module.weight - 3).square().sum()
        (loss * scale).backward()
        return Figures([float(loss.detach())], [1.0], [1], [0], [0.0])

    def judge(self, batch: TrainBatch, depths: int) -> Figures:
        return Figures([next(self._judged, 1.0)], [1.0], [1], [0], [0.0])


def _run(task: Parabola, folder: Path, resume: bool = False, **options: Any) -> LoopState:
    settings = {"minutes": None, "steps": 40, "matrix_rate": 0.5, "warmup": 0, **options}
    made = Loop(task, folder, LoopOptions(**settings), CPU)
    if resume:
        assert made.resume()
    return made.run(
        itertools.repeat(BATCH), [BATCH], lambda *_: None, lambda *_: None, lambda _: None
    )


def test_it_learns_and_counts(tmp_path: Path) -> None:
    task = Parabola()
    state = _run(task, tmp_path, steps=100, matrix_rate=1.0)
    assert (state.step, state.tokens) == (100, 400)
    assert abs(task.value - 3) < 0.5
    assert state.curve[-1]["step"] == 100


def test_it_stops_without_gain(tmp_path: Path) -> None:
    judged = [3.0, 2.0, 2.5, 2.4]
    state = _run(Parabola(judged), tmp_path, steps=100_000, judge_every=0.0, patience=2)
    # Four looks, however many steps lie between them, and the one at the end.
    assert [entry["loss"] for entry in state.curve] == [*judged, 1.0]
    assert state.step < 100_000


def test_ctrl_c_keeps_what_was_learned_and_resume_goes_on(tmp_path: Path) -> None:
    class Interrupted(Parabola):
        steps = 0

        def learn(self, batch: TrainBatch, scale: float = 1.0) -> Figures:
            self.steps += 1
            if self.steps == 6:
                raise KeyboardInterrupt
            return super().learn(batch, scale)

    first = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        _run(first, tmp_path, steps=9)
    second = Parabola()
    state = _run(second, tmp_path, resume=True, steps=9)
    assert state.step == 9
    (tmp_path / "whole").mkdir()
    third = Parabola()
    _run(third, tmp_path / "whole", steps=9)
    # Nothing of it is random, so the run in two parts ends where the whole one does.
    assert second.value == third.value != 0.0


def test_a_full_disk_keeps_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _run(Parabola(), tmp_path, steps=3)
    before = (tmp_path / module.STATE).read_bytes()

    def full(kept: Any, path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.torch, "save", full)
    with pytest.raises(CapacityError, match="make room and resume"):
        _run(Parabola(), tmp_path, steps=2)
    assert (tmp_path / module.STATE).read_bytes() == before
    assert not list(tmp_path.glob(".*"))


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    _run(Parabola(), tmp_path, steps=3)
    file = tmp_path / module.STATE
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(CheckpointError, match="cannot be resumed from"):
        Loop(Parabola(), tmp_path, LoopOptions(), CPU).resume()


def test_chains_walk_as_decoding_does() -> None:
    # From position 1 both guesses hold (3 tokens), from 4 the first (2), from 6 none.
    right = torch.zeros(2, 1, 8, dtype=torch.bool)
    right[0, 0, [1, 4]] = True
    right[1, 0, [1, 6]] = True
    assert chain_steps(right, torch.tensor([2]), torch.tensor([8])) == (6, 3)


def _store(folder: Path, count: int) -> Store:
    store = Store.create(folder, StoreInfo("demo", "f" * 32, 96, 8, (), states=False))
    for i in range(count):
        length = 4 + i % 5
        store.add([Example(f"entry {i}", "", 1, torch.full((length,), i, dtype=torch.int32))])
    return store


def test_feed_reads_everything_equally_and_nothing_held_out(tmp_path: Path) -> None:
    store = _store(tmp_path / "s", 120)
    held = {int(e.token_ids[0]) for e in store if is_held_out(e)}
    assert held
    feed = Feed([store], 32, seed=1)
    seen: list[int] = []
    for batch in feed:
        assert batch.token_ids.numel() <= 32
        seen += [int(row[0]) for row in batch.token_ids]
        if len(seen) >= 2 * (120 - len(held)):
            break
    assert set(seen) == set(range(120)) - held


def test_processes_read_different_shards(tmp_path: Path) -> None:
    store = _store(tmp_path / "s", 40)

    def read(place: int, processes: int) -> set[int]:
        feed = iter(Feed([store], 32, seed=place, part=(place, processes)))
        return {int(row[0]) for _ in range(40) for row in next(feed).token_ids}

    parts = [read(place, 2) for place in range(2)]
    assert not parts[0] & parts[1]
    assert parts[0] | parts[1] == read(0, 1)
    assert read(40, 60) == read(0, 1)  # too few shards: better the same ones than none


def test_what_is_captured_meanwhile_is_read_next(tmp_path: Path) -> None:
    store = _store(tmp_path / "s", 8)
    feed = Feed([store], 1000, seed=1)
    batches = iter(feed)
    for _ in range(6):
        next(batches)
    key = next(
        f"new {i}" for i in range(99) if not is_held_out(Example(f"new {i}", "", 1, torch.zeros(1)))
    )
    store.add([Example(key, "", 1, torch.full((5,), 95, dtype=torch.int32))])
    found = torch.cat([next(batches).token_ids[:, 0] for _ in range(2)])
    assert 95 in found.tolist()


def test_batches_are_bounded_and_whole() -> None:
    examples = [Example(str(i), "", 0, torch.arange(1 + i % 7)) for i in range(30)]
    batches = grouped(examples, 20)
    assert sum(len(batch.lengths) for batch in batches) == 30
    assert all(batch.token_ids.numel() <= 20 for batch in batches)
