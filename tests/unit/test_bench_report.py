"""Files and pages of runs: the page comes from the file alone and shows nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from outpace.bench.machine import machine_facts, processor_name
from outpace.bench.report import make_page
from outpace.bench.result import ResultError, load, save
from outpace.bench.words import cautions, exactness, short
from outpace.errors import InvalidValueError

from bench_records import record, result, run


def loads() -> list[Any]:
    return [
        record(f"qa-{i}", policy, seconds * n, arrival=name)
        for name, n in (("one", 1), ("at-once:4", 3))
        for policy, seconds in (("off", 1.0), ("ngram:k=4", 0.7))
        for i in range(3)
    ]


def test_the_page_comes_from_the_file_alone(tmp_path: Path) -> None:
    made = result(run(2.0) + loads())
    file = str(tmp_path / "run.json")
    save(made, file)
    assert make_page(load(file)) == make_page(made)
    assert json.loads(json.dumps(load(file).as_dict())) == json.loads(Path(file).read_text("utf-8"))


def test_a_changed_figure_of_the_file_is_a_changed_page(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    save(result(run(2.0)), str(file))
    value = json.loads(file.read_text("utf-8"))
    for row in value["figures"]:
        if row["policy"] == "ngram:k=4" and row["task"] == "code":
            row["speedup"]["value"] = 7.77
            row["acceptance_length"] = 6.66
            row["alpha"] = 0.55
    file.write_text(json.dumps(value), "utf-8")
    page = make_page(load(str(file)))
    assert page.count("7.77") >= 2
    assert page.count("6.66") >= 2
    assert "0.55" in page


def test_a_page_has_all_its_charts() -> None:
    page = make_page(result(run(2.0) + loads()))
    titles = re.findall(r"<figcaption>([^<]*)</figcaption>", page)
    assert titles == [
        "Speed-up of whole answers",
        "Speed-up after the first token",
        "Speed-up of single prompts",
        "Predicted against measured speed-up",
        "Acceptance by position",
        "Tokens a target step",
        "Latency against load (at-once)",
        "Slowest answers against load (at-once)",
        "Throughput against load (at-once)",
        "Seconds an answer",
    ]
    assert not re.search(r"<script|https?://|src=|url\(", page)
    assert "nan" not in page.lower().replace("nano", "")


def test_a_page_of_almost_nothing() -> None:
    assert "<h1>" in make_page(result([]))
    server = result(
        [record("qa-1", "server", speculation=None, identical=None, tokens=None)],
        target={"kind": "server", "model": "m"},
    )
    assert "not compared" in make_page(server)


def test_a_reader_is_told_first_what_is_wrong() -> None:
    bad = run(2.0, drift=0.2)
    bad[1] = record("chat-0", "ngram:k=4", identical=False)
    made = result(bad, "interrupted")
    told = cautions(made)
    assert "partial: it was stopped (interrupted)" in told[0]
    assert "1 of 18 answers of ngram:k=4 (one) differ" in told[1]
    assert "the machine was busy" in told[2]
    page = make_page(made)
    assert all(text.split(".")[0] in page for text in told)
    assert exactness(made) == "the tokens of 1 of 18 answers DIFFER from plain decoding"
    assert exactness(result(run(2.0))) == (
        "the tokens of all 18 answers are those of plain decoding"
    )


def test_partial_is_marked_in_the_file() -> None:
    assert result(run(2.0), "interrupted").as_dict()["partial"] is True
    assert result(run(2.0)).as_dict()["partial"] is False


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a result of outpace bench"),
        ('{"format": "other"}', "is not a result of outpace bench"),
        ('{"format": "outpace-bench", "format_version": 2}', "format version 2"),
        ('{"format": "outpace-bench", "format_version": 1}', "is damaged"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "file.json"
    file.write_text(text, "utf-8")
    with pytest.raises(ResultError, match=reason):
        load(str(file))


def test_a_damaged_request_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    value = result(run(2.0)).as_dict()
    value["requests"][3]["total_seconds"] = "soon"
    file.write_text(json.dumps(value), "utf-8")
    with pytest.raises(ResultError, match="is damaged"):
        load(str(file))


def test_files_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="cannot be read"):
        load(str(tmp_path / "none.json"))
    with pytest.raises(InvalidValueError, match="cannot be written"):
        save(result([]), str(tmp_path / "no" / "where.json"))


def test_names_are_short_without_the_folders_of_draft_models() -> None:
    assert short("ngram:k=4") == "ngram:k=4"
    assert short("ngram+model:/a/b/small.gguf:k=auto") == "ngram+model:small.gguf:k=auto"


def test_the_machine_says_what_it_is(tmp_path: Path) -> None:
    facts = machine_facts()
    assert facts["cores"] >= 1
    info = tmp_path / "cpuinfo"
    info.write_text("processor : 0\nmodel name\t: Abacus 9 @ 1 Hz\n", "utf-8")
    assert processor_name(info) == "Abacus 9 @ 1 Hz"
    assert processor_name(tmp_path / "none")
