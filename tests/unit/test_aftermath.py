"""What ended requests leave behind: alarms that shorten the memory, times, files of experience."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from outpace.control.automatic import AutomaticController
from outpace.control.controller import Candidate, Outcome, StepRecord
from outpace.control.cost import CostTable
from outpace.control.drift import ACCEPTANCE, MIX, DriftSettings
from outpace.control.keeper import Keeper
from outpace.control.typed_acceptance import TypedAcceptance

SETTINGS = DriftSettings(requests_between_false_alarms=10_000, learn=40)
COST = CostTable({1: 0.010, 64: 0.0105})


def serve(controller: AutomaticController, count: int, alpha: float, seed: int, kind: str) -> None:
    """So many requests of eight steps whose guesses are right so often."""
    random = np.random.default_rng(seed)
    for number in range(count):
        seq_id = seed * 100_000 + number
        for step in range(8):
            candidate = Candidate(seq_id, "d", 200, None, 50 + step, ("d",), kind)
            [budget] = controller.budgets([candidate])
            k = budget.tokens
            right = int(np.argmin([*(random.random(k) < alpha), False]))
            outcome = Outcome(seq_id, "d", k, right, right < k, k, right + 1, 50 + step, "d")
            controller.record(StepRecord(1 + k, 0.0105 if k else 0.01, {}, (outcome,)))
        controller.forget(seq_id)


def test_a_fall_is_an_alarm_and_what_was_learned_counts_little(
    caplog: pytest.LogCaptureFixture,
) -> None:
    controller = AutomaticController(COST, drift=SETTINGS)
    with caplog.at_level(logging.WARNING, "outpace"):
        serve(controller, 150, 0.9, 1, "chat")
        assert not controller.aftermath.alarms
        assert not caplog.records
        before = controller.history.trials("chat", "d")
        serve(controller, 40, 0.2, 2, "chat")
    alarms = controller.aftermath.alarms
    assert alarms[0].kind == ACCEPTANCE
    assert alarms[0].drafter == "d"
    texts = [record.getMessage() for record in caplog.records]
    assert any("for chat" in text for text in texts)
    assert len(texts) == 2 < len(alarms)  # of the type and of all, each once
    assert controller.history.trials("chat", "d") < before / 2
    deaf = AutomaticController(COST, drift=DriftSettings(learn=10**6))
    serve(deaf, 150, 0.9, 1, "chat")
    serve(deaf, 40, 0.2, 2, "chat")
    unmoved = deaf.history.curve("chat", "d", 1)[0].mean
    assert controller.history.curve("chat", "d", 1)[0].mean < 0.5 < unmoved - 0.1
    assert any(one["evidence"] is not None for one in controller.aftermath.tests)


def test_another_mix_is_told_and_forgets_nothing() -> None:
    controller = AutomaticController(COST, drift=SETTINGS)
    serve(controller, 100, 0.8, 1, "chat")
    before = controller.history.trials("chat", "d")
    serve(controller, 400, 0.8, 2, "code")
    assert {one.kind for one in controller.aftermath.alarms} == {MIX}
    assert controller.history.trials("chat", "d") == before


def test_doubt_is_about_one_source_and_type_and_ends() -> None:
    model = TypedAcceptance()
    for _ in range(300):
        for kind in ("chat", "code"):
            model.record(kind, "d", 3, False)
            model.record(kind, "e", 3, False)
    known = model.trials("code", "d")
    model.doubt("d", "chat")
    assert model.trials("chat", "d") < 0.2 * known
    assert model.trials("code", "d") == known
    assert model.trials("chat", "e") == known
    for _ in range(60):
        model.record("chat", "d", 0, True)
    assert model.curve("chat", "d", 1)[0].mean < 0.35  # it leans on code, where nothing fell
    other = TypedAcceptance()
    for _ in range(3000):  # in the end both remember equally long
        model.record("chat", "d", 1, True)
        other.record("chat", "d", 1, True)
    assert model.trials("chat", "d") == pytest.approx(other.trials("chat", "d"), rel=0.01)


def test_the_tail_is_known_request_by_request() -> None:
    controller = AutomaticController(COST, drift=SETTINGS)
    assert controller.aftermath.tail() is None
    serve(controller, 30, 0.9, 1, "chat")
    tail = controller.aftermath.tail()
    assert tail is not None
    assert tail.requests == 30
    assert tail.p5 <= tail.p50 <= tail.p95
    assert tail.whole > 1.5


def learned(keeper: Keeper, drafts: int) -> Keeper:
    for _ in range(drafts):
        keeper.acceptance.record("chat", "ngram", 2, True)
    return keeper


def test_what_is_learned_comes_back_for_the_same_models_alone(tmp_path: Path) -> None:
    now = [0.0]
    keeper = learned(Keeper(tmp_path / "learned", "pair-a", clock=lambda: now[0]), 50)
    keeper.ended()
    assert not keeper.file.exists()  # not at each request
    now[0] = 61.0
    keeper.ended()
    assert os.stat(keeper.file).st_mode & 0o777 == 0o600
    again = Keeper(tmp_path / "learned", "pair-a")
    assert again.acceptance.trials("chat", "ngram") == keeper.acceptance.trials("chat", "ngram")
    assert again.origin == f"learned before, from {keeper.file}"
    assert Keeper(tmp_path / "learned", "pair-b").acceptance.drafts == 0


def test_of_two_processes_the_one_that_saw_more_is_kept(tmp_path: Path) -> None:
    few, many = Keeper(tmp_path, "p"), Keeper(tmp_path, "p")
    learned(many, 50).save()
    learned(few, 5).save()
    assert Keeper(tmp_path, "p").acceptance.drafts == 50
    learned(few, 100).save()
    assert Keeper(tmp_path, "p").acceptance.drafts == 105


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": 1, "pair": "p", "drafts": "x"}'])
def test_a_damaged_file_is_said_and_replaced(content: str, tmp_path: Path) -> None:
    file = learned(Keeper(tmp_path, "p"), 3).file
    file.write_text(content)
    keeper = Keeper(tmp_path, "p")
    assert "learned anew" in keeper.origin
    learned(keeper, 3).save()
    assert json.loads(file.read_text())["drafts"] == 3


def test_a_folder_that_cannot_be_written_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    keeper = learned(Keeper(tmp_path / "file", "p"), 3)
    with caplog.at_level(logging.WARNING, "outpace"):
        keeper.save()
        learned(keeper, 3).save()
    assert len(caplog.records) == 1


def test_only_the_newest_files_are_kept(tmp_path: Path) -> None:
    for number in range(70):
        file = learned(Keeper(tmp_path, f"p{number}"), 1)
        file.save()
        os.utime(file.file, (number, number))
    learned(Keeper(tmp_path, "last"), 1).save()
    assert len(list(tmp_path.glob("*.json"))) == 64
    assert not (tmp_path / "p0.json").exists()


def _save_for_ever(folder: Path, ready: multiprocessing.synchronize.Event) -> None:
    keeper = Keeper(folder, "p")
    while True:
        learned(keeper, 20).save()
        ready.set()


def test_the_file_is_whole_after_a_kill(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    for _ in range(3):
        ready = context.Event()
        child = context.Process(target=_save_for_ever, args=(tmp_path, ready))
        child.start()
        assert ready.wait(30)
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        assert Keeper(tmp_path, "p").origin.startswith("learned before")
