"""Every benchmark can be started: what it imports is still there."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

BENCHMARKS = sorted((Path(__file__).parents[2] / "benchmarks").glob("*.py"))


def test_there_are_some() -> None:
    assert len(BENCHMARKS) > 10


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: path.stem)
def test_can_be_started(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(path.parent)
    assert runpy.run_path(str(path), run_name="loaded")["__doc__"]
