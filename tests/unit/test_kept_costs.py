"""Cost tables that are kept: used, checked, rescaled, refused, never an error."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outpace.control.cost import AttentionCost, CostTable
from outpace.control.kept import Machine, MeasuredCost, Setting, obtain
from outpace.engine.costs import check_costs, machine_here, measure_costs
from outpace.model.batch import Batch

from engines import make_runner

MACHINE = Machine("Some CPU", 4, ("avx2",), "2.9", "0.1.0")
SETTING = Setting(MACHINE, "cpu", "abc", "bfloat16", 4, "compiled")
TABLE = CostTable({1: 1.0, 8: 2.0}, AttentionCost(128, 1e-5, 1e-6))
OTHER = CostTable({1: 5.0, 8: 6.0})


def start(
    folder: Path,
    setting: Setting = SETTING,
    seen: dict[int, float] | None = None,
    fresh: CostTable = OTHER,
) -> MeasuredCost:
    return obtain(folder, setting, lambda: fresh, lambda: seen or {1: 1.0, 8: 2.0})


def kept_file(folder: Path) -> Path:
    start(folder, fresh=TABLE)
    [file] = folder.glob("*")
    return file


def test_it_is_measured_once_and_then_kept(tmp_path: Path) -> None:
    first = start(tmp_path / "new" / "folder", fresh=TABLE)
    assert first.table is TABLE
    assert "first time" in first.origin
    again = start(tmp_path / "new" / "folder")
    assert again.table.points == TABLE.points
    assert again.table.attention_cost == TABLE.attention_cost
    assert again.origin.startswith("kept from 2")


def test_a_table_that_is_a_little_off_is_kept(tmp_path: Path) -> None:
    kept_file(tmp_path)
    assert start(tmp_path, seen={1: 1.1, 8: 1.8}).table.points == TABLE.points


def test_a_slower_machine_rescales_it(tmp_path: Path) -> None:
    kept_file(tmp_path)
    cost = start(tmp_path, seen={1: 3.0, 8: 6.3})
    assert cost.table(8) == pytest.approx(2.0 * 3.075)
    assert cost.table.attention_cost.per_key == pytest.approx(1e-5 * 3.075)
    assert "times 3.08" in cost.origin
    assert start(tmp_path).table.points == TABLE.points  # the file is as it was


def test_a_table_of_another_shape_is_measured_again(tmp_path: Path) -> None:
    kept_file(tmp_path)
    cost = start(tmp_path, seen={1: 1.0, 8: 4.0})
    assert cost.table is OTHER
    assert "does not hold" in cost.origin
    assert start(tmp_path, seen={1: 5.0, 8: 6.0}).table.points == OTHER.points


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"machine": replace(MACHINE, torch="3.0")}, "torch"),
        ({"machine": replace(MACHINE, package="0.2.0")}, "package"),
        ({"machine": replace(MACHINE, features=("avx2", "avx512f"))}, "features"),
    ],
)
def test_another_version_is_measured_again_and_says_so(
    tmp_path: Path, changes: dict[str, Any], word: str
) -> None:
    kept_file(tmp_path)
    cost = start(tmp_path, replace(SETTING, **changes))
    assert cost.table is OTHER
    assert word in cost.origin
    assert len(list(tmp_path.glob("*"))) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"machine": replace(MACHINE, cpu="Another CPU")},
        {"machine": replace(MACHINE, cores=8)},
        {"device": "cuda"},
        {"model": "def"},
        {"precision": "int8"},
        {"threads": 2},
        {"kernels": "PyTorch"},
    ],
)
def test_another_setting_has_a_table_of_its_own(tmp_path: Path, changes: dict[str, Any]) -> None:
    kept_file(tmp_path)
    other = replace(SETTING, **changes)
    assert start(tmp_path, other).table is OTHER
    assert start(tmp_path).table.points == TABLE.points
    assert start(tmp_path, other, seen={1: 5.0, 8: 6.0}).origin.startswith("kept")


def test_a_file_that_was_copied_from_another_machine_is_not_used(tmp_path: Path) -> None:
    file = kept_file(tmp_path)
    content = json.loads(file.read_text())
    content["setting"]["machine"]["cpu"] = "Another CPU"
    file.write_text(json.dumps(content))
    cost = start(tmp_path)
    assert cost.table is OTHER
    assert "Another CPU" in cost.origin


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "{}", '{"format": 99}', "\x00\xff", "[" * 100_000],
)
def test_a_damaged_file_is_measured_again(tmp_path: Path, text: str) -> None:
    file = kept_file(tmp_path)
    file.write_text(text, encoding="latin-1")
    cost = start(tmp_path)
    assert cost.table is OTHER
    assert "not used" in cost.origin
    assert start(tmp_path, seen={1: 5.0, 8: 6.0}).origin.startswith("kept")


@pytest.mark.parametrize("table", [None, {}, {"seconds_by_rows": {"1": -1}, "attention": {}}])
def test_a_file_with_a_damaged_table_is_measured_again(tmp_path: Path, table: object) -> None:
    file = kept_file(tmp_path)
    content = json.loads(file.read_text())
    content["table"] = table
    file.write_text(json.dumps(content))
    assert "damaged" in start(tmp_path).origin


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    cost = start(blocked / "costs", fresh=TABLE)
    assert cost.table is TABLE
    assert "cannot be kept" in cost.origin


def test_the_folder_does_not_grow_without_end(tmp_path: Path) -> None:
    for number in range(70):
        start(tmp_path, replace(SETTING, model=str(number)))
    assert len(list(tmp_path.glob("*"))) == 64


class Clock:
    """Passes time only when the runner runs."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class TimedRunner:
    """A runner whose passes take what a formula says, and the first of each size longer."""

    def __init__(self, clock: Clock, second: float = 0.02) -> None:
        self.clock, self.second = clock, second
        real = make_runner()
        self.pool, self.decoder = real.pool, real.decoder
        self.seen: list[tuple[int, int]] = []

    def run(self, batch: Batch) -> None:
        point = batch.num_rows, len(batch.views[0].slots) - batch.num_rows
        reads = batch.logits_rows == [31]
        assert reads or batch.logits_rows == list(range(batch.num_rows))
        assert int(np.concatenate(batch.slots).max()) < self.pool.num_slots
        if reads:
            seconds = self.exact(1, point[1]) + 31 * self.second / 8
        else:
            seconds = self.exact(*point) * (1 if point in self.seen else 1.5)
        self.seen.append(point)
        self.clock.now += seconds

    def exact(self, rows: int, context: int) -> float:
        extra = (context - 128) * (2 + rows) * 1e-6
        return self.second * (1 + 0.1 * (rows // 5)) + extra


def test_measuring_finds_tiles_and_the_price_of_context() -> None:
    clock = Clock()
    runner = TimedRunner(clock)
    table = measure_costs(runner, 10.0, clock)  # type: ignore[arg-type]
    for rows in (1, 4, 5, 6, 9, 12, 32):
        assert table(rows, 128) == pytest.approx(runner.exact(rows, 128))
    assert table.attention_cost.per_pair == pytest.approx(1e-6)
    assert table.attention_cost.per_key == pytest.approx(2e-6)
    assert table.reading(101, 128) == pytest.approx(runner.exact(1, 128) + 100 * runner.second / 8)


def test_a_large_model_gets_fewer_points_in_about_the_time() -> None:
    clock = Clock()
    runner = TimedRunner(clock, second=0.06)
    table = measure_costs(runner, 1.6, clock)  # type: ignore[arg-type]
    assert 8 <= len(table.points) < 12
    assert clock.now < 2.5
    huge = TimedRunner(clock, second=1.0)
    table = measure_costs(huge, 1.3, clock)  # type: ignore[arg-type]
    assert sorted(table.points) == [1, 2, 4, 8]


def test_checking_is_quick_and_exact() -> None:
    clock = Clock()
    runner = TimedRunner(clock)
    seen = check_costs(runner, clock=clock)  # type: ignore[arg-type]
    assert seen == pytest.approx({rows: runner.exact(rows, 128) for rows in (1, 8)})
    assert len(runner.seen) == 7


def test_a_real_runner_can_be_measured() -> None:
    table = measure_costs(make_runner(num_slots=1200), 0.0)
    assert all(seconds > 0 for seconds in table.points.values())


def test_this_machine_has_a_name() -> None:
    machine = machine_here()
    assert machine.cpu
    assert machine.cores >= 1
