"""``outpace train`` from prompts to drafters that draft, on a tiny target."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from outpace import LLM, SamplingParams
from outpace.cli import run
from outpace.train.capture import _Run
from outpace.train.entries import read_all
from outpace.train.store import Store

from train_cases import captured, tiny_target, write_prompts


def _drafts(target: Path, drafter: str) -> None:
    """It drafts, and no token changes."""
    llm = LLM(target, drafter, num_speculative_tokens=3, dtype="fp32", threads=1)
    prompts = [[5, 6, 7], [30, 31, 32, 33]]
    params = SamplingParams(max_tokens=30, ignore_eos=True)
    drafted = llm.generate(prompts, params)
    plain = llm.generate(prompts, params, drafter="none")
    assert [r.token_ids for r in drafted] == [r.token_ids for r in plain]
    assert all(r.speculative.drafted > 0 for r in drafted)


def _learned(line: str, steps: int, capsys: Any) -> list[dict[str, Any]]:
    """The curve of a run of one step that is then resumed."""
    bounds = "--batch-tokens 512 --look-every 1000 --held-out-tokens 500 --threads 1 --json"
    curves = []
    for more in ("--steps 1", f"--steps {steps} --resume"):
        assert run(f"{line} {bounds} {more}".split()) == 0
        state = json.loads(capsys.readouterr().out)
        curves.append(state["curve"][-1])
    assert state["step"] == steps
    return curves


def test_capture_resumes_and_keeps_what_the_target_said(tmp_path: Path, capsys: Any) -> None:
    target, folder = captured(tmp_path, "--tokens", "600")
    store = Store.open(folder)
    first = {e.key: e for e in store}
    assert 0 < len(first) < 40
    captured(tmp_path)
    whole = {e.key: e for e in Store.open(folder)}
    assert len(whole) > len(first)
    assert all(whole[key].token_ids.equal(e.token_ids) for key, e in first.items())
    assert {e.kind for e in whole.values()} == {"chat", "code"}
    for example in whole.values():
        assert example.taps is not None
        assert example.last is not None
        assert example.taps.shape == (len(example.token_ids), 2 * 64)
        assert example.last.shape == (len(example.token_ids), 64)
    first_key = next(iter(first))
    example = first[first_key]
    prompt = example.token_ids[: example.num_prompt].tolist()
    said = example.token_ids[example.num_prompt :].tolist()
    llm = LLM(target, "none", threads=1, dtype="bf16")
    # It was the first entry, and so a greedy one.
    if first_key == read_all([tmp_path / "prompts.jsonl"])[0].key:
        [again] = llm.generate([prompt], SamplingParams(max_tokens=len(said)))
        assert list(again.token_ids) == said
    capsys.readouterr()


def test_ctrl_c_in_a_capture_saves_what_was_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    finished = _Run._finished
    count = 0

    def interrupted(self: Any, *arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count == 6:
            raise KeyboardInterrupt
        return finished(self, *arguments)

    monkeypatch.setattr(_Run, "_finished", interrupted)
    target, prompts = tiny_target(tmp_path / "target"), write_prompts(tmp_path / "p.jsonl")
    line = f"train capture {prompts} -o {tmp_path / 's'} --model {target} --batch 4 --threads 1"
    assert run(line.split()) == 130
    assert len(Store.open(tmp_path / "s").keys()) == 5
    capsys.readouterr()


@pytest.mark.parametrize("states", ["--states", "--no-states"])
def test_eagle_learns_and_drafts(tmp_path: Path, states: str, capsys: Any) -> None:
    target, store = captured(tmp_path, states)
    out = tmp_path / "eagle"
    line = f"train eagle {store} -o {out} --vocabulary 200"
    if states == "--no-states":
        # Nothing was listened to, so there is nothing for a head to see.
        assert run(line.split()) == 1
        assert "was captured without tapped layers" in capsys.readouterr().err
        return
    before, after = _learned(line, 30, capsys)
    assert after["loss"] < 0.9 * before["loss"]
    assert after["overlap"][0] > before["overlap"][0]
    _drafts(target, f"eagle:{out / 'head'}")
    check = f"train eval eagle:{out}/start eagle:{out}/head --model {target} --per-task 1 --json"
    assert run(f"{check} --max-tokens 8 --threads 1 --task chat".split()) == 0
    found = json.loads(capsys.readouterr().out)
    assert found[f"eagle:{out}/head"]["all"]["requests"] == 1
    assert found[f"eagle:{out}/head"]["all"]["alpha_per_position"]


@pytest.mark.parametrize("states", ["--states", "--no-states"])
def test_medusa_learns_and_drafts(tmp_path: Path, states: str, capsys: Any) -> None:
    target, store = captured(tmp_path, states)
    out = tmp_path / "medusa"
    before, after = _learned(f"train medusa {store} -o {out} --heads 2", 30, capsys)
    assert len(after["accuracy"]) == 2
    assert after["loss"] < before["loss"]
    assert json.loads((out / "head" / "config.json").read_text())["tree_accuracies"]
    _drafts(target, f"medusa:{out / 'head'}")


def test_draft_learns_and_drafts(tmp_path: Path, capsys: Any) -> None:
    target, store = captured(tmp_path)
    out = tmp_path / "draft"
    shape = "hidden_size=64 intermediate_size=64 num_attention_heads=2 num_key_value_heads=2"
    fields = " ".join(f"--config {pair}" for pair in [*shape.split(), "head_dim=32"])
    before, after = _learned(f"train draft {store} -o {out} {fields}", 40, capsys)
    assert after["loss"] < 0.9 * before["loss"]
    _drafts(target, f"model:{out / 'head'}")
    line = f"train draft {store} -o {tmp_path / 'more'} --start {out / 'head'}"
    further, _ = _learned(line, 2, capsys)
    assert further["loss"] < before["loss"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("capture {tmp}/none.jsonl -o {tmp}/s --model {tmp}/target", "cannot be read"),
        ("capture {tmp}/empty.txt -o {tmp}/s --model {tmp}/target", "is empty"),
        ("capture {tmp}/latin.txt -o {tmp}/s --model {tmp}/target", "is not UTF-8"),
        ("capture {tmp}/short.txt -o {tmp}/s --model {tmp}/target", "too short"),
        ("capture {tmp}/p.jsonl -o {tmp}/s --model {tmp}/target --taps 9", "give auto, none"),
        ("capture {tmp}/p.jsonl -o {tmp}/s --temperature -1", "temperature = -1.0"),
        ("eagle {tmp}/none -o {tmp}/o", "no store of examples"),
        ("eagle {tmp}/few -o {tmp}/o --model {tmp}/other", "capture from this target"),
        ("eagle {tmp}/few -o {tmp}/o", "too few; capture more"),
        ("eagle {tmp}/few -o {tmp}/o --loss l2", "loss = 'l2': choose one of"),
        ("eagle {tmp}/few -o {tmp}/o --minutes 0", "minutes = 0.0"),
        ("draft {tmp}/few -o {tmp}/o --config hidden_size", "write FIELD=NUMBER"),
        ("prompts -o {tmp}/none/x.jsonl", "cannot be written"),
        ("prompts -o {tmp}/x.jsonl --about {tmp}/few", "capture longer ones"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, line: str, message: str, capsys: Any) -> None:
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9 is not UTF-8 as it stands here")
    (tmp_path / "short.txt").write_text("short")
    captured(tmp_path, "--tokens", "100", name="few")
    write_prompts(tmp_path / "p.jsonl")
    from tiny import write_checkpoint

    write_checkpoint(tmp_path / "other", seed=5, num_hidden_layers=4)
    capsys.readouterr()
    assert run(["train", *line.format(tmp=tmp_path).split()]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.strip().startswith("error: ")


def test_nothing_to_be_judged_by_is_refused_and_no_perfect_score(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    _, store = captured(tmp_path)
    monkeypatch.setattr("outpace.train.recipes.is_held_out", lambda example: False)
    capsys.readouterr()
    assert run(f"train medusa {store} -o {tmp_path / 'heads'}".split()) == 1
    assert "has no entry to be held out" in capsys.readouterr().err
    assert not (tmp_path / "heads" / "head").exists()
