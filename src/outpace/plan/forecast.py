"""The whole plan: from a setting to every number that is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from outpace.config import check_integer, check_number
from outpace.errors import CapacityError, InvalidValueError
from outpace.plan.capacity import Fleet, Replica, best_replica, fleet
from outpace.plan.memory import Memory, MemoryParts
from outpace.plan.mix import Mix, RequestType
from outpace.plan.speedup import Pair, Paying, paying

LARGEST_K = 32
# Batches beyond what fits are looked at too, up to here, to tell a crossing from the memory's end.
_FARTHEST = 4096


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of the replicas.

    Attributes:
        rate: requests a second, or None if only one replica is of interest.
        latency_target: most seconds between a sequence's tokens, or None.
        utilization: most of a replica's time that may be busy, so that queues stay short.
    """

    rate: float | None = None
    latency_target: float | None = None
    utilization: float = 0.8

    def __post_init__(self) -> None:
        if self.rate is not None:
            check_number("rate", self.rate, "must be requests a second, above 0", 1e-9, 1e9)
        if self.latency_target is not None:
            wanted = "must be a time between tokens above 0 and at most 60 s"
            check_number("latency_target", self.latency_target, wanted, 1e-9, 60)
        wanted = "must be a number above 0 and at most 1"
        check_number("utilization", self.utilization, wanted, 1e-3, 1)


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything that a forecast is made from.

    Attributes:
        pair: step times, the mix and the context.
        memory: what must fit.
        load: what is asked for.
        max_k: the largest k to look at.
        measured_batches: the only batches that step times may be asked for, if they are measured;
            None: any.
    """

    pair: Pair
    memory: Memory
    load: Load
    max_k: int
    measured_batches: tuple[int, ...] | None = None

    @property
    def ks(self) -> range:
        """Every k that is looked at, 0 included."""
        return range(self.max_k + 1)

    def batches(self, k: int, drafting: bool) -> Sequence[int]:
        """Batches that fit into memory, ascending."""
        limit = self.memory.largest_batch(k, drafting)
        if self.measured_batches is None:
            return range(1, limit + 1)
        return [batch for batch in self.measured_batches if batch <= limit]


@dataclass(frozen=True, slots=True)
class AtBatch:
    """One batch: tokens a second and speed-up by k, None where that k does not fit."""

    batch: int
    tokens_per_second: tuple[float | None, ...]
    speedups: tuple[float | None, ...]
    best_k: int


@dataclass(frozen=True, slots=True)
class OfType:
    """One kind of request alone, at batch 1."""

    name: str
    share: float
    alpha: tuple[float, ...]
    best_k: int
    speedup: float
    acceptance_length: float


@dataclass(frozen=True, slots=True)
class SmallerBatch:
    """What the draft's memory costs: the largest batches, and tokens a second at them.

    Attributes:
        batch_without, batch_with: largest batches without the draft, and with it at ``k``.
        k: the best at the batch with the draft.
        plain_without: plain decoding at the batch without the draft.
        plain_with: plain decoding at the batch that is left with the draft loaded.
        drafted: with k draft tokens at that batch.
    """

    batch_without: int
    batch_with: int
    k: int
    plain_without: float
    plain_with: float
    drafted: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """The plan's results; times are in seconds, memory is in bytes.

    Attributes:
        largest_without: most sequences without the draft.
        largest_with: the same with the draft, by k.
        memory_without, memory_with: where the memory goes at these batches; with the draft at
            the best k of batch 1.
        step_seconds: steps at batch 1 by k.
        draft_ratio: a draft step over a target step at batch 1 (the paper's c).
        at_batches: by batch.
        paying_by_k: for each k the batches where it beats plain decoding, whether or not memory
            holds them; index 0 is the best k of each batch.
        types: each kind of request alone.
        plain: the replica without a draft, or None if the latency target is out of reach.
        drafted: for each k above 0 the replica with the draft.
        smaller_batch: what the draft's memory costs.
        plain_fleet, drafted_fleet: replicas for the arrival rate; the latter at the best k.
        notes: what a reader should know about this setting.
    """

    largest_without: int
    largest_with: tuple[int, ...]
    memory_without: MemoryParts
    memory_with: MemoryParts
    step_seconds: tuple[float, ...]
    draft_ratio: float
    at_batches: tuple[AtBatch, ...]
    paying_by_k: tuple[Paying, ...]
    types: tuple[OfType, ...]
    plain: Replica | None
    drafted: tuple[Replica | None, ...]
    smaller_batch: SmallerBatch
    plain_fleet: Fleet | None
    drafted_fleet: Fleet | None
    notes: tuple[str, ...]

    @property
    def best_drafted(self) -> Replica | None:
        """The drafting replica that finishes most requests."""
        return _busiest([one for one in self.drafted if one is not None])

    @property
    def cost_ratio(self) -> float | None:
        """Replicas with speculation over replicas without, before rounding to whole ones."""
        best = self.best_drafted
        if best is None or self.plain is None:
            return None
        return self.plain.requests_per_second / best.requests_per_second


def forecast(setting: Setting) -> Forecast:
    """Work out a plan.

    Raises:
        CapacityError: the models do not fit, with or without a batch.
        InvalidValueError: a value that no plan can be made with.
    """
    check_integer("max_k", setting.max_k, 1, LARGEST_K)
    pair, memory = setting.pair, setting.memory
    _check_contexts(memory)
    largest_without = memory.need_batch(0, False)
    memory.need_batch(1, True)
    first_k = pair.best_k(1, setting.ks)
    at_batches = tuple(_at_batch(setting, batch) for batch in _shown(setting))
    plain = best_replica(pair, 0, setting.batches(0, False), setting.load.latency_target)
    drafted = tuple(
        best_replica(pair, k, setting.batches(k, True), setting.load.latency_target)
        for k in setting.ks[1:]
    )
    best = _busiest([one for one in drafted if one is not None])
    rate, utilization = setting.load.rate, setting.load.utilization
    memory_k = max(first_k, 1)
    largest_with = tuple(memory.largest_batch(k, True) for k in setting.ks)
    one_step = pair.step_seconds(1, 0)
    return Forecast(
        largest_without=largest_without,
        largest_with=largest_with,
        memory_without=memory.parts(largest_without, 0, False),
        memory_with=memory.parts(largest_with[memory_k], memory_k, True),
        step_seconds=tuple(pair.step_seconds(1, k) for k in setting.ks),
        draft_ratio=draft_step(pair) / one_step,
        at_batches=at_batches,
        paying_by_k=_paying(setting),
        types=tuple(_of_type(setting, one) for one in pair.mix.types),
        plain=plain,
        drafted=drafted,
        smaller_batch=_smaller_batch(setting),
        plain_fleet=None if rate is None or plain is None else fleet(plain, rate, utilization),
        drafted_fleet=None if rate is None or best is None else fleet(best, rate, utilization),
        notes=_notes(memory),
    )


def draft_step(pair: Pair) -> float:
    """Seconds of one draft step at batch 1."""
    from outpace.plan.steps import Shape

    return pair.draft(Shape(1, 1, pair.context))


def _busiest(replicas: list[Replica]) -> Replica | None:
    return max(replicas, key=lambda one: one.requests_per_second, default=None)


def _check_contexts(memory: Memory) -> None:
    for role, deployed in (("target", memory.target), ("draft", memory.draft)):
        if deployed is not None and memory.context > deployed.model.context:
            longest = deployed.model.context
            way_out = f"the {role} {deployed.model.name} has a context of {longest} tokens"
            raise InvalidValueError("context", memory.context, way_out)


def _notes(memory: Memory) -> tuple[str, ...]:
    if memory.draft is None:
        return ()
    target, draft = memory.target.model, memory.draft.model
    if draft.layers > 1 and not 0.98 < draft.vocab / target.vocab < 1.02:
        return (
            f"The vocabularies differ ({target.vocab} and {draft.vocab} tokens): such a draft "
            "needs its tokens translated, which is not counted here.",
        )
    return ()


def _shown(setting: Setting) -> list[int]:
    """Powers of two as far as memory goes, and where it ends."""
    limit = setting.memory.largest_batch(0, False)
    if setting.measured_batches is not None:
        return list(setting.batches(0, False))
    powers = {2**i for i in range(limit.bit_length()) if 2**i <= limit}
    ends = {limit, setting.memory.largest_batch(1, True)} - {0}
    return sorted(powers | ends)


def _at_batch(setting: Setting, batch: int) -> AtBatch:
    pair = setting.pair
    fits = [setting.memory.largest_batch(k, k > 0) >= batch for k in setting.ks]
    ks = [k for k in setting.ks if fits[k]]
    rates = [pair.tokens_per_second(batch, k) if fits[k] else None for k in setting.ks]
    gains = [pair.speedup(batch, k) if fits[k] else None for k in setting.ks]
    return AtBatch(batch, tuple(rates), tuple(gains), pair.best_k(batch, ks))


def _paying(setting: Setting) -> tuple[Paying, ...]:
    pair, refine = setting.pair, setting.measured_batches is None
    if setting.measured_batches is not None:
        batches = list(setting.measured_batches)
    else:
        steps = [round(2 ** (i / 4)) for i in range(4 * _FARTHEST.bit_length() - 3)]
        batches = sorted({batch for batch in steps if batch <= _FARTHEST} | {_FARTHEST})

    def best(batch: int) -> float:
        return max(pair.speedup(batch, k) for k in setting.ks)

    by_k = [paying(lambda b, k=k: pair.speedup(b, k), batches, refine) for k in setting.ks[1:]]  # type: ignore[misc]
    return (paying(best, batches, refine), *by_k)


def _of_type(setting: Setting, one: RequestType) -> OfType:
    alone = replace(setting.pair, mix=Mix.of([one]))
    k = alone.best_k(1, setting.ks)
    return OfType(
        one.name, one.share, one.alpha, k, alone.speedup(1, k), alone.mix.tokens_per_step(k)
    )


def _smaller_batch(setting: Setting) -> SmallerBatch:
    pair = setting.pair
    without = setting.batches(0, False)[-1]
    best: SmallerBatch | None = None
    for k in setting.ks[1:]:
        batches = setting.batches(k, True)
        if not batches:
            continue
        batch = batches[-1]
        drafted = pair.tokens_per_second(batch, k)
        if best is None or drafted > best.drafted:
            plain = pair.tokens_per_second(batch, 0)
            before = pair.tokens_per_second(without, 0)
            best = SmallerBatch(without, batch, k, before, plain, drafted)
    if best is None:
        raise CapacityError("no batch with a draft was measured that fits into memory")
    return best
