"""From captured traffic to a better head: judge, learn, judge again, decide."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from outpace.align.decide import Rule, decide
from outpace.align.evaluate import Ran, pairs_of, steps_under
from outpace.align.report import Report, alphas
from outpace.align.subject import Subject, find_subject
from outpace.align.traffic import Bounds, Traffic, check_target, split, texts
from outpace.config import DrafterConfig, EngineConfig, NoDrafter, spelled
from outpace.errors import InvalidValueError
from outpace.llm import LLM
from outpace.parts.source import choose_device
from outpace.record.capture import Captured, load_capture
from outpace.train.loop import STATE, LoopOptions, LoopState
from outpace.train.losses import LossName
from outpace.train.recipes import FINAL, Ground, Watch
from outpace.train.replay import replay
from outpace.train.store import Store
from outpace.train.target_parts import TargetParts

STORE = "store"
Load = Callable[[EngineConfig], LLM]


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be done.

    Attributes:
        model: the target, as it is named.
        engine: how it runs; its k is that of both judgements.
        drafter: the head or draft in use.
        capture: file of captured requests.
        out: folder of the run; ``out/head`` is the new one.
        loop: how long it learns, and how fast.
        loss: see ``train.losses.compare``.
        batch_tokens: of training; what bounds its memory.
        answers: to learn from, for each prompt.
        anew: let the target answer, and do not use what was answered.
        at_once: sequences at once where states are made.
        max_bytes: of the states on disk.
        bounds: how much of the capture is used.
        rule: when the new one is offered.
        resume: go on with a run that was stopped.
    """

    model: str
    engine: EngineConfig
    drafter: DrafterConfig
    capture: Path
    out: Path
    loop: LoopOptions
    loss: LossName = "mix"
    batch_tokens: int = 2048
    answers: int = 1
    anew: bool = False
    at_once: int = 8
    max_bytes: int = 20 * 10**9
    bounds: Bounds = field(default_factory=Bounds)
    rule: Rule = field(default_factory=Rule)
    resume: bool = False

    @property
    def head(self) -> Path:
        """Where the new one will be."""
        return self.out / FINAL


@dataclass(frozen=True, slots=True)
class Listener:
    """Who is told how it goes.

    Attributes:
        stage: at the beginning of each stage, in words.
        share: of the stage that is done.
        training: of each step.
    """

    stage: Callable[[str], None] = lambda _: None
    share: Callable[[float], None] = lambda _: None
    training: Watch = field(default_factory=Watch)


def realign(order: Order, load: Load, listener: Listener) -> Report:
    """Train the drafter further on captured requests, and say whether it became better.

    Whatever ends it early, nothing is lost that had been finished: see ``Order.resume``. The
    states that were made of the requests are deleted at the end.

    Args:
        order: what is to be done.
        load: loads the target with a configuration.
        listener: who is told.

    Raises:
        OutpaceError: something cannot be used, or there is too little, or the disk is full.
    """
    target = TargetParts.load(order.model)
    subject = find_subject(order.drafter, target)
    traffic = split(load_capture(order.capture), order.model, str(order.capture), order.bounds)
    _open(order)
    old, _ = _judged(order, order.drafter, traffic.judged, load, listener)
    if not order.anew:
        check_target(traffic.judged, old, str(order.capture))
    store = _states(order, target, subject, traffic, load, listener)
    state = _learned(order, target, subject, store, listener)
    drafter = subject.trained(order.head)
    new, exact = _judged(order, drafter, traffic.judged, load, listener)
    verdict = decide(pairs_of(traffic.judged, old, new, exact), order.rule)
    shutil.rmtree(order.out / STORE, ignore_errors=True)
    return Report(
        model=order.model,
        old=spelled(order.drafter),
        new=spelled(drafter),
        verdict=verdict,
        alphas=alphas(traffic.judged, old, new),
        trained_on=len(traffic.training),
        judged_by=len(traffic.judged),
        left_out=traffic.left_out,
        tokens=state.tokens,
        seconds=state.seconds,
        steps=state.step,
    )


def _open(order: Order) -> None:
    """Make the folder, for its owner alone: states of what users asked go through it."""
    begun = any((order.out / name).exists() for name in (FINAL, STATE))
    if begun and not order.resume:
        way_out = "holds a run already; go on with --resume, or give another folder"
        raise InvalidValueError("out", str(order.out), way_out)
    try:
        order.out.mkdir(parents=True, exist_ok=True)
        os.chmod(order.out, 0o700)
    except OSError as error:
        wanted = f"cannot be made: {error.strerror}"
        raise InvalidValueError("out", str(order.out), wanted) from error


def _judged(
    order: Order,
    drafter: DrafterConfig,
    judged: Sequence[Captured],
    load: Load,
    listener: Listener,
) -> tuple[list[Ran], bool]:
    """The prompts under a drafter, and whether its tokens must be the same as under another.

    One engine after the other: two targets at once may not fit.
    """
    listener.stage(f"answering {len(judged)} held-out prompts with {spelled(drafter)}")
    llm = load(replace(order.engine, drafter=drafter, verification="coupled"))
    ran = steps_under(llm, judged, lambda done, whole: listener.share(done / whole))
    exact = llm.guarantee == "bit-exact"
    del llm
    gc.collect()
    return ran, exact


def _states(
    order: Order,
    target: TargetParts,
    subject: Subject,
    traffic: Traffic,
    load: Load,
    listener: Listener,
) -> Store:
    """What the target's layers make of the requests that are learned from."""
    store = target.begin_store(order.out / STORE, subject.taps, True)
    wanted = list(texts(traffic.training, order.answers, order.anew))
    listener.stage(f"reading {len(wanted)} answers")
    plain = replace(
        order.engine,
        drafter=NoDrafter(),
        num_speculative_tokens=0,
        prefix_caching=False,  # states of what is cached would not be computed again
        max_num_seqs=order.at_once,
    )
    llm = load(plain)
    whole = len({text.key for text in wanted})
    replay(llm, wanted, store, order.at_once, order.max_bytes, lambda n: listener.share(n / whole))
    del llm
    gc.collect()
    return store


def _learned(
    order: Order, target: TargetParts, subject: Subject, store: Store, listener: Listener
) -> LoopState:
    listener.stage(f"training {spelled(order.drafter)} further")
    ground = Ground(
        target,
        [store],
        order.out,
        order.loop,
        order.batch_tokens,
        8000,
        choose_device(order.engine.device),
        order.resume and (order.out / STATE).is_file(),
    )
    return subject.learn(ground, order.loss, listener.training)
