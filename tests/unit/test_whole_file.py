"""Files that are there whole or not at all."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from outpace.whole_file import appearing, write_whole


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    with appearing(file) as beside:
        beside.write_text("half")
        assert not file.exists()
        beside.write_text("whole")
    assert file.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("error", [OSError("no room"), KeyboardInterrupt()])
def test_what_goes_wrong_leaves_what_was_there(tmp_path: Path, error: BaseException) -> None:
    file = tmp_path / "words.txt"
    file.write_text("before")

    def go_wrong() -> None:
        with appearing(file) as beside:
            beside.write_text("half")
            raise error

    with pytest.raises(type(error)):
        go_wrong()
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]


def test_two_writers_do_not_meet(tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    with appearing(file) as one, appearing(file) as other:
        one.write_text("one")
        other.write_text("other")
    assert file.read_text() == "one"  # the outer one ends last
    assert list(tmp_path.iterdir()) == [file]


def test_what_is_written_as_a_text_is_its_owners(tmp_path: Path) -> None:
    file = tmp_path / "new" / "secret.json"
    write_whole(file, "äö")
    assert file.read_text("utf-8") == "äö"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
