"""``outpace align run`` on a tiny model: captured, trained further, judged, offered or not."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from outpace import LLM, SamplingParams
from outpace.align import realign
from outpace.cli import run
from outpace.train.store import Store

from tiny import write_checkpoint
from train_cases import captured

BOUNDS = "--batch-tokens 1024 --look-every 1000 --threads 1 --dtype fp32"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target, a draft of each kind that has hardly learned anything, and captured requests."""
    folder = tmp_path_factory.mktemp("align")
    target, store = captured(folder)
    small = "--steps 1 --batch-tokens 256 --look-every 1000 --threads 1 --held-out-tokens 200"
    shape = [
        f"--config {field}"
        for field in ("hidden_size=64", "intermediate_size=64", "num_attention_heads=2",
                      "num_key_value_heads=2", "head_dim=32")
    ]  # fmt: skip
    for line in (
        f"eagle {store} -o {folder / 'eagle'} --vocabulary 400",
        f"medusa {store} -o {folder / 'medusa'} --heads 2",
        f"draft {store} -o {folder / 'draft'} {' '.join(shape)}",
    ):
        assert run(["train", *f"{line} {small}".split()]) == 0
    spoil(folder / "eagle" / "start" / "model.safetensors", "lm_head")
    llm = LLM(str(target), "none", dtype="fp32", threads=1, capture=folder / "traffic.db")
    prompts = [f"Say {word} {i} times." for i in range(75) for word in ("fox", "sun")]
    params = SamplingParams(max_tokens=30, ignore_eos=True)
    llm.generate(prompts, params, request_type=["a", "b"] * 75)
    assert llm.capture is not None
    llm.capture.close()
    return folder


def spoil(file: Path, name: str) -> None:
    """Random numbers where something was learned: a tiny target is too easy to guess else."""
    generator = torch.Generator().manual_seed(5)
    tensors = load_file(file)
    for key, tensor in tensors.items():
        if name in key:
            noise = torch.randn(tensor.shape, generator=generator)
            tensors[key] = (0.05 * noise).to(tensor.dtype)
    save_file(tensors, file, {"format": "pt"})


def align(made: Path, drafter: str, out: Path, more: str = "") -> list[str]:
    line = f"align run {drafter} --capture {made / 'traffic.db'} -o {out} --model {made}/target"
    return f"{line} {BOUNDS} {more}".split()


@pytest.mark.parametrize("kind", ["eagle", "medusa", "model"])
def test_it_learns_and_is_judged(made: Path, tmp_path: Path, kind: str, capsys: Any) -> None:
    folder = {"model": "draft"}.get(kind, kind)
    old, out = f"{kind}:{made / folder / 'start'}", tmp_path / "new"
    status = run(align(made, old, out, "--steps 40 --json"))
    captured_text = capsys.readouterr()
    assert captured_text.out, captured_text.err
    said = json.loads(captured_text.out)
    assert said["offered"] == (status == 0)
    assert said["offered"] or kind != "eagle"  # the others can guess such a target untrained
    assert said["steps"] == 40
    weights = (made / folder / "start", out / "head")
    assert len({(one / "model.safetensors").read_bytes() for one in weights}) == 2
    assert (said["old"], said["new"]) == (old, f"{kind}:{out / 'head'}")
    whole, *kinds = said["types"]
    assert whole["request_type"] == "all"
    assert [one["request_type"] for one in kinds] == ["a", "b"]
    assert (whole["low"] > 1) == said["offered"]
    assert whole["new_alpha"]["value"] >= whole["old_alpha"]["value"]
    assert said["judged_by"] >= 20
    assert said["trained_on"] + said["judged_by"] + said["left_out"] == 150
    assert json.loads((out / "report.json").read_text()) == said
    # What was made of the requests is gone, and the rest is its owner's.
    assert not (out / "store").exists()
    assert stat.S_IMODE(out.stat().st_mode) == 0o700
    options: dict[str, Any] = {"dtype": "fp32", "threads": 1, "num_speculative_tokens": 3}
    llm = LLM(made / "target", said["new"], **options)
    params = SamplingParams(max_tokens=30, ignore_eos=True)
    drafted, plain = (llm.generate("fox", params, drafter=d) for d in (None, "none"))
    assert drafted[0].token_ids == plain[0].token_ids


def test_one_that_did_not_become_better_is_not_offered(
    made: Path, tmp_path: Path, capsys: Any
) -> None:
    old = f"eagle:{made / 'eagle' / 'start'}"
    more = "--steps 1 --learning-rate 0 --matrix-rate 0"
    assert run(align(made, old, tmp_path / "new", more)) == 1
    out = capsys.readouterr().out
    assert "not better with confidence; keep the old one" in out
    assert "Use it" not in out
    # Better, but not by as much as was asked for.
    more = "--steps 40 --gain 5 --anew --answers 2"
    assert run(align(made, old, tmp_path / "more", more)) == 1
    assert "not better by more than 500 % with confidence" in capsys.readouterr().out


def test_people_are_told_how_to_use_it(made: Path, tmp_path: Path, capsys: Any) -> None:
    old = f"eagle:{made / 'eagle' / 'start'}"
    assert run(align(made, old, tmp_path / "new", "--steps 40")) == 0
    out = capsys.readouterr().out
    assert "better with confidence" in out
    assert f"--drafter eagle:{tmp_path / 'new' / 'head'}" in out
    assert "/admin/drafters" in out


def test_ctrl_c_loses_nothing_and_resume_goes_on(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    old, out = f"eagle:{made / 'eagle' / 'start'}", tmp_path / "new"
    learned = realign._learned

    def interrupted(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(realign, "_learned", interrupted)
    assert run(align(made, old, out, "--steps 40")) == 130
    assert "--resume goes on" in capsys.readouterr().err
    kept = Store.open(out / "store").keys()
    assert len(kept) > 100
    seen = []

    def learning(order: Any, target: Any, subject: Any, store: Store, listener: Any) -> Any:
        seen.append(store.keys())
        return learned(order, target, subject, store, listener)

    monkeypatch.setattr(realign, "_learned", learning)
    assert run(align(made, old, out, "--steps 40 --resume --json")) == 0
    assert seen == [kept]
    assert json.loads(capsys.readouterr().out)["offered"]
    assert run(align(made, old, out, "--steps 40")) == 1  # what is there is not overwritten
    assert "holds a run already" in capsys.readouterr().err


def test_a_full_disk_is_one_line(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("outpace.train.store.save_file", full)
    assert run(align(made, f"eagle:{made / 'eagle' / 'start'}", tmp_path / "new", "--steps 5")) == 1
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("error: ")
    assert "the disk is full" in error


@pytest.mark.parametrize(
    ("drafter", "more", "said"),
    [
        ("ngram", "", "has nothing to train"),
        ("ngram+eagle:x", "", "has nothing to train"),
        ("nonsense", "", "choose one of"),
        ("eagle:{made}/none", "", "none"),
        ("eagle:{made}/medusa/head", "", "use medusa:PATH"),
        ("eagle", "", "are for other models"),
        ("eagle:{made}/eagle/head", "--steps 0", "steps = 0"),
        ("eagle:{made}/eagle/head", "--confidence 2", "confidence = 2"),
        ("eagle:{made}/eagle/head", "--answers 0", "answers = 0"),
        ("eagle:{made}/eagle/head", "--fewest 100", "capture more"),
        ("eagle:{made}/eagle/head", "--max-length 16", "capture more"),
        ("eagle:{made}/eagle/head", "--capture {made}/none.db", "no such file"),
        ("eagle:{made}/eagle/head", "--capture {made}/target/config.json", "not"),
        ("eagle:{made}/eagle/head", "--model {made}/other", "trained for this target"),
        ("eagle:{made}/eagle/head", "-o {made}/target/config.json", "cannot be made"),
    ],
)
def test_bad_input_is_one_line(
    made: Path, tmp_path: Path, drafter: str, more: str, said: str, capsys: Any
) -> None:
    if not (made / "other").exists():
        write_checkpoint(made / "other", seed=9, num_hidden_layers=4, vocab_size=416)
    capsys.readouterr()
    arguments = align(made, drafter.format(made=made), tmp_path / "new", more.format(made=made))
    assert run(arguments) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.strip().splitlines()[-1].startswith("error: ")


def test_another_targets_answers_are_noticed(made: Path, tmp_path: Path, capsys: Any) -> None:
    """Same shapes, other weights: the head drafts, but its answers would begin otherwise."""
    other = write_checkpoint(
        tmp_path / "changed",
        seed=11,
        num_hidden_layers=4,
        max_position_embeddings=256,
        tie_word_embeddings=False,
    )
    old = f"eagle:{made / 'eagle' / 'start'}"
    line = align(made, old, tmp_path / "new", f"--steps 3 --model {other}")
    assert run(line) == 1
    assert "are not this target's" in capsys.readouterr().err
    # Its prompts can be answered anew.
    shutil.rmtree(tmp_path / "new", ignore_errors=True)
    assert run([*line, "--anew", "--json"]) in (0, 1)
    assert json.loads(capsys.readouterr().out)["trained_on"] > 80
