"""Who runs when: rounds in which every system answers every prompt, in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from peers.pool import Pool, Worker, WorkerError
from peers.prompts import Prompt
from peers.systems import System

WARM_UP_TOKENS = 32


@dataclass(frozen=True)
class Run:
    """One answer of one system.

    Attributes:
        round: from 0.
        system: its name.
        task: of the prompt.
        prompt: its name.
        tokens: the answer, None where the system does not tell.
        timed: tokens that came after the first arrival.
        seconds: between the first arrival and the last.
    """

    round: int
    system: str
    task: str
    prompt: str
    tokens: list[int] | None
    timed: int
    seconds: float


@dataclass(frozen=True)
class Crowd:
    """Many requests answered at once: all new tokens, and the whole time they took."""

    round: int
    system: str
    tokens: int
    seconds: float


@dataclass
class Session:
    """Everything measured so far.

    Attributes:
        failures: why a system is out, by its name.
    """

    pool: Pool
    prompts: Sequence[Prompt]
    stops: Sequence[int]
    limit: int
    say: Callable[[str], None]
    runs: list[Run] = field(default_factory=list)
    crowds: list[Crowd] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    _warm: set[tuple[str, str]] = field(default_factory=set)

    def prepare(self, systems: Sequence[System]) -> bool:
        """Load and warm up each once; say whether all of them fit into memory together."""
        for system in systems:
            self._guarded(system, lambda worker: None)
        return self.pool.evictions == 0

    def answer_all(self, systems: Sequence[System], number: int, together: bool) -> None:
        """One round of every system answering every prompt.

        Every second round goes backwards, so that a machine that slows down or speeds up favours
        nobody; where all stay loaded, systems alternate prompt by prompt.
        """
        for system, prompt in turns(systems, self.prompts, number, together):
            run = self._guarded(system, partial(self._answer, system=system, prompt=prompt))
            if run is not None:
                self.runs.append(Run(number, system.spec, prompt.task, prompt.name, **run))
        self.pool.rest()

    def answer_crowds(self, systems: Sequence[System], number: int, count: int) -> None:
        """One round of ``count`` requests at once, for the systems that batch."""
        crowd = [self.prompts[i % len(self.prompts)].ids for i in range(count)]
        request = {"op": "throughput", "prompts": crowd, "limit": self.limit, "stops": self.stops}
        for system in systems if number % 2 == 0 else systems[::-1]:
            answer = self._guarded(system, lambda worker: worker.ask(request))
            if answer is not None:
                new = sum(len(tokens) for tokens in answer["tokens"])
                self.crowds.append(Crowd(number, system.spec, new, answer["seconds"]))
        self.pool.rest()

    def _guarded(
        self, system: System, action: Callable[[Worker], dict[str, Any] | None]
    ) -> dict[str, Any] | None:
        """Do something with a loaded and warm worker; a failure puts the system out."""
        if system.spec in self.failures:
            return None
        try:
            worker, fresh = self.pool.run(system)
            if fresh:
                self._warm = {pair for pair in self._warm if pair[0] != system.process}
            if (system.process, system.spec) not in self._warm:
                self._answer(worker, system, self.prompts[0], WARM_UP_TOKENS)
                self._warm.add((system.process, system.spec))
            return action(worker)
        except WorkerError as error:
            self.failures[system.spec] = str(error)
            self.pool.drop(system)
            self.say(f"{system.spec}: out: {error}")
            return None

    def _answer(
        self, worker: Worker, system: System, prompt: Prompt, limit: int | None = None
    ) -> dict[str, Any]:
        return worker.ask(
            {
                "op": "generate",
                "options": {**system.options, "text": prompt.text},
                "prompt": prompt.ids,
                "limit": limit or self.limit,
                "stops": self.stops,
            }
        )


def turns(
    systems: Sequence[System], prompts: Sequence[Prompt], number: int, together: bool
) -> Iterator[tuple[System, Prompt]]:
    """The order of a round."""
    order = systems if number % 2 == 0 else systems[::-1]
    if together:
        yield from ((system, prompt) for prompt in prompts for system in order)
    else:
        yield from ((system, prompt) for system in order for prompt in prompts)
