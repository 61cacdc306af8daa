"""Whether drafts and target are growing apart: sequential tests with a known false-alarm rate."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from outpace.config import check_integer
from outpace.control.evidence import Baseline, Bets
from outpace.control.mix import MixTest

EVERY_TYPE = "all types"
ACCEPTANCE, MIX = "acceptance", "mix"
# Positions from this one on are taken together: they are reached seldom.
_LAST_POSITION = 8
# Guesses of one request that count; more of them say little more, since they are alike.
_LARGEST_REQUEST = 32
# How many standard errors below the baseline a fall begins, and how much at least.
_ERRORS, _SMALLEST_FALL = 2.0, 0.01
_RECENT = 50
# Kinds of requests that are told apart; those that come later are not watched.
_MOST_KINDS = 64


@dataclass(frozen=True, slots=True)
class DriftSettings:
    """How sure and how quick.

    Attributes:
        requests_between_false_alarms: while nothing changes, in the mean at least so many.
        learn: requests of a type from which its baseline is taken.
    """

    requests_between_false_alarms: int = 10_000
    learn: int = 150

    def __post_init__(self) -> None:
        for name in ("requests_between_false_alarms", "learn"):
            check_integer(name, getattr(self, name), 20, 10**9)


@dataclass(frozen=True, slots=True)
class Guesses:
    """One request's guesses: how many were tried and right, by position from the first on."""

    request_type: str
    drafter: str
    tried: Sequence[int]
    right: Sequence[int]


@dataclass(frozen=True, slots=True)
class Alarm:
    """Something has changed.

    Attributes:
        kind: ``acceptance`` or ``mix``.
        at: how many requests had come.
        request_type: of which type; ``all types`` if it shows over all of them together.
        drafter: whose guesses.
        position: in the draft; None for all together. The last one stands for later ones too.
        before: what was usual: the share of right guesses, or the frequency of the type.
        now: the same over the last requests.
        requests: about how many of its requests ago it began.
        evidence: how often an alarm is likelier now than without a change.
    """

    kind: str
    at: int
    request_type: str
    drafter: str
    position: int | None
    before: float
    now: float
    requests: int
    evidence: float

    def as_plain(self) -> dict[str, Any]:
        """A plain structure for JSON."""
        return asdict(self) | {"text": self.text}

    @property
    def text(self) -> str:
        """A sentence for people."""
        change = f"from {self.before:.2f} to {self.now:.2f}"
        if self.kind == MIX:
            return (
                f"other requests come than used to: the share of {self.request_type} went "
                f"{change}; that is no drift, though averages over all types move with it"
            )
        where = "" if self.position is None else f" at draft position {self.position}"
        if self.position == _LAST_POSITION:
            where += " and later"
        return (
            f"drafter {self.drafter} and target grow apart: for {self.request_type}, guesses"
            f"{where} are right less often: {change} over the last requests"
        )


@dataclass(slots=True)
class _Seen:
    """Guesses that were tried and right; how many should be right, and how many at least."""

    tried: float = 0.0
    right: float = 0.0
    usual: float = 0.0
    least: float = 0.0

    def __iadd__(self, other: _Seen) -> _Seen:
        self.tried += other.tried
        self.right += other.right
        self.usual += other.usual
        self.least += other.least
        return self


@dataclass(slots=True)
class _Stream:
    """One test: its evidence, its threshold, and what was right lately."""

    threshold: float
    bets: Bets = field(default_factory=Bets)
    recent: deque[tuple[float, float, float]] = field(default_factory=lambda: deque(maxlen=_RECENT))

    def add(self, seen: _Seen, worst: float) -> bool:
        """Take in a request; returns whether there is enough evidence for an alarm.

        ``worst`` is the largest share of wrong guesses that is still usual anywhere.
        """
        self.recent.append((seen.tried, seen.right, seen.usual))
        scale = max(seen.tried, _LARGEST_REQUEST)
        self.bets.add((seen.least - seen.right) / scale, seen.tried / scale, worst)
        return self.bets.level >= self.threshold

    def before_and_now(self) -> tuple[float, float]:
        last = list(self.recent)[-max(self.bets.span, 10) :]
        tried = sum(one[0] for one in last) or 1.0
        return sum(one[2] for one in last) / tried, sum(one[1] for one in last) / tried


class DriftWatch:
    """Watches the share of right guesses by type, drafter and position, and the mix of types.

    For each of them the first requests give a baseline. Then three kinds of test run, and the
    false alarms that are allowed are shared among them: one over all types together, one for
    each type, one for each type and position. Each guess is held against the baseline of its own
    type and position, so that other types, or longer drafts, alone change nothing. The unit is
    the request, not the guess: those of one request are alike. The mix of types has a test of
    its own with the same rate.

    Only falls are looked for: guesses that are right more often are no fault.

    Args:
        settings: how sure and how quick.
    """

    def __init__(self, settings: DriftSettings | None = None) -> None:
        self.settings = settings or DriftSettings()
        self.requests = 0
        self._baselines: dict[tuple[str, str, int], Baseline] = {}
        self._streams: dict[tuple[str, str, int | None], _Stream] = {}
        self._mix = MixTest(self.settings.learn)

    def add(self, guesses: Guesses) -> list[Alarm]:
        """Take in an ended request; returns the alarms that it completes."""
        return self.add_mix_only(guesses.request_type) + self.add_guesses(guesses)

    def add_guesses(self, guesses: Guesses) -> list[Alarm]:
        """Take in what a further drafter did for a request that was counted already."""
        alarms: list[Alarm] = []
        kind, drafter = guesses.request_type, guesses.drafter
        worst = self._worst(kind, drafter)
        together = _Seen()
        for position, tried, right in _by_position(guesses):
            baseline = self._baseline(kind, drafter, position)
            if baseline is None or tried == 0:
                continue
            if baseline.requests < self.settings.learn:
                baseline.add(right / tried, min(1.0, tried / _LARGEST_REQUEST))
                continue
            seen = _Seen(tried, right, tried * baseline.mean, tried * _least(baseline))
            alarms += self._test((kind, drafter, position), seen, 1 - _least(baseline))
            together += seen
        if together.tried:
            for name in (kind, EVERY_TYPE):
                alarms += self._test((name, drafter, None), together, worst)
        return alarms

    def add_mix_only(self, request_type: str) -> list[Alarm]:
        """Take in a request for which nothing was drafted."""
        self.requests += 1
        self._mix.add(request_type)
        threshold = self.settings.requests_between_false_alarms
        if self._mix.level < threshold:
            return []
        name, before, now = self._mix.changes()[0]
        alarm = Alarm(MIX, self.requests, name, "", None, before, now, 0, self._mix.level)
        self._mix.relearn()
        return [alarm]

    def begin_anew(self, drafter: str) -> None:
        """Another drafter has this name from now on: learn what is usual for it."""
        self._baselines = {k: v for k, v in self._baselines.items() if k[1] != drafter}
        self._streams = {k: v for k, v in self._streams.items() if k[1] != drafter}

    def _baseline(self, kind: str, drafter: str, position: int) -> Baseline | None:
        key = (kind, drafter, position)
        if key not in self._baselines and len(self._baselines) >= _MOST_KINDS * _LAST_POSITION:
            return None
        return self._baselines.setdefault(key, Baseline())

    def _worst(self, kind: str, drafter: str) -> float:
        """The largest share of wrong guesses that is usual at any position that was learned."""
        shares = [
            1 - _least(baseline)
            for position in range(1, _LAST_POSITION + 1)
            if (baseline := self._baselines.get((kind, drafter, position))) is not None
            and baseline.requests >= self.settings.learn
        ]
        return max(shares, default=1.0)

    def _test(self, key: tuple[str, str, int | None], seen: _Seen, worst: float) -> list[Alarm]:
        stream = self._streams.get(key)
        if stream is None:
            # Each of the three kinds of test may raise a third of the false alarms.
            parts = 3 if key[2] is None else 3 * _LAST_POSITION
            threshold = parts * self.settings.requests_between_false_alarms
            stream = self._streams[key] = _Stream(threshold)
        if not stream.add(seen, worst):
            return []
        before, now = stream.before_and_now()
        kind, drafter, position = key
        level, span = stream.bets.level / stream.threshold, stream.bets.span
        stream.bets.restart()
        return [Alarm(ACCEPTANCE, self.requests, kind, drafter, position, before, now, span, level)]

    def status(self) -> list[dict[str, Any]]:
        """How far each test is, for pages: learning, or its evidence as a share of an alarm's."""
        rows: list[dict[str, Any]] = []
        for (kind, drafter, position), baseline in self._baselines.items():
            learning = baseline.requests < self.settings.learn
            stream = self._streams.get((kind, drafter, position))
            level = stream.bets.level / stream.threshold if stream else 0.0
            row: dict[str, Any] = {"type": kind, "drafter": drafter, "position": position}
            row |= {"learned": baseline.requests, "of": self.settings.learn}
            row |= {"usual": baseline.mean if baseline.requests else None}
            rows.append(row | {"evidence": None if learning else level})
        return rows


def _least(baseline: Baseline) -> float:
    """The share of right guesses below which something has changed."""
    margin = max(_ERRORS * baseline.error, _SMALLEST_FALL)
    return max(baseline.mean - margin, 0.0)


def _by_position(guesses: Guesses) -> list[tuple[int, int, int]]:
    """(position, tried, right), with the late positions added up."""
    found: dict[int, tuple[int, int]] = {}
    for index, (tried, right) in enumerate(zip(guesses.tried, guesses.right, strict=True)):
        position = min(index + 1, _LAST_POSITION)
        before = found.get(position, (0, 0))
        found[position] = (before[0] + tried, before[1] + right)
    return [(position, *counts) for position, counts in sorted(found.items())]
