"""Benchmarks of a tiny model: real engines, real tokens; no time is looked at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from outpace.bench.report import make_page
from outpace.bench.result import load
from outpace.cli import run
from outpace.record.recorder import load as load_record

WORK = [
    {"task": "code", "prompt": "a b c a b c a b"},
    {"task": "edit", "prompt": "hello you", "prediction": "hello you hello you"},
    {"task": "edit", "prompt": "one two", "prediction": "one", "max_tokens": 3},
]


@pytest.fixture
def work(tmp_path: Path) -> str:
    file = tmp_path / "work.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in WORK), "utf-8")
    return str(file)


def measured(capsys: Any, folder: Path, work: str, *options: str) -> dict[str, Any]:
    common = ["--model", str(folder), "--dtype", "fp32", "--threads", "1", "--workload", work]
    common += ["--max-tokens", "12", "--ignore-eos", "--warmup", "1", "--repeats", "2"]
    assert run(["bench", *common, "--json", *options]) == 0
    value: dict[str, Any] = json.loads(capsys.readouterr().out)
    return value


def test_every_policy_gives_the_tokens_of_plain_decoding(
    capsys: Any, tiny_folder: Path, work: str
) -> None:
    draft = f"model:{tiny_folder}"
    names = ["off", "ngram:k=4", "auto:k=auto", "prediction:k=3", f"{draft}:k=2"]
    names.append(f"ngram+{draft}:k=auto")
    value = measured(capsys, tiny_folder, work, *(x for n in names for x in ("--policy", n)))
    assert value["policies"] == names
    assert value["partial"] is False
    records = value["requests"]
    assert Counter(r["policy"] for r in records) == dict.fromkeys(names, 6)
    assert all(r["identical"] is True for r in records)
    assert {(r["prompt"], r["tokens"]) for r in records} == {
        ("code-line-1", 12),
        ("edit-line-2", 12),
        ("edit-line-3", 3),
    }
    steps = {n: sum(r["speculation"]["target_steps"] for r in records if r["policy"] == n)
             for n in names}  # fmt: skip
    assert steps["off"] == 2 * 27
    # The draft is the target itself: it is always right, up to the end of the answer.
    assert steps[f"{draft}:k=2"] == 2 * (1 + 4 + 1 + 4 + 1 + 1)
    drafted = {r["policy"] for r in records if r["speculation"]["drafted"]}
    assert "off" not in drafted
    assert {f"{draft}:k=2", f"ngram+{draft}:k=auto"} <= drafted


def test_no_repeat_knows_the_answers_of_the_one_before(
    capsys: Any, tiny_folder: Path, work: str
) -> None:
    # At this temperature nothing in the request itself says how it goes on.
    options = ["--policy", "suffix:k=4", "--max-tokens", "40", "--temperature", "2"]
    value = measured(capsys, tiny_folder, work, *options)
    steps: dict[str, set[int]] = {}
    for record in value["requests"]:
        if record["policy"] == "suffix:k=4":
            steps.setdefault(record["prompt"], set()).add(record["speculation"]["target_steps"])
    assert all(len(some) == 1 for some in steps.values()), steps


def test_arrivals_and_the_page(capsys: Any, tiny_folder: Path, work: str, tmp_path: Path) -> None:
    file = str(tmp_path / "run.json")
    arrivals = ["one", "at-once:2", "at-once:3", "poisson:1000"]
    options = [x for name in arrivals for x in ("--arrival", name)]
    value = measured(capsys, tiny_folder, work, *options, "--policy", "ngram:k=2", "--save", file)
    assert all(r["identical"] is True for r in value["requests"])
    counts = Counter(r["arrival"] for r in value["requests"])
    assert counts == {"one": 12, "at-once:2": 16, "at-once:3": 12, "poisson:1000": 12}
    assert all(r["total_seconds"] > 0 for r in value["requests"])
    page = make_page(load(file))
    assert "Throughput against load (at-once)" in page
    assert f"{counts.total()} requests" in page


def test_ctrl_c_half_way_keeps_what_is_measured(
    tiny_folder: Path, work: str, tmp_path: Path
) -> None:
    file = tmp_path / "run.json"
    options = ["--model", str(tiny_folder), "--threads", "1", "--workload", work, "--warmup", "0"]
    options += ["--repeats", "1000", "--max-tokens", "12", "--save", str(file)]
    # Started by a program that begins to count and interrupts itself after some groups.
    program = (
        "import outpace.bench.run as run, os, signal\n"
        "measure = run.measure\n"
        "def stopping(target, policies, plan, on_round):\n"
        "    rounds = iter(range(7))\n"
        "    def counted():\n"
        "        on_round()\n"
        "        if next(rounds, None) is None:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "    return measure(target, policies, plan, counted)\n"
        "import outpace.cli.bench_run as bench_run\n"
        "bench_run.measure = stopping\n"
        "from outpace.cli import main\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "bench", *options],
        capture_output=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 130, done.stderr.decode()
    assert "partial" in done.stdout.decode()
    kept = load(str(file))
    assert kept.partial == "interrupted"
    assert len(kept.records) == 8


def test_a_prompt_that_does_not_fit_is_refused_before_anything_runs(
    capsys: Any, tiny_folder: Path, work: str
) -> None:
    options = ["--model", str(tiny_folder), "--workload", work, "--max-model-len", "4"]
    assert run(["bench", *options]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "must be shorter than the context of 4 tokens" in err


def test_a_record_has_a_row_for_each_request(
    capsys: Any, tiny_folder: Path, work: str, tmp_path: Path
) -> None:
    file = str(tmp_path / "a.db")
    value = measured(capsys, tiny_folder, work, "--policy", "ngram:k=2", "--record", file)
    rows = load_record(file)
    # One request of the warm-up under each of the two policies.
    assert len(rows) == len(value["requests"]) + 2
    assert Counter(row.request_type for row in rows[2:]) == {"code": 4, "edit": 8}
    for name in ("drafted", "accepted", "target_steps"):
        told = sum(one["speculation"][name] for one in value["requests"])
        kept = "steps" if name == "target_steps" else name
        assert sum(getattr(row.drafts[0], kept) for row in rows[2:]) == told
