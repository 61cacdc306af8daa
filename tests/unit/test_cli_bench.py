"""The commands around a run; runs themselves are in the end-to-end tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from outpace.bench.result import Result, load, save
from outpace.cli import bench_run, loading, run

from bench_records import record, result
from bench_records import run as made_run


@pytest.fixture(autouse=True)
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_nothing(*_: Any) -> None:
        raise AssertionError("a model was loaded before everything was checked")

    monkeypatch.setattr(loading, "load", load_nothing)


def pretend(monkeypatch: pytest.MonkeyPatch, made: Result) -> None:
    monkeypatch.setattr(bench_run, "run_local", lambda *_: made)


def saved(folder: Path, name: str, made: Result) -> str:
    save(made, str(folder / name))
    return str(folder / name)


def test_a_run_is_shown_saved_and_drawn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    made = result(made_run(2.0))
    pretend(monkeypatch, made)
    file, page = tmp_path / "run.json", tmp_path / "run.html"
    assert run(["bench", "--save", str(file), "--page", str(page)]) == 0
    out, err = capsys.readouterr()
    assert "2.00 (2.00-2.00)" in out
    assert out.endswith("The tokens of all 18 answers are those of plain decoding.\n")
    assert err == f"wrote {file}\nwrote {page}\n"
    assert load(str(file)).records == made.records
    again = tmp_path / "again.html"
    assert run(["bench", "report", str(file), "-o", str(again)]) == 0
    assert again.read_text("utf-8") == page.read_text("utf-8")


def test_json_is_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    pretend(monkeypatch, result(made_run(2.0)))
    file = tmp_path / "run.json"
    assert run(["bench", "--json", "--save", str(file)]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(file.read_text("utf-8"))


def test_the_exit_status_says_what_a_run_deserves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any
) -> None:
    file = str(tmp_path / "run.json")
    pretend(monkeypatch, result(made_run(2.0), "interrupted"))
    assert run(["bench", "--save", file]) == 130
    assert load(file).partial == "interrupted"
    assert "This run is partial" in capsys.readouterr().out
    pretend(monkeypatch, result(made_run(2.0), "http://x: is gone"))
    assert run(["bench"]) == 1
    assert capsys.readouterr().err.endswith("error: http://x: is gone\n")
    lie = record("chat-0", "ngram:k=4", identical=False)
    pretend(monkeypatch, result([*made_run(2.0), lie]))
    assert run(["bench"]) == 1
    assert "1 of 19 answers DIFFER" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (["--policy", "gram"], "drafter = 'gram'"),
        (["--policy", "off:k=2"], "policy = 'off:k=2'"),
        (["--arrival", "two"], "arrival = 'two'"),
        (["--task", "cooking"], "task = 'cooking': the workload has code, "),
        (["--repeats", "0"], "repeats = 0"),
        (["--warmup", "-1"], "warmup = -1"),
        (["--per-task", "-1"], "per_task = -1"),
        (["--max-tokens", "0"], "max_tokens = 0"),
        (["--workload", "./none.jsonl"], "workload ./none.jsonl: cannot be read"),
        (["--save", "/no/such/folder/x"], "output = '/no/such/folder/x': cannot be written"),
        (["--verification", "rejection"], "verification = 'rejection'"),
        (["--url", "nowhere"], "url = 'nowhere'"),
        (["--url", "http://a", "--policy", "ngram"], "a server's policy is its own"),
        (["--url", "http://a", "--model", "x"], "options of the model are for this process"),
        (["--url", "http://a", "--timeout", "0"], "timeout = 0.0"),
    ],
)
def test_bad_input_is_one_line_before_anything_is_loaded(
    capsys: Any, options: list[str], wanted: str
) -> None:
    assert run(["bench", *options]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert wanted in err
    assert err.count("\n") == 1
    assert "defect" not in err


def test_options_that_would_say_the_same_twice_are_not_offered(capsys: Any) -> None:
    assert run(["bench", "--drafter", "ngram"]) == 2
    assert run(["bench", "-k", "3"]) == 2
    assert "--drafter" in capsys.readouterr().err


def test_a_verdict_and_its_exit_status(tmp_path: Path, capsys: Any) -> None:
    before = saved(tmp_path, "a.json", result(made_run(2.5)))
    after = saved(tmp_path, "b.json", result(made_run(2.0), "interrupted"))
    assert run(["bench", "compare", before, after]) == 0
    out = capsys.readouterr().out
    assert out.count("slower") == 3
    assert out.count("no difference shown") == 3
    assert "The second run is partial." in out
    assert run(["bench", "compare", before, after, "--fail-if-slower", "--json"]) == 1
    value = json.loads(capsys.readouterr().out)
    assert value["slower"] is True
    assert value["partial"] == [False, True]
    assert [v["ratio"] for v in value["verdicts"]] == pytest.approx([1, 1, 1, 0.8, 0.8, 0.8])
    assert run(["bench", "compare", after, before, "--fail-if-slower"]) == 0


def test_files_that_are_not_comparable(tmp_path: Path, capsys: Any) -> None:
    one = saved(tmp_path, "a.json", result(made_run(2.0)))
    two = saved(tmp_path, "b.json", result(made_run(2.0), target={"model": "other"}))
    assert run(["bench", "compare", one, two]) == 1
    assert "not comparable: the first run measured the model demo" in capsys.readouterr().err
    assert run(["bench", "compare", one, str(tmp_path / "c.json")]) == 1
    assert "cannot be read" in capsys.readouterr().err
    assert run(["bench", "compare", one, one, "--margin", "-1"]) == 1
    assert "margin = -1.0" in capsys.readouterr().err
