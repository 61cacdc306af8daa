"""Replacing a head of a model with a router: tokens, and what was learned of which head."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from outpace import LLM, SamplingParams, parse_drafter
from outpace.request import Request

from tiny_heads import eagle_tensors, write_eagle
from train_cases import tiny_target

TEXT = "1 2 3 4 5 6 7 8 9 10 1 2 3 4 5 6 7 8 9 10 1 2 3"
PARAMS = SamplingParams(max_tokens=60, ignore_eos=True)
WIDE = {"transformer_layer_config": {"vocab_size": 400}}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OUTPACE_CACHE", str(tmp_path / "cache"))
    tiny_target(tmp_path / "target")
    for seed in (0, 1):
        write_eagle(tmp_path / f"head-{seed}", eagle_tensors(seed=seed, scale=0.3, **WIDE), **WIDE)
    return tmp_path


def make(folder: Path, head: int) -> LLM:
    drafter = f"suffix+eagle:{folder / f'head-{head}'}"
    return LLM(folder / "target", drafter, dtype="fp32", threads=1, kv_cache_tokens=2048)


def put(llm: LLM, head: Path) -> None:
    llm.drafters.put(llm.drafters.load(parse_drafter(f"eagle:{head}")))


def learned_in(file: Path) -> set[str]:
    cells = json.loads(file.read_text("utf-8"))["acceptance"]
    return {cell["source"] for cell in cells if cell.get("drafts")}


def draft(llm: LLM, drafter: str, kind: str) -> None:
    """A request that is drafted for whether or not it pays."""
    prompt = tuple(llm.tokenizer.encode(TEXT))
    request = Request(f"{kind} {drafter}", prompt, PARAMS, (), drafter, 2, request_type=kind)
    [sequence] = llm.engine.add(request)
    while sequence.output.finish_reason is None:
        llm.engine.step()


def test_it_changes_places_in_the_midst_of_an_answer(folder: Path) -> None:
    llm = make(folder, 0)
    [plain] = llm.generate(TEXT, PARAMS, drafter="none")
    for name in ("eagle", "suffix+eagle", None):
        stream = llm.stream(TEXT, PARAMS, drafter=name)
        next(stream)
        before = dict(llm.engine.drafting.current.drafters)
        put(llm, folder / "head-1")
        assert llm.engine.drafting.num_former == 1
        now = llm.engine.drafting.current.drafters
        # Earlier outputs are remembered by what was not replaced.
        assert {name for name in now if now[name] is not before[name]} == {"eagle", "suffix+eagle"}
        assert now["suffix+eagle"].parts == (now["suffix"], now["eagle"])  # type: ignore[attr-defined]
        *_, last = stream
        assert last.output is not None
        assert last.output.token_ids == plain.token_ids
        assert llm.engine.drafting.num_former == 0
        [again] = llm.generate(TEXT, PARAMS, drafter=name)
        assert again.token_ids == plain.token_ids


def test_what_was_learned_belongs_to_its_head(folder: Path) -> None:
    llm = make(folder, 0)
    keeper = llm._assembly.keeper
    assert keeper is not None
    history = llm.engine.controller.history  # type: ignore[attr-defined]
    draft(llm, "eagle", "t")
    draft(llm, "suffix", "t")
    assert history.trials("t", "eagle") > 0
    suffix, eagle = history.trials("t", "suffix"), history.trials("t", "eagle")
    first = keeper.file
    put(llm, folder / "head-1")
    assert learned_in(first) >= {"eagle"}  # saved before it was forgotten
    kept = first.read_bytes()
    assert history.trials("t", "eagle") == 0
    assert history.trials("t", "suffix") == suffix
    second = keeper.file
    assert second != first
    draft(llm, "eagle", "u")
    replacement = llm.drafters.load_before()
    llm.drafters.put(replacement)
    assert keeper.file == first
    assert first.read_bytes() == kept
    assert history.trials("t", "eagle") == pytest.approx(eagle)  # it is known again
    assert history.trials("u", "eagle") == 0
    assert learned_in(second) >= {"eagle"}
    # Whoever starts with the other head has the same file.
    other = make(folder, 1)
    assert other._assembly.keeper is not None
    assert other._assembly.keeper.file == second
    assert other._assembly.keeper.origin == f"learned before, from {second}"
    llm.close()
    other.close()
