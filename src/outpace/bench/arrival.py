"""When requests come: one at a time, some at once, or at random times of a given rate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from outpace.bench.workload import Entry
from outpace.config import check_integer, check_number
from outpace.errors import InvalidValueError

_MOST_AT_ONCE = 1024
_SPELLINGS = "choose one, at-once:N, or poisson:REQUESTS_PER_SECOND"


@dataclass(frozen=True, slots=True)
class Asked:
    """A prompt and the seconds after the start of its group at which it is sent."""

    entry: Entry
    due: float = 0.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pattern of arrival.

    Attributes:
        name: as it was written.
        kind: ``at-once`` with ``amount`` requests (one is 1 at once), or ``poisson`` with
            ``amount`` requests a second.
        amount: see ``kind``.
    """

    name: str
    kind: Literal["at-once", "poisson"]
    amount: float

    @property
    def at_once(self) -> int | None:
        """How many requests run together, where that is known."""
        return int(self.amount) if self.kind == "at-once" else None

    def groups(self, entries: Sequence[Entry], seed: int) -> list[list[Asked]]:
        """Return the requests in groups; each group runs under every policy in turn.

        At once: groups of equal size, the last filled up from the beginning, so that the load
        is the same throughout. Poisson: one group, whose times depend on the seed alone and so
        are the same for every policy.
        """
        if self.kind == "poisson":
            waits = np.random.default_rng(seed).exponential(1 / self.amount, len(entries))
            times = np.cumsum(waits) - waits[0]
            return [[Asked(e, float(t)) for e, t in zip(entries, times, strict=True)]]
        size = int(self.amount)
        starts = range(0, len(entries), size)
        return [
            [Asked(entries[(start + i) % len(entries)]) for i in range(size)] for start in starts
        ]


def parse_arrival(text: str) -> Arrival:
    """Read ``one``, ``at-once:N`` or ``poisson:RATE``.

    Raises:
        InvalidValueError: it is none of these.
    """
    kind, _, amount = text.partition(":")
    if text == "one":
        return Arrival(text, "at-once", 1)
    try:
        if kind == "at-once":
            check_integer("arrival at-once", number := int(amount), 1, _MOST_AT_ONCE)
            return Arrival("one" if number == 1 else f"at-once:{number}", "at-once", number)
        if kind == "poisson":
            rate = float(amount)
            wanted = "must be a number of requests a second from 0.0001 to 10000"
            check_number("arrival poisson", rate, wanted, 1e-4, 1e4)
            return Arrival(f"poisson:{rate:g}", "poisson", rate)
    except ValueError as error:
        if isinstance(error, InvalidValueError):
            raise
    raise InvalidValueError("arrival", text, _SPELLINGS)


def parse_arrivals(texts: Sequence[str]) -> tuple[Arrival, ...]:
    """Read all; the same twice counts once."""
    return tuple(dict.fromkeys(parse_arrival(text) for text in texts))


@dataclass(frozen=True, slots=True)
class Round:
    """A group of requests under one policy.

    ``place`` is the policy's place in the order of this group: 0 ran first.
    """

    arrival: Arrival
    repeat: int
    group: int
    place: int
    policy: int
    asked: tuple[Asked, ...]


def rounds(
    entries: Sequence[Entry],
    arrivals: Sequence[Arrival],
    num_policies: int,
    repeats: int,
    seed: int,
) -> Iterator[Round]:
    """Yield what to run, in order.

    Policies alternate within each group of requests, and their order moves on by one with each
    group and repeat and turns round when every policy has been first: what the machine does
    over minutes or from one second to the next is as bad for all. Repeats are outermost, so
    that a run that is stopped has measured everything before it measures anything again.
    """
    for repeat in range(repeats):
        for arrival in arrivals:
            for group, asked in enumerate(arrival.groups(entries, seed)):
                for place, policy in enumerate(order(num_policies, group + repeat)):
                    yield Round(arrival, repeat, group, place, policy, tuple(asked))


def order(count: int, turn: int) -> list[int]:
    """Return 0 to count - 1 moved on by ``turn``, backwards every other time round."""
    moved = [(turn + i) % count for i in range(count)]
    return moved[::-1] if turn // count % 2 else moved
