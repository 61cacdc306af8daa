"""The comparison with other systems: what is arithmetic, order and process handling in it."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import xml.dom.minidom
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from peers import prompts, systems
from peers.environments import CannotInstallError, Environment
from peers.figures import ALL, figures, rate
from peers.measure import Crowd, Run, Session, turns
from peers.plot import draw
from peers.pool import Pool, Worker, WorkerError
from peers.prompts import Prompt
from peers.report import throughput
from peers.systems import Models, System, UnknownSystemError
from peers.workers.protocol import Arrivals, without_stop

MODELS = Models(Path("t"), Path("d"), Path("t.gguf"), Path("d.gguf"))

# Answers with its process id, counts what it was asked, and fails where it is told to.
FAKE = """
import os
from peers.workers.protocol import serve

class Fake:
    version = "1.0"

    def __init__(self, options):
        if options["mode"] == "unloadable":
            raise RuntimeError("no such\\n  model")

    def generate(self, options, prompt, limit, stops, arrivals):
        if options["mode"] == "broken":
            os._exit(3)
        print("library noise")
        arrivals.told(limit, 2.0)
        return [os.getpid(), stops[0], 7]

    def throughput(self, prompts, limit, stops):
        return [[1, 2]] * len(prompts)

serve(Fake)
"""


def system(name: str, process: str = "", mode: str = "plain") -> System:
    return System(name, "vllm", "", "a", "bf16", {"mode": mode}, process or name)


def run(number: int, name: str, task: str, tokens: list[int] | None, seconds: float) -> Run:
    return Run(number, name, task, f"{task} 1", tokens, 10, seconds)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    file = tmp_path / "fake.py"
    file.write_text(FAKE)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(file)]
    made = Pool(lambda s: Worker(command, environment, tmp_path / f"{s.process}.log"), 0.0)
    yield made
    made.close()


def becomes(pid: int, *, stopped: bool) -> bool:
    """A signal takes a moment to arrive; the bound is for the case that it never does."""
    for _ in range(1000):
        if (psutil.Process(pid).status() == psutil.STATUS_STOPPED) == stopped:
            return True
        time.sleep(0.01)
    return False


def session(pool: Pool) -> Session:
    asked = [Prompt("code", "code 1", [1], "a"), Prompt("qa", "qa 1", [2], "b")]
    return Session(pool, asked, [0], 5, lambda line: None)


def test_names_are_read_and_wrong_ones_refused_with_what_would_work() -> None:
    draft = systems.parse("vllm:draft", MODELS, {"threads": 2})
    assert (draft.options["k"], draft.plain, draft.precision) == (3, "vllm:plain", "bf16")
    assert draft.options["threads"] == 2
    assert systems.parse("vllm:draft:7", MODELS, {}).options["k"] == 7
    own = systems.parse("outpace:int4:ngram+model-int8:auto", MODELS, {})
    assert own.options["drafter"] == "ngram+model:d"
    assert (own.options["quantization"], own.options["draft_quantization"]) == ("int4", "int8")
    assert (own.options["dtype"], own.options["k"]) == ("bf16", "auto")
    assert (own.plain, own.precision) == ("outpace:int4:none", "4-bit")
    full = systems.parse("outpace:fp32:none", MODELS, {})
    assert (full.options["dtype"], full.options["quantization"]) == ("fp32", "none")
    shared = {systems.parse(f"transformers:{m}", MODELS, {}).process for m in ("plain", "lookup")}
    assert shared == {"transformers"}
    for wrong in (
        *("vllm", "vllm:assisted", "vllm:draft:0", "vllm:draft:x", "tgi:plain", "vllm:draft:3:4"),
        *("outpace:int3:none", "outpace:bf16", "outpace:bf16:model", "outpace:bf16:none+ngram"),
    ):
        with pytest.raises(UnknownSystemError, match="say NAME:plain"):
            systems.parse(wrong, MODELS, {})


def test_every_default_name_means_something() -> None:
    assert [systems.parse(name, MODELS, {}).spec for name in systems.DEFAULT] == systems.DEFAULT


def test_prompts_are_chosen_by_task_and_length(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    lines = [
        {"category": "qa", "turns": ["long " * 9, "second turn"]},
        {"category": "qa", "turns": ["short"]},
        {"task": "code", "prompt": "sort"},
    ]
    file.write_text("\n".join(json.dumps(line) for line in lines))
    tasks = prompts.read(file)
    assert prompts.choose(tasks, [], 2, 20) == [("qa", "short"), ("code", "sort")]
    assert prompts.choose(tasks, ["code"], 1, 20) == [("code", "sort")]
    with pytest.raises(ValueError, match="'math': not in the file; it has qa, code"):
        prompts.choose(tasks, ["math"], 1, 20)
    with pytest.raises(ValueError, match="no prompt of at most 3 characters"):
        prompts.choose(tasks, ["code"], 1, 3)
    file.write_text('{"text": 1}')
    with pytest.raises(ValueError, match=r"p\.jsonl:1: a line has category and turns"):
        prompts.read(file)


def test_only_tokens_after_the_first_arrival_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 12.0, 15.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    arrivals = Arrivals()
    for count in (3, 0, 1, 4):
        arrivals.more(count)
    assert arrivals.record == {"timed": 5, "seconds": 5.0}
    assert without_stop([5, 6, 0, 7], [0]) == [5, 6]
    assert without_stop([5, 6], [0]) == [5, 6]


def test_rates_and_ratios_are_medians_over_rounds() -> None:
    runs = [
        *(run(0, "a", "qa", [1], 1.0), run(0, "a", "code", [2], 4.0)),
        *(run(1, "a", "qa", [1], 2.0), run(1, "a", "code", [2], 8.0)),
        *(run(2, "a", "qa", [1], 5.0), run(2, "a", "code", [2], 5.0)),
        *(run(0, "b", "qa", [1], 0.5), run(0, "b", "code", [9], 2.0)),
        *(run(1, "b", "qa", [1], 2.0), run(1, "b", "code", [2], 0.5)),
        run(2, "b", "qa", [1], 1.0),  # interrupted
    ]
    assert rate(runs[:2]) == 4.0
    assert rate([replace(runs[0], timed=0, seconds=0.0)]) is None
    a = figures(runs, "a", "a", "a")
    assert a.rates == {ALL: 2.0, "qa": 5.0, "code": 2.0}
    assert (a.ratios[ALL], a.same, a.unsteady) == (1.0, None, 0)
    b = figures(runs, "b", "a", "a")
    assert b.rates[ALL] == (8.0 + 8.0) / 2
    assert b.ratios[ALL] == (8.0 / 4.0 + 8.0 / 2.0) / 2
    assert b.ratios["qa"] == 2.0  # 2, 1 and 5 times
    assert b.same == (1, 2)
    assert b.unsteady == 1


def test_throughput_compares_with_a_system_that_batches() -> None:
    crowds = [Crowd(0, "v", 100, 10.0), Crowd(0, "o", 100, 5.0), Crowd(1, "o", 100, 4.0)]
    found = throughput(crowds, "llama.cpp:plain")
    assert found["v"] == {"tokens_per_second": 10.0, "ratio": 1.0}
    assert found["o"] == {"tokens_per_second": 22.5, "ratio": 2.0}


def test_systems_take_turns_and_every_second_round_goes_backwards(pool: Pool) -> None:
    both = [system("a"), system("b")]
    asked = session(pool).prompts

    def order(number: int, together: bool) -> str:
        return " ".join(s.spec + p.task[0] for s, p in turns(both, asked, number, together))

    assert order(0, True) == "ac bc aq bq"
    assert order(1, True) == "bc ac bq aq"
    assert order(0, False) == "ac aq bc bq"
    assert order(1, False) == "bc bq ac aq"


def test_a_session_measures_all_and_reports_who_fails(pool: Pool) -> None:
    measured = session(pool)
    both = [system("a"), system("x", mode="unloadable"), system("y", mode="broken")]
    assert measured.prepare(both)
    measured.answer_all(both, 0, together=True)
    measured.answer_crowds(both[:1], 0, 3)
    assert [(r.system, r.prompt, r.timed, r.seconds) for r in measured.runs] == [
        *(("a", "code 1", 5, 2.0), ("a", "qa 1", 5, 2.0))
    ]
    assert all(r.tokens == measured.runs[0].tokens for r in measured.runs)
    assert [(c.system, c.tokens) for c in measured.crowds] == [("a", 6)]
    assert measured.failures["x"] == "RuntimeError: no such model"
    assert measured.failures["y"].startswith("ended with status 3")
    assert pool.versions == {"vllm": "1.0"}
    assert pool.memory["a"] > 2**20


def test_an_idle_worker_is_suspended_and_processes_are_shared(pool: Pool) -> None:
    measured = session(pool)
    measured.answer_all([system("a", "p"), system("b", "p"), system("c")], 0, together=False)
    ids = {r.system: r.tokens[0] for r in measured.runs if r.tokens}
    assert ids["a"] == ids["b"] != ids["c"]
    assert becomes(ids["a"], stopped=True)
    pool.run(system("a", "p"))
    assert becomes(ids["a"], stopped=False)
    assert becomes(ids["c"], stopped=True)


def test_room_is_made_by_stopping_who_ran_last(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    three = [system("a"), system("b"), system("c")]
    assert session(pool).prepare(three[:2])
    answers = iter([0, 2**40])

    class Memory:
        @property
        def available(self) -> int:
            return next(answers)

    monkeypatch.setattr(psutil, "virtual_memory", Memory)
    assert not session(pool).prepare(three[2:])
    assert pool.evictions == 1
    assert not pool.run(three[0])[1]
    monkeypatch.undo()
    assert pool.run(three[1])[1]  # b had to be loaded again


def test_a_worker_that_was_killed_says_so(pool: Pool) -> None:
    worker, _ = pool.run(system("a"))
    request = {"op": "generate", "options": {"mode": ""}, "prompt": [], "limit": 1, "stops": [0]}
    os.kill(worker.ask(request)["tokens"][0], signal.SIGKILL)
    with pytest.raises(WorkerError, match="ended with status -9"):
        worker.ask(request)


def test_what_cannot_be_installed_gives_the_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = {"x": [["python", "-c", "print('ERROR: no such version'); print('a hint'); exit(1)"]]}
    monkeypatch.setattr("peers.environments.STEPS", steps)
    place = Environment("x", tmp_path / "x")
    with pytest.raises(CannotInstallError, match=r"^ERROR: no such version$"):
        place.install(lambda line: None)
    assert not place.ready
    steps["x"] = [["python", "-c", "print('{folder}')"]]
    place.install(lambda line: None)
    assert place.ready
    assert str(place.folder) in (tmp_path / "x.install.log").read_text()
    steps["x"] = [["python", "-c", "'another version'"]]
    assert not place.ready


def test_the_picture_is_whole_and_has_a_bar_for_each() -> None:
    runs = [run(0, name, "q<a", [1], 1.0) for name in ("outpace:bf16:none", "vllm:plain")]
    found = {name: figures(runs, name, "", "vllm:plain") for name in ("outpace:bf16:none", "v&v")}
    found["v&v"] = figures(runs, "vllm:plain", "", "vllm:plain")
    picture = xml.dom.minidom.parseString(draw(found, ["q<a"], "two & two"))
    kinds = [bar.getAttribute("class") for bar in picture.getElementsByTagName("rect")]
    assert kinds == ["page", "own", "other", "own", "other"]
