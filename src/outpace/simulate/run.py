"""Runs of whole fleets: arrivals, a sample of replicas, and the figures of each policy."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from outpace.config import check_integer, check_number
from outpace.control.policy import DrafterPolicy
from outpace.control.routed import RoutedController
from outpace.control.tail import percentile, speedups, token_times
from outpace.errors import InvalidValueError
from outpace.simulate.machine import Machine
from outpace.simulate.policies import Policy, controller
from outpace.simulate.replica import Limits, Replica, Served, StepSeen
from outpace.simulate.workload import Invented, Workload

_ARRIVAL = re.compile(r"(poisson|closed):([0-9.]+)")


@dataclass(frozen=True, slots=True)
class Arrival:
    """When requests come to the fleet.

    Attributes:
        kind: ``poisson``: at random times, ``amount`` a second; ``closed``: ``amount`` at once,
            each followed by another as soon as it ends.
        amount: see ``kind``; of the whole fleet.
    """

    kind: str
    amount: float


def parse_arrival(text: str) -> Arrival:
    """Read ``poisson:RATE`` or ``closed:REQUESTS``.

    Raises:
        InvalidValueError: it is neither.
    """
    found = _ARRIVAL.fullmatch(text)
    if not found or found[2].count(".") > 1 or found[2] == ".":
        raise InvalidValueError("arrival", text, "write poisson:RATE or closed:REQUESTS")
    if found[1] == "closed" and not found[2].isdigit():
        raise InvalidValueError("arrival", text, "give a whole number of requests: closed:REQUESTS")
    amount = float(found[2])
    check_number("arrival", amount, "must be a number above 0 and at most 1e7", 1e-6, 1e7)
    return Arrival(found[1], amount)


@dataclass(frozen=True, slots=True)
class Fleet:
    """How many replicas there are, of which some are simulated, for how long.

    Requests that are sent to replicas at random leave each a Poisson process of its share of the
    rate (thinning), independent of the others, so a sample of replicas tells of all. A dispatcher
    that looks at the load does better than that.
    """

    replicas: int = 1
    sampled: int = 1
    seconds: float = 60.0
    limits: Limits = field(default_factory=Limits)
    seed: int = 0

    def __post_init__(self) -> None:
        check_integer("replicas", self.replicas, 1, 1_000_000)
        check_integer("sample", self.sampled, 1, self.replicas)
        check_number("seconds", self.seconds, "must be a number from 0.1 to 86400", 0.1, 86_400)
        check_integer("seed", self.seed, 0, 2**63 - 1)
        check_integer("max_num_seqs", self.limits.sequences, 1, 4096)
        check_integer("max_num_batched_tokens", self.limits.batched_tokens, 1, 1_000_000)


def simulate(
    policy: Policy,
    workload: Workload,
    machine: Machine,
    sources: Mapping[str, tuple[str, ...]],
    arrival: Arrival,
    fleet: Fleet,
    rules: DrafterPolicy | None = None,
) -> dict[str, Any]:
    """One policy's figures over the sampled replicas, as plain values."""
    served: list[Served] = []
    steps: list[StepSeen] = []
    busy = elapsed = 0.0
    routed = []
    for index in range(fleet.sampled):
        seed = fleet.seed + 7919 * index
        decides = controller(policy, machine, sources, rules, seed)
        replica = Replica(machine, decides, sources, policy.drafter, fleet.limits, seed=seed)
        for one in _serve(replica, workload, arrival, fleet, seed):
            if isinstance(one, Served):
                served.append(one)
            else:
                steps.append(one)
        busy += replica.busy
        elapsed += replica.now
        if isinstance(decides, RoutedController):
            routed.append(decides)
    return _figures(policy, served, steps, busy, elapsed, fleet) | _of_routers(routed)


def _serve(
    replica: Replica, workload: Workload, arrival: Arrival, fleet: Fleet, seed: int
) -> Iterator[Served | StepSeen]:
    if arrival.kind == "poisson":
        requests = _poisson(workload, arrival.amount / fleet.replicas, fleet.seconds, seed)
        yield from replica.serve(requests, fleet.seconds * 4)
        return
    together = max(1, round(arrival.amount / fleet.replicas))
    number = 0
    while replica.now < fleet.seconds:
        while len(replica.running) < min(together, fleet.limits.sequences):
            replica.admit(workload.request(number, replica.now, seed))
            number += 1
        yield from replica.step()


def _poisson(workload: Workload, rate: float, seconds: float, seed: int) -> Iterator[Invented]:
    rng = np.random.default_rng([seed, 31])
    due, number = 0.0, 0
    while True:
        due += float(rng.exponential(1 / rate))
        if due >= seconds:
            return
        yield workload.request(number, due, seed)
        number += 1


def _figures(
    policy: Policy,
    served: list[Served],
    steps: list[StepSeen],
    busy: float,
    elapsed: float,
    fleet: Fleet,
) -> dict[str, Any]:
    tokens = sum(step.emitted for step in steps)
    decoding = [step for step in steps if step.sequences]
    slots = sum(one.sequences for one in decoding)
    gaps = (delivery for one in served for delivery in one.deliveries)
    spread, times = speedups([one.time for one in served if one.deliveries]), token_times(gaps)
    waits = [one.ended - one.arrived for one in served] or [0.0]
    return {
        "policy": policy.name,
        "requests": len(served),
        "tokens_per_second": tokens / elapsed * fleet.replicas if elapsed else 0.0,
        "tokens_per_step": tokens / slots if slots else 0.0,
        "sequences": slots / len(decoding) if decoding else 0.0,
        "drafting_share": sum(s.asked for s in decoding) / slots if slots else 0.0,
        "busy": busy / elapsed if elapsed else 0.0,
        "seconds_per_request": {
            "p50": percentile(waits, 50),
            "p99": percentile(waits, 99),
        },
        "speedups": asdict(spread) if spread else None,
        "token_seconds": asdict(times) if times else None,
        "by_type": _by_type(served),
    }


def _by_type(served: list[Served]) -> dict[str, Any]:
    groups: dict[str, list[Served]] = defaultdict(list)
    for one in served:
        groups[one.request.profile.name].append(one)
    result = {}
    for name, group in sorted(groups.items()):
        spread = speedups([one.time for one in group if one.deliveries])
        drafters: dict[str, int] = defaultdict(int)
        for one in group:
            drafters[one.drafter] += 1
        drafted = sum(one.drafted for one in group)
        result[name] = {
            "requests": len(group),
            "drafting_requests": spread.requests if spread else 0,
            "speedup": spread.whole if spread else None,
            "slower": spread.slower if spread else None,
            "draft_acceptance_rate": sum(o.accepted for o in group) / drafted if drafted else None,
            "last_drafter": dict(sorted(drafters.items())),
        }
    return result


def _of_routers(routed: list[RoutedController]) -> dict[str, Any]:
    """Exploration and calibration, where a router decided."""
    if not routed:
        return {}
    seconds = sum(one.router.seconds for one in routed)
    explored = sum(one.router.explored_seconds for one in routed)
    return {
        "explored_share": explored / seconds if seconds else 0.0,
        "calibration": {
            "brier": routed[0].calibration.brier,
            "error": routed[0].calibration.error,
            "cells_within": routed[0].calibration.share_within(),
        },
    }
