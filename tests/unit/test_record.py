from __future__ import annotations

import logging
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outpace.errors import InvalidValueError
from outpace.record.bounded import BoundedTable, Bounds, RecordError
from outpace.record.deletion import delete_file
from outpace.record.recorder import LAYOUT, Recorder, load, open_recorder
from outpace.record.row import COLUMNS, from_cells

from record_rows import row


def write(path: Path, numbers: range, bounds: Bounds | None = None) -> None:
    table = BoundedTable(path, LAYOUT, bounds or Bounds(1000, 10**7))
    table.append([row(number).as_cells() for number in numbers])
    table.close()


def ids(path: Path) -> list[str]:
    return [one.request_id for one in load(path)]


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    rows = [row(0), row(1, prompt="grüße 👋", answer="\ud800 half"), row(2)]
    recorder = Recorder(tmp_path / "a.db")
    assert all(recorder.add(one) for one in rows)
    assert recorder.flush()
    # Half of a surrogate pair has no place in a database.
    assert load(tmp_path / "a.db") == [rows[0], replace(rows[1], answer="? half"), rows[2]]
    assert load(tmp_path / "a.db", last=1) == rows[2:]
    recorder.close()
    recorder.close()
    assert recorder.written == 3
    assert not recorder.add(row(3))
    assert recorder.dropped == 1


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.touch(0o644)
    recorder = Recorder(path)
    recorder.add(row())
    recorder.flush()
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == {"a.db": 0o600, "a.db-wal": 0o600, "a.db-shm": 0o600}
    recorder.close()


def test_the_oldest_rows_go_first_by_number(tmp_path: Path) -> None:
    write(tmp_path / "a.db", range(25), Bounds(10, 10**7))
    assert ids(tmp_path / "a.db") == [f"request-{number}" for number in range(15, 25)]


def test_the_oldest_rows_go_first_by_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    for start in range(0, 400, 20):
        write(path, range(start, start + 20), Bounds(1000, 65_536))
    kept = ids(path)
    assert 0 < len(kept) < 400
    assert kept == [f"request-{number}" for number in range(400 - len(kept), 400)]
    # One batch may be in it beside what may be kept.
    assert path.stat().st_size < 2 * 65_536


@pytest.mark.parametrize("bounds", [(0, 10**6), (True, 10**6), (1, 100), ("1", 10**6)])
def test_bounds_that_cannot_be_are_refused(bounds: tuple[Any, Any]) -> None:
    with pytest.raises(InvalidValueError, match="max_"):
        Bounds(*bounds)


def test_rows_survive_a_killed_process(tmp_path: Path) -> None:
    """The writer is killed with its log open, right after it said that all is written."""
    code = (
        "import sys, time; sys.path[:0] = sys.argv[2:]\n"
        "from record_rows import row\n"
        "from outpace.record.recorder import Recorder\n"
        "recorder = Recorder(sys.argv[1])\n"
        "[recorder.add(row(number)) for number in range(50)]\n"
        "print(recorder.flush(), flush=True); time.sleep(600)\n"
    )
    path = tmp_path / "a.db"
    places = [str(Path(__file__).parents[1]), *sys.path]
    command = [sys.executable, "-c", code, str(path), *places]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        process.send_signal(signal.SIGKILL)
    assert (tmp_path / "a.db-wal").stat().st_size > 0
    write(path, range(50, 51))
    assert ids(path) == [f"request-{number}" for number in range(51)]


def test_a_damaged_file_is_moved_aside_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.db"
    write(path, range(200))
    content = bytearray(path.read_bytes())
    content[4096:] = os.urandom(len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(RecordError, match="damaged"):
        load(path)
    with caplog.at_level(logging.WARNING, "outpace"):
        recorder = Recorder(path)
    recorder.add(row(7))
    recorder.close()
    assert ids(path) == ["request-7"]
    [aside] = tmp_path.glob("a.db.damaged-*")
    assert aside.read_bytes() == bytes(content)
    assert str(aside) in caplog.text


def test_a_file_that_is_damaged_while_it_is_written_costs_no_new_row(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    table = BoundedTable(path, LAYOUT, Bounds(1000, 10**7))
    table.append([row(0).as_cells()])
    table._connection.execute("DROP TABLE requests")
    table.append([row(1).as_cells()])
    table.close()
    assert ids(path) == ["request-1"]
    assert len(list(tmp_path.glob("a.db.damaged-*"))) >= 1


def test_files_of_others_are_neither_moved_nor_changed(tmp_path: Path) -> None:
    notes, foreign = tmp_path / "notes.txt", tmp_path / "mine.db"
    notes.write_text("my notes")
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    before = {file: file.read_bytes() for file in (notes, foreign)}
    with pytest.raises(InvalidValueError, match="another file"):
        Recorder(notes)
    with pytest.raises(RecordError, match="something else"):
        Recorder(foreign)
    for file in (notes, foreign):
        with pytest.raises(RecordError):
            load(file)
    with pytest.raises(RecordError, match="nothing was deleted"):
        delete_file(notes, LAYOUT)
    with pytest.raises(RecordError, match="nothing was deleted"):
        delete_file(foreign, LAYOUT)
    assert {file: file.read_bytes() for file in before} == before
    assert sorted(tmp_path.iterdir()) == sorted(before)


def test_another_version_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    write(path, range(1))
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(RecordError, match="version 99"):
        Recorder(path)
    with pytest.raises(RecordError, match="version 99"):
        load(path)


@pytest.mark.parametrize("name", ["", "missing/\0", "."])
def test_paths_that_cannot_be_used_are_refused(name: str, tmp_path: Path) -> None:
    path = str(tmp_path / name) if name else ""
    with pytest.raises(InvalidValueError, match="record"):
        open_recorder(path)


def test_what_is_no_ordinary_file_is_left_as_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.db"
    os.mkfifo(pipe, 0o644)
    for path in (pipe, tmp_path):
        mode = path.stat().st_mode
        with pytest.raises(InvalidValueError, match="no ordinary file"):
            Recorder(path)
        assert path.stat().st_mode == mode
    with pytest.raises(RecordError, match="no ordinary file"):
        load(pipe)
    with pytest.raises(RecordError, match="is a directory"):
        load(tmp_path)


def test_texts_need_a_place() -> None:
    assert open_recorder(None) is None
    with pytest.raises(InvalidValueError, match="record=PATH"):
        open_recorder(None, keep_text=True)


def test_a_missing_record_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no such file"):
        load(tmp_path / "none.db")


def test_a_full_queue_drops_rows_and_counts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk is as slow as can be: it stands still until all rows have been added."""
    go_on = threading.Event()
    append = BoundedTable.append

    def slow(self: BoundedTable, rows: Any) -> None:
        go_on.wait(60)
        append(self, rows)

    monkeypatch.setattr(BoundedTable, "append", slow)
    recorder = Recorder(tmp_path / "a.db", queue_size=3)
    recorder.add(row(0))
    while not recorder._queue.empty():  # until the writer has it in its hands
        pass
    taken = [recorder.add(row(number)) for number in range(1, 10)]
    go_on.set()
    with caplog.at_level(logging.WARNING, "outpace"):
        recorder.close()
    assert taken == [True] * 3 + [False] * 6
    assert recorder.dropped == 6
    assert "6 requests were not recorded" in caplog.text
    assert ids(tmp_path / "a.db") == [f"request-{number}" for number in range(4)]


def test_a_failing_disk_is_reported_once_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    full = RecordError("a.db: cannot be written: disk is full")

    def fail(self: BoundedTable, rows: Any) -> None:
        raise full

    recorder = Recorder(tmp_path / "a.db")
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "outpace"):
        patch.setattr(BoundedTable, "append", fail)
        for number in range(3):
            recorder.add(row(number))
            assert not recorder.flush()
    assert recorder.dropped == 3
    assert caplog.text.count("disk is full") == 1
    recorder.add(row(3))
    assert recorder.flush()
    recorder.close()
    assert ids(tmp_path / "a.db") == ["request-3"]


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_what_is_no_number_is_refused(word: str) -> None:
    cells = row().as_cells()
    at = COLUMNS.index("times")
    cells[at] = cells[at].replace('"clean_steps":10', f'"clean_steps":{word}')
    with pytest.raises(ValueError, match=word):
        from_cells(tuple(cells))


def test_a_line_that_is_not_whole_is_refused() -> None:
    cells = tuple(row().as_cells())
    assert from_cells(cells) == row()
    for name in ("drafts", "times", "decisions"):
        broken = list(cells)
        broken[COLUMNS.index(name)] = '[{"x": 1}]'
        with pytest.raises(ValueError, match="not whole"):
            from_cells(tuple(broken))


def test_deleting_takes_the_log_along(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "a.db")
    recorder.add(row())
    recorder.flush()
    assert delete_file(tmp_path / "a.db", LAYOUT) > 0
    assert list(tmp_path.iterdir()) == []
    recorder.close()


@pytest.mark.parametrize("change", ["deleted", "moved", "replaced", "folder"])
def test_a_file_that_goes_away_while_it_is_written_is_begun_anew(
    change: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "folder" / "a.db"
    write(tmp_path / "other.db", [100])
    recorder = Recorder(path)
    recorder.add(row(0))
    assert recorder.flush()
    match change:
        case "deleted":
            path.unlink()
        case "moved":
            path.rename(tmp_path / "kept.db")
        case "replaced":
            (tmp_path / "other.db").rename(path)
        case "folder":
            shutil.rmtree(path.parent)
    with caplog.at_level(logging.WARNING, "outpace"):
        for number in (1, 2):
            recorder.add(row(number))
            assert recorder.flush()
    recorder.close()
    before = ["request-100"] if change == "replaced" else []
    assert ids(path) == [*before, "request-1", "request-2"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert caplog.text.count("deleted, moved or replaced") == 1
    if change == "moved":  # with what was still in its log
        assert ids(tmp_path / "kept.db") == ["request-0"]


def test_another_program_s_file_in_its_place_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.db"
    recorder = Recorder(path)
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()
    before = path.read_bytes()
    with caplog.at_level(logging.WARNING, "outpace"):
        for number in range(3):
            recorder.add(row(number))
            assert not recorder.flush()
    assert path.read_bytes() == before
    assert caplog.text.count("something else") == 1
    path.unlink()
    recorder.add(row(3))
    assert recorder.flush()
    recorder.close()
    assert ids(path) == ["request-3"]
