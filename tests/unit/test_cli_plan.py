from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path
from typing import Any

import pytest

from outpace.cli import run
from outpace.plan.find import model_names
from outpace.plan.hardware import hardware_names
from outpace.plan.measured import HostWork, MeasuredSteps, load, measured_setting
from outpace.plan.mix import Mix, RequestType, read_mix
from outpace.plan.steps import Shape


def plan(*arguments: str) -> int:
    return run(["plan", *arguments])


def planned(capsys: Any, *arguments: str) -> dict[str, Any]:
    assert plan(*arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def test_the_tables_and_the_findings_are_printed(capsys: Any) -> None:
    line = "--rate 20 --latency-target 25 --mix chat=.6:alpha=.65 --mix code=.4:alpha=.8/.7"
    assert plan(*line.split()) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "llama-3.1-8b (bf16) with llama-3.2-1b (bf16) on NVIDIA H100 SXM" in out
    assert "step overhead 0.5 ms" in out
    for words in ("target weights", "largest batch", "stops paying at", "0.8/0.7", "replicas for"):
        assert words in out
    assert re.search(r"• At batch 1, k = \d is best: ", out)
    assert re.search(r"replicas \d+ without speculation, \d+ with speculation", out)


def test_json_has_what_is_shown_and_the_assumptions(capsys: Any) -> None:
    found = planned(capsys, "--target", "mixtral-8x7b", "--draft", "mistral-7b", "--devices", "2")
    assert found["hardware"]["devices"] == 2
    assert found["assumptions"]["bandwidth_efficiency"] == 0.85
    assert found["target"]["experts"] == {
        "count": 8,
        "active": 2,
        "inner": 14336,
        "shared_inner": 0,
    }
    assert len(found["at_batches"][0]["speedups"]) == found["max_k"] + 1
    parts = found["memory_with"]
    assert sum(parts.values()) == pytest.approx(found["hardware"]["memory"], rel=1e-9)
    assert (
        found["draft"]["weights"] == 7_241_465_856 + 2 * 768 * 4096
        or found["draft"]["weights"] > 7e9
    )


def test_typed_in_hardware(capsys: Any) -> None:
    line = "--target demo --draft ngram --bandwidth 50 --compute 1 --memory 16 --precision fp32"
    found = planned(capsys, *line.split())
    assert found["hardware"]["name"] == "typed in"
    assert found["hardware"]["bandwidth"] == 50e9
    assert found["draft"] is None


def test_the_page_stands_alone_and_shows_the_findings(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "plan.html"
    found = planned(capsys, "--html", str(file), "--rate", "5")
    text = file.read_text("utf-8")
    assert text.count("<svg") >= 4
    for outside in ("http:", "https:", "<script", "@import", "url("):
        assert outside not in text
    for finding in found["findings"]:
        assert escape(finding) in text
    assert f"{found['memory_with']['target_weights'] / 2**30:.1f}" in text


def test_names_are_listed(capsys: Any) -> None:
    assert plan("--names") == 0
    out = capsys.readouterr().out
    for name in (*model_names(), *hardware_names()):
        assert name in out


def test_a_mix_from_a_file(tmp_path: Path) -> None:
    toml, as_json = tmp_path / "mix.toml", tmp_path / "mix.json"
    toml.write_text("[chat]\nshare = 3\nalpha = 0.6\n[code]\nshare = 1\nalpha = [0.9, 0.8]\n")
    entry = {"share": 3, "alpha": 0.6}
    as_json.write_text(json.dumps({"chat": entry, "code": {"alpha": [0.9, 0.8]}}))
    mix = read_mix([str(toml)])
    assert mix == read_mix([str(as_json)])
    assert mix.types == (
        RequestType("chat", 0.75, (0.6,)),
        RequestType("code", 0.25, (0.9, 0.8)),
    )
    as_json.write_text(json.dumps([{"name": "chat", **entry}]))
    assert read_mix([str(as_json)]).types == (RequestType("chat", 1.0, (0.6,)),)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--target llama-3.1-9b", "target = 'llama-3.1-9b': did you mean llama-3.1-8b"),
        ("--draft nobody", "draft = 'nobody': "),
        ("--draft eagle:x", "draft = 'eagle:x': write eagle or eagle:VOCABULARY"),
        ("--hardware h100", "hardware = 'h100': did you mean "),
        ("--hardware epyc-9654", "memory = None: AMD EPYC 9654 (96 cores, Zen 4) has as much as"),
        ("--bandwidth 0", "bandwidth = 0.0: must be a number above 0"),
        ("--bandwidth nan", "bandwidth = nan: must be a number above 0"),
        ("--compute -1", "compute = -1.0: must be a number above 0"),
        ("--memory 0", "memory = 0.0: must be a number above 0"),
        ("--memory 10", "llama-3.1-8b: weights and one sequence of 2048 tokens need 15.2 GiB"),
        ("--target llama-3.1-70b", "llama-3.1-70b: weights and one sequence"),
        ("--devices 0", "devices = 0: must be an integer from 1 to 1024"),
        ("--context 0", "context = 0: must be an integer from 1"),
        ("--target llama-3-8b --context 9000", "context = 9000: the target llama-3-8b has a"),
        ("--max-k 0", "max_k = 0: must be an integer from 1 to 32"),
        ("--precision int3", "precision = 'int3': choose bf16"),
        ("--draft-precision q4", "draft_precision = 'q4': choose bf16"),
        ("--cache-precision int4", "cache_precision = 'int4': choose one of bf16"),
        ("--rate 0", "rate = 0.0: must be requests a second, above 0"),
        ("--rate nan", "rate = nan: must be requests a second, above 0"),
        ("--latency-target 0", "latency_target = 0.0: must be a time"),
        ("--utilization 1.5", "utilization = 1.5: must be a number above 0 and at most 1"),
        ("--bandwidth-efficiency 0", "bandwidth_efficiency = 0.0: must be a number above 0"),
        ("--layer-overhead -1", "layer_overhead = -1e-06: must be a time"),
        ("--reserve 1", "reserve = 1.0: must be a number from 0 to 0.9"),
        ("--mix chat", "mix = 'chat': write NAME=SHARE:alpha=A"),
        ("--mix chat=1", "mix = 'chat=1': write NAME=SHARE:alpha=A"),
        ("--mix chat=1:alpha=x", "mix = 'chat=1:alpha=x': write NAME=SHARE:alpha=A"),
        ("--mix chat=1:prompt=5", "mix chat: alpha = None: give a number from 0 to 1"),
        ("--mix chat=1:alpha=1.2", "mix chat: alpha = 1.2: must be a number from 0 to 1"),
        ("--mix chat=1:alpha=nan", "mix chat: alpha = nan: must be a number from 0 to 1"),
        ("--mix chat=0:alpha=.5", "mix chat: share = 0.0: must be a number above 0"),
        ("--mix chat=1:alpha=.5,beta=1", "mix chat = 'beta': choose from share, alpha"),
        ("--mix chat=1:alpha=.5,output=0", "mix chat: output = 0: must be an integer from 1"),
        ("--mix a=1:alpha=.5 --mix a=1:alpha=.6", "mix = 'a': is there twice"),
        ("--mix none.toml", "mix = 'none.toml': cannot be read: No such file"),
        ("--html /nowhere/plan.html", "html = '/nowhere/plan.html': cannot be written: No such"),
        ("--hardware this", "target = 'llama-3.1-8b': is a shape without weights"),
        ("--hardware this --devices 2", "devices = 2: does not go with --hardware this"),
    ],
)
def test_bad_input_is_one_line_with_a_way_out(line: str, message: str, capsys: Any) -> None:
    assert plan(*line.split()) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {message}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("mix.toml", "[chat", "cannot be read"),
        ("mix.json", "3", "must hold a table for each kind"),
        ("mix.json", '{"chat": 3}', "must hold a table for each kind"),
        ("mix.json", "{}", "needs at least one kind"),
        ("mix.json", '{"chat": {"alpha": "high"}}', "give a number from 0 to 1, or a list"),
        ("mix.json", '{"chat": {"alpha": []}}', "is missing"),
        ("mix.json", '{"chat": {"alpha": 0.5, "share": "x"}}', "must be a number above 0"),
        ("mix.json", '{"chat": {"alpha": 0.5, "prompt": 1.5}}', "must be an integer from 1"),
    ],
)
def test_a_mix_file_that_cannot_be_used(
    name: str, text: str, message: str, tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / name).write_text(text)
    assert plan("--mix", str(tmp_path / name)) == 1
    assert message in capsys.readouterr().err


def test_a_latency_target_that_nothing_meets_is_said(capsys: Any) -> None:
    found = planned(capsys, "--latency-target", "0.1", "--rate", "3")
    assert found["plain"] is None
    assert found["cost_ratio"] is None
    assert "Neither way meets the latency target of 0.1 ms a token." in found["findings"]


def test_measured_batches_have_the_shape_that_was_asked_for(tiny_folder: Path) -> None:
    llm = load(str(tiny_folder), "float32", 4096, 1)
    steps = MeasuredSteps(llm.engine.runner, HostWork(1.0, 0.5), repeats=1)
    batch = steps._batch(Shape(3, 4, 10, logits=2))
    assert batch.num_rows == 12
    assert batch.logits_rows == [2, 3, 6, 7, 10, 11]
    assert [len(view.slots) for view in batch.views] == [14, 14, 14]
    used = [slot for view in batch.views for slot in view.slots]
    assert len(set(used)) == 42
    assert max(used) < llm.engine.runner.pool.num_slots
    # The host's work is part of a step: 1 s, and half a second for each of 12 rows.
    assert steps(Shape(3, 4, 10)) > 7
    assert list(steps.known) == [Shape(3, 4, 10)]


def test_a_plan_for_this_machine(tiny_folder: Path, capsys: Any) -> None:
    """Two tiny models; whatever is measured, the plan must hang together."""
    mix = Mix.of([RequestType("all", 1.0, (0.7,))])
    folder = str(tiny_folder)
    setting = measured_setting(
        folder, folder, mix, 20, max_k=2, dtype="float32", batches=(1, 2), threads=1
    )
    assert setting.pair.step_seconds(2, 1) > setting.pair.target(Shape(2, 2, 20))
    line = f"--hardware this --target {folder} --draft ngram --context 20 --max-k 1 --threads 1"
    found = planned(capsys, *line.split())
    assert found["hardware"]["step_times"] == "measured"
    assert [row["batch"] for row in found["at_batches"]] == [1, 2, 4, 8, 16, 32]
    assert all(row["speedups"][0] == 1 for row in found["at_batches"])
