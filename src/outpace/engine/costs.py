"""Measuring what a loaded model's steps cost, or taking it from an earlier start."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter

import numpy as np
import torch

from outpace.control.cost import AttentionCost, CostTable
from outpace.control.kept import Machine, MeasuredCost, Setting, obtain
from outpace.kernels.features import cpu_flags, cpu_name
from outpace.model.batch import Batch
from outpace.model.runner import ModelRunner

# The features of processors that decide which kernels there are, as Linux spells them.
FEATURES = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "avx_vnni", "amx_bf16", "amx_int8")

# In the order of their worth: a slow model gets the first of them only. Kernels work in tiles of
# 4 or 8 rows, so both sides of an edge are looked at.
_ROWS = (1, 4, 8, 2, 16, 5, 3, 6, 12, 9, 32, 24)
_FEWEST = 4
_NEAR, _FAR = 128, 2048  # tokens of context
_FAR_ROWS = (1, 4)
_CHECKED_ROWS = (1, 8)
_READ = 32  # tokens of a prompt's piece
_FEWEST_ROUNDS, _MOST_ROUNDS = 2, 7
# Slots behind the padding's, which nobody uses before the first request.
_FIRST_SLOT = 16

Clock = Callable[[], float]


def model_cost(
    runner: ModelRunner, folder: Path, precision: str, seconds: float, cache: Path | None
) -> MeasuredCost:
    """What steps of a model cost.

    Args:
        runner: the model, before the first request.
        folder: its checkpoint.
        precision: of weights and cache, in words.
        seconds: about how long measuring may take.
        cache: folder for kept tables; None keeps none.
    """
    decoder = runner.decoder
    setting = Setting(
        machine=machine_here(),
        device=str(decoder.device),
        model=checkpoint_fingerprint(folder),
        # A head for some tokens and the size of groups show in the bytes.
        precision=f"{precision}, {decoder.weight_bytes} bytes a pass",
        threads=torch.get_num_threads(),
        kernels=decoder.kernels,
    )
    return obtain(
        cache,
        setting,
        measure=lambda: measure_costs(runner, seconds),
        check=lambda: check_costs(runner),
    )


def machine_here() -> Machine:
    """The machine that this runs on."""
    present = cpu_flags()
    features = tuple(feature for feature in FEATURES if feature in present)
    return Machine(cpu_name(), usable_cores(), features, str(torch.__version__), _own_version())


def usable_cores() -> int:
    """Cores that this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1


def _own_version() -> str:
    try:
        return version("outpace")
    except PackageNotFoundError:
        return "unknown"


def checkpoint_fingerprint(folder: Path) -> str:
    """Tells checkpoints apart by their configuration and the names, sizes and ages of weights."""
    digest = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        if file.name == "config.json":
            digest.update(file.read_bytes())
        elif file.suffix in (".safetensors", ".gguf"):
            stat = file.stat()
            digest.update(f"{file.name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:32]


@torch.inference_mode()
def measure_costs(runner: ModelRunner, seconds: float, clock: Clock = perf_counter) -> CostTable:
    """A cost table of forward passes with logits for all rows, in about so many seconds.

    Each point is the shortest of some passes, since everything that disturbs a measurement
    makes it longer. The points take turns, so that a disturbance does not meet one of them
    alone. A large model gets fewer points rather than single, noisy ones.
    """
    deadline = clock() + seconds
    limit = min(runner.decoder.config.max_position_embeddings, runner.pool.num_slots - _FIRST_SLOT)
    near, far = min(_NEAR, limit // 4), min(_FAR, limit - max(_FAR_ROWS))
    _pass_seconds(runner, 1, near, clock)  # what the first pass sets up is not its cost
    once = _pass_seconds(runner, 1, near, clock)
    left = deadline - clock()
    count = max(_FEWEST, int(left / (_FEWEST_ROUNDS * max(once, 1e-9))) - len(_FAR_ROWS))
    points = [(rows, near) for rows in _ROWS[:count] if near + rows <= limit] or [(1, 0)]
    has_far = far >= 2 * near
    if has_far:
        points[_FEWEST:_FEWEST] = [(rows, far) for rows in _FAR_ROWS]
    times = dict.fromkeys(points, math.inf)
    for done in range(_MOST_ROUNDS):
        for point in points:
            if done >= _FEWEST_ROUNDS and clock() > deadline:
                break
            times[point] = min(times[point], _pass_seconds(runner, *point, clock))
    reading = _reading_seconds(runner, near, clock) if near + _READ <= limit else None
    at_near = [point for point in points if point[1] == near or not has_far]
    by_rows = {rows: times[rows, context] for rows, context in at_near}
    if not has_far:
        return CostTable(by_rows, reading=reading)
    few, many = ((rows, far, times[rows, far] - by_rows[rows]) for rows in _FAR_ROWS)
    return CostTable(by_rows, AttentionCost.fitted(near, few, many), reading)


@torch.inference_mode()
def check_costs(
    runner: ModelRunner, repeats: int = 3, clock: Clock = perf_counter
) -> dict[int, float]:
    """Seconds by rows at two points: enough to see whether a table still holds."""
    limit = min(runner.decoder.config.max_position_embeddings, runner.pool.num_slots - _FIRST_SLOT)
    near = min(_NEAR, limit // 4)
    rows = [one for one in _CHECKED_ROWS if near + one <= limit]
    _pass_seconds(runner, 1, near, clock)
    return {
        one: min(_pass_seconds(runner, one, near, clock) for _ in range(repeats)) for one in rows
    }


def _reading_seconds(runner: ModelRunner, context: int, clock: Clock) -> float:
    """Seconds that one more token of a prompt's piece takes."""
    one, many = (_pass_seconds(runner, rows, context, clock, asked=1) for rows in (1, _READ))
    return max(many - one, 0.0) / (_READ - 1)


def _pass_seconds(
    runner: ModelRunner, rows: int, context: int, clock: Clock, asked: int | None = None
) -> float:
    """One pass in which the last ``asked`` rows have logits; None: all."""
    batch = Batch()
    slots = np.arange(_FIRST_SLOT, _FIRST_SLOT + context + rows)
    batch.append_run(np.zeros(rows, np.int64), context, slots)
    batch.logits_rows.extend(range(rows - (asked or rows), rows))
    began = clock()
    runner.run(batch)
    return clock() - began
