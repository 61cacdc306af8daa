"""How many replicas a load needs, and what the draft's memory costs."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

from outpace.plan.speedup import Pair


@dataclass(frozen=True, slots=True)
class Replica:
    """What one replica does at its best batch within a latency target.

    Attributes:
        k: draft tokens a step.
        batch: sequences at once.
        requests_per_second: finished, prompts included.
        tokens_per_second: emitted, prompts included in the time.
        seconds_per_token: of one sequence between its tokens, the prompts of others included.
        prefill_share: of the time.
    """

    k: int
    batch: int
    requests_per_second: float
    tokens_per_second: float
    seconds_per_token: float
    prefill_share: float


@dataclass(frozen=True, slots=True)
class Fleet:
    """Replicas for an arrival rate: the exact number, and whole ones."""

    replica: Replica
    exact: float
    replicas: int


def busy_seconds(pair: Pair, batch: int, k: int) -> float:
    """A replica's time for one request: its prompt, and its share of the steps of a full batch."""
    output = pair.mix.mean_output
    return pair.prefill_seconds(k > 0) + output / pair.tokens_per_second(batch, k)


def seconds_per_token(pair: Pair, batch: int, k: int) -> float:
    """Time between a sequence's tokens when ``batch`` run at once and arrivals keep it so.

    By Little's law a request stays ``batch`` times the replica's time for one.
    """
    return batch * busy_seconds(pair, batch, k) / pair.mix.mean_output


def best_replica(
    pair: Pair, k: int, batches: Sequence[int], target_seconds: float | None
) -> Replica | None:
    """The replica with the largest batch that meets the target.

    Args:
        pair: the models.
        k: draft tokens a step.
        batches: that fit into memory, ascending.
        target_seconds: most time between a sequence's tokens; None: any.

    Returns:
        None where not even the smallest batch meets it, or none fits.
    """
    if not batches:
        return None
    at = len(batches)
    if target_seconds is not None:
        at = bisect.bisect_right(
            batches, target_seconds, key=lambda batch: seconds_per_token(pair, batch, k)
        )
        if at == 0:
            return None
    batch = batches[at - 1]
    busy = busy_seconds(pair, batch, k)
    return Replica(
        k=k,
        batch=batch,
        requests_per_second=1 / busy,
        tokens_per_second=pair.mix.mean_output / busy,
        seconds_per_token=seconds_per_token(pair, batch, k),
        prefill_share=pair.prefill_seconds(k > 0) / busy,
    )


def fleet(replica: Replica, rate: float, utilization: float) -> Fleet:
    """Replicas for ``rate`` requests a second, each busy for at most that share of its time."""
    exact = rate / (replica.requests_per_second * utilization)
    return Fleet(replica, exact, max(math.ceil(exact - 1e-9), 1))
