"""Replacing drafters while an engine works."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence

from outpace.engine.engine import Engine
from outpace.engine.sequence import Sequence as EngineSequence
from outpace.request import Request
from outpace.spec.drafter import Drafter


def steps(engine: Engine, count: int) -> None:
    for _ in range(count):
        engine.step()


def run_swapping(
    engine: Engine, requests: Sequence[Request], drafters: Callable[[int], Mapping[str, Drafter]]
) -> tuple[list[list[EngineSequence]], list[weakref.ref[Drafter]]]:
    """A request more each step, and every fourth step other drafters, until all have ended.

    Returns:
        The sequences, and the heads that were replaced.
    """
    former, groups, turn = [], [], 0
    waiting = list(requests)
    while engine.has_work or waiting:
        if waiting:
            groups.append(engine.add(waiting.pop(0)))
        engine.step()
        living = [*engine.scheduler.running, *engine.scheduler.waiting]
        engine.blocks.check_integrity(sequence.table for sequence in living)
        if turn % 4 == 3:
            former.append(weakref.ref(engine.drafting.current.drafters["eagle"]))
            engine.drafting.replace(drafters(turn // 4), engine.scheduler.running)
        turn += 1
    return groups, former
