"""What every worker has in common: requests as JSON lines on stdin, answers on stdout.

Runs inside the other systems' environments, so it uses the standard library only.

    {"op": "load", "options": {...}}                  -> {"version": "..."}
    {"op": "generate", "options": {...}, "prompt": [ids], "limit": 96, "stops": [ids]}
                                                      -> {"tokens", "timed", "seconds"}
    {"op": "throughput", "prompts": [[ids], ...], "limit": 96, "stops": [ids]}
                                                      -> {"tokens": [[ids], ...], "seconds"}

The options of ``generate`` also have the prompt's ``text``, for systems that read text only. Tokens
of an answer leave out the stop token that ended it. Whatever goes wrong is answered with
``{"error": "one line"}``.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Protocol

Tokens = list[int]


class Arrivals:
    """When tokens came: the time of decoding is that between the first and the last arrival.

    What came with the first arrival is not counted, since the time before it includes the
    prompt's; a speculative system may have brought several tokens then.
    """

    def __init__(self) -> None:
        self._first = self._last = 0.0
        self._untimed = self._total = 0

    def more(self, count: int) -> None:
        """Some tokens have just come."""
        if count <= 0:
            return
        self._last = time.perf_counter()
        if self._total == 0:
            self._first, self._untimed = self._last, count
        self._total += count

    def told(self, timed: int, seconds: float) -> None:
        """A program that measures itself has said so many tokens in so much time."""
        self._untimed, self._total = 0, timed
        self._first, self._last = 0.0, seconds

    @property
    def record(self) -> dict[str, float]:
        """How many tokens came within how many seconds, after the first arrival."""
        return {"timed": self._total - self._untimed, "seconds": self._last - self._first}


class System(Protocol):
    """A loaded system."""

    version: str

    def generate(
        self,
        options: dict[str, Any],
        prompt: Tokens,
        limit: int,
        stops: Sequence[int],
        arrivals: Arrivals,
    ) -> Tokens | None:
        """Answer one prompt greedily; None where a system does not tell its tokens."""
        ...


class BatchingSystem(System, Protocol):
    """One that can answer many requests at once."""

    def throughput(
        self, prompts: Sequence[Tokens], limit: int, stops: Sequence[int]
    ) -> list[Tokens]:
        """Answer them all greedily."""
        ...


def without_stop(tokens: Sequence[int], stops: Sequence[int]) -> Tokens:
    """Tokens up to the first stop token."""
    ends = [i for i, token in enumerate(tokens) if token in stops]
    return list(tokens[: ends[0]] if ends else tokens)


def serve(load: Callable[[dict[str, Any]], System | BatchingSystem]) -> None:
    """Answer requests until stdin ends."""
    # Libraries print to stdout: it goes to stderr, and answers keep the real one.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    system: System | None = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["op"] == "load":
                system = load(request["options"])
                answer = {"version": system.version}
            else:
                assert system is not None, "nothing is loaded"
                answer = _run(system, request)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"[:400]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _run(system: Any, request: dict[str, Any]) -> dict[str, Any]:
    limit, stops = request["limit"], request["stops"]
    if request["op"] == "throughput":
        started = time.perf_counter()
        many = system.throughput(request["prompts"], limit, stops)
        seconds = time.perf_counter() - started
        return {"tokens": [without_stop(one, stops) for one in many], "seconds": seconds}
    arrivals = Arrivals()
    tokens = system.generate(request["options"], request["prompt"], limit, stops, arrivals)
    if tokens is not None:
        tokens = without_stop(tokens, stops)
    return {"tokens": tokens, **arrivals.record}
