"""That deleting a capture deletes a capture, and nothing that does not show that it is one."""

from __future__ import annotations

import io
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from outpace.cli import run
from outpace.record import bounded
from outpace.record.bounded import RecordError
from outpace.record.capture import Capture, delete_capture
from outpace.request import Request, SamplingParams


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    path = tmp_path / "a.db"
    writer = Capture(path)
    for number in range(40):
        request = Request(str(number), tuple(range(300)), SamplingParams(), request_type="code")
        writer.add_request(request, [7, number], "demo")
    writer.close()
    return path


def refused(path: Path, message: str) -> None:
    before = path.read_bytes()
    with pytest.raises(RecordError, match=message) as caught:
        delete_capture(path)
    assert str(caught.value).endswith("nothing was deleted")
    assert path.read_bytes() == before


def test_a_database_that_is_locked_is_not_taken_for_a_damaged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounded, "_WAIT_SECONDS", 0.01)
    path = tmp_path / "mine.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE mine (x)")
        connection.execute("BEGIN EXCLUSIVE")
        refused(path, "locked")


def test_a_database_that_cannot_be_opened_is_not_taken_for_a_damaged_one(
    capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> sqlite3.Connection:
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr("outpace.record.deletion.read_only", fail)
    refused(capture, "unable to open")


@pytest.mark.parametrize("content", [b"", b"my notes\n" * 100, bytes(200), b"SQLite format 3\0"])
@pytest.mark.parametrize("name", ["notes.db", "notes.sqlite", "notes.record", "notes"])
def test_what_does_not_show_that_it_was_a_capture_stays(
    name: str, content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    refused(path, "capture")


@pytest.mark.parametrize("kept", [100, 4096, 5000])
def test_a_damaged_capture_may_be_deleted(kept: int, capture: Path) -> None:
    content = capture.read_bytes()
    capture.write_bytes(content[:kept] + os.urandom(len(content) - kept))
    assert delete_capture(capture) >= len(content)
    assert list(capture.parent.iterdir()) == []


def test_a_capture_without_its_magic_shows_its_number(capture: Path) -> None:
    capture.write_bytes(bytes(16) + capture.read_bytes()[16:])
    assert delete_capture(capture) > 0


def test_its_number_is_in_the_file_while_it_is_written(tmp_path: Path) -> None:
    writer = Capture(tmp_path / "a.db")
    assert (tmp_path / "a.db").read_bytes()[68:72] == b"OPCA"
    writer.close()


def test_what_is_no_file_is_called_what_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe.db"
    os.mkfifo(pipe)
    for path, words in (
        (tmp_path, "is a directory"),
        (pipe, "is no ordinary file"),
        (tmp_path / "none.db", "there is no such file"),
        (tmp_path / ("x" * 300), "File name too long"),
    ):
        assert run(["align", "delete", str(path)]) == 1  # before anything is asked
        told = capsys.readouterr().err
        assert words in told
        assert "nothing was deleted" in told
        assert "Delete" not in told


@pytest.mark.parametrize("answer", [b"", b"n\n", b"\n", b"\xff\n"])
def test_without_a_yes_it_stays(
    answer: bytes,
    capture: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(answer), "utf-8"))
    assert run(["align", "delete", str(capture)]) == 1
    told = capsys.readouterr().err
    assert "not deleted" in told
    assert "defect" not in told
    assert capture.exists()


def test_with_a_yes_it_goes(
    capture: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert run(["align", "delete", str(capture)]) == 0
    assert "deleted" in capsys.readouterr().err
    assert not capture.exists()
