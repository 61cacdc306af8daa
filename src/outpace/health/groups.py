"""Rows brought together by type and drafter, and what each group's figures are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from outpace.health.intervals import Share, quantile_of, share
from outpace.record.row import DraftCounts, Row
from outpace.request import FinishReason
from outpace.spec.pace import quantile

ALL = "all"
PLAIN = "none"
# Plain requests that are needed to judge the cost table by.
_FEWEST_PLAIN = 10


@dataclass(frozen=True, slots=True)
class Part:
    """What one drafter did for one request.

    Where a request had several drafters its times are not told apart: they count for the last.
    """

    row: Row
    draft: DraftCounts

    @property
    def drafter(self) -> str:
        """The drafter's name, with k where the request fixed it."""
        name, k = self.draft.drafter, self.row.features.get("num_speculative_tokens")
        return name if k is None or name == PLAIN else f"{name}:k={k}"

    @property
    def timed(self) -> bool:
        """Whether the request's times belong to this part."""
        return self.row.drafts[-1] is self.draft

    @property
    def plain(self) -> bool:
        """Whether nothing was ever drafted for the request, whatever the reason."""
        return not any(draft.drafted for draft in self.row.drafts)

    @property
    def tells_of_table(self) -> bool:
        """Whether its times are those of plain decoding alone: not even a drafter was asked."""
        asked = any(draft.asked for draft in self.row.drafts)
        return self.plain and not asked and self.measured is not None

    @property
    def measured(self) -> tuple[float, float] | None:
        """(spent, plain decoding by the cost table) in seconds; None if not known.

        Not of a request that was aborted: it was left in the middle, which is no result.
        """
        times = self.row.times
        if not self.timed or self.row.finish_reason == FinishReason.ABORT:
            return None
        if times.plain_seconds is None or times.clean_seconds <= 0:
            return None
        return times.clean_seconds, times.plain_seconds

    @property
    def speedup(self) -> float | None:
        """How many times faster than plain decoding by the cost table; None if not known.

        A plain request has none: what it took beside the table is the table's error.
        """
        measured = self.measured
        return None if measured is None or self.plain else measured[1] / measured[0]

    @property
    def load(self) -> float | None:
        """Sequences in a step, in the mean over its clean steps."""
        times = self.row.times
        return times.sharing / times.clean_steps if self.timed and times.clean_steps else None

    def tried(self, position: int) -> tuple[int, int]:
        """(right, tried) at a draft position, counted from 0."""
        if position >= len(self.draft.accepted_at):
            return 0, 0
        right = self.draft.accepted_at[position]
        return right, right + self.draft.rejected_at[position]


@dataclass(frozen=True, slots=True)
class Group:
    """Parts of one type and drafter; ``all`` stands for every type or drafter."""

    request_type: str
    drafter: str
    parts: tuple[Part, ...]

    @property
    def requests(self) -> int:
        """How many there are; one that had several drafters is one."""
        return len({id(part.row) for part in self.parts})

    def total(self, name: str) -> int:
        """The sum of a count over its parts."""
        return sum(getattr(part.draft, name) for part in self.parts)

    @property
    def alpha(self) -> Share:
        """Accepted over accepted and rejected guesses."""
        return share(
            [(p.draft.accepted, p.draft.accepted + p.draft.rejections) for p in self.parts]
        )

    @property
    def positions(self) -> list[Share]:
        """Conditional acceptance by draft position: right of those that were tried there."""
        longest = max((len(part.draft.accepted_at) for part in self.parts), default=0)
        found = [share([part.tried(at) for part in self.parts]) for at in range(longest)]
        while found and found[-1].tried == 0:
            found.pop()
        return found

    @property
    def acceptance_length(self) -> float | None:
        """Tokens a target step."""
        steps = self.total("steps")
        return self.total("emitted") / steps if steps else None

    @property
    def speedups(self) -> list[float]:
        """Of each request that drafted and for which it is known."""
        return [one for part in self.parts if (one := part.speedup) is not None]

    @property
    def seconds(self) -> tuple[float, float] | None:
        """(spent, plain decoding by the cost table) of the requests that have a speed-up."""
        return _added(part.measured for part in self.parts if not part.plain)

    @property
    def plain_requests(self) -> int:
        """How many drafted nothing, so that they were decoded plainly."""
        return len({id(part.row) for part in self.parts if part.plain})

    @property
    def plain_over_table(self) -> float | None:
        """What its plain requests took over what the cost table says: the table's error.

        None if there are none whose times are known. Asking a drafter in vain takes time too, so
        that requests for which one was asked do not tell.
        """
        seconds = _added(part.measured for part in self.parts if part.tells_of_table)
        return seconds[0] / seconds[1] if seconds and seconds[1] else None

    @property
    def reasons(self) -> Counter[str]:
        """Why nothing was drafted, with steps."""
        found: Counter[str] = Counter()
        for part in self.parts:
            found.update(part.draft.reasons)
        return found

    def brief(self) -> dict[str, Any]:
        """The figures that tell most, plain for JSON; docs/record.md has the definitions."""
        steps, seconds, speedups = self.total("steps"), self.seconds, self.speedups
        drafted, accepted = self.total("drafted"), self.total("accepted")
        return {
            "type": self.request_type,
            "drafter": self.drafter,
            "requests": self.requests,
            "tokens": self.total("emitted"),
            "target_steps": steps,
            "asked": self.total("asked"),
            "drafted": drafted,
            "accepted": accepted,
            "rejections": self.total("rejections"),
            "asked_per_step": self.total("asked") / steps if steps else None,
            "drafted_per_step": drafted / steps if steps else None,
            "alpha": self.alpha.as_plain(),
            "draft_acceptance_rate": accepted / drafted if drafted else None,
            "acceptance_length": self.acceptance_length,
            "spent_seconds": seconds[0] if seconds else None,
            "plain_seconds": seconds[1] if seconds else None,
            "speedup": seconds[1] / seconds[0] if seconds else None,
            "speedup_requests": len(speedups),
            "speedup_p5": quantile_of(speedups, 0.05),
            "speedup_p50": quantile_of(speedups, 0.5),
            "speedup_p95": quantile_of(speedups, 0.95),
            "plain_requests": self.plain_requests,
            "plain_over_table": self.plain_over_table,
            "slower_share": sum(s < 1 for s in speedups) / len(speedups) if speedups else None,
            "step_seconds_p99": quantile(self._times("steps"), 0.99),
        }

    def as_plain(self) -> dict[str, Any]:
        """All figures."""
        speedups = self.speedups
        timed = [part.row for part in self.parts if part.timed]
        first = [r.first_token_seconds for r in timed if r.first_token_seconds is not None]
        return self.brief() | {
            "positions": [one.as_plain() for one in self.positions],
            "slower_by_5_percent_share": (
                sum(s < 1 / 1.05 for s in speedups) / len(speedups) if speedups else None
            ),
            "token_seconds_p99": quantile(self._times("tokens"), 0.99),
            "first_token_seconds_p50": quantile_of(first, 0.5),
            "total_seconds_p50": quantile_of([row.total_seconds for row in timed], 0.5),
            "preemptions": sum(row.preemptions for row in timed),
            "reasons": dict(self.reasons.most_common()),
        }

    def _times(self, name: str) -> Counter[int]:
        """Times of steps or of tokens by their size, over all requests."""
        found: Counter[int] = Counter()
        for part in self.parts:
            if part.timed:
                found.update(getattr(part.row.times, name))
        return found


def parts_of(rows: Iterable[Row]) -> list[Part]:
    """Each drafter's part in each request."""
    return [Part(row, draft) for row in rows for draft in row.drafts]


def by_type_and_drafter(rows: Iterable[Row]) -> list[Group]:
    """A group for each type and drafter that occur together, the largest type first."""
    return _grouped(parts_of(rows), lambda p: (p.row.request_type, p.drafter))


def by_type(rows: Iterable[Row]) -> list[Group]:
    """A group for each type, all drafters together."""
    return _grouped(parts_of(rows), lambda p: (p.row.request_type, ALL))


def by_drafter(rows: Iterable[Row]) -> list[Group]:
    """A group for each drafter, all types together."""
    return _grouped(parts_of(rows), lambda p: (ALL, p.drafter))


def whole(rows: Iterable[Row]) -> Group:
    """All of them in one."""
    return Group(ALL, ALL, tuple(parts_of(rows)))


def plain_factor(rows: Iterable[Row]) -> float:
    """What plain requests of the record took, over what the cost table says; 1 if few are there.

    A cost table knows nothing of a machine that is busy with something else. Plain requests
    beside the others do.
    """
    telling = tuple(part for part in parts_of(rows) if part.tells_of_table)
    off = Group(ALL, PLAIN, telling).plain_over_table
    return off if off is not None and len(telling) >= _FEWEST_PLAIN else 1.0


def _added(pairs: Iterable[tuple[float, float] | None]) -> tuple[float, float] | None:
    known = [pair for pair in pairs if pair is not None]
    return (sum(p[0] for p in known), sum(p[1] for p in known)) if known else None


def _grouped(parts: Sequence[Part], key: Callable[[Part], tuple[str, str]]) -> list[Group]:
    found: dict[tuple[str, str], list[Part]] = {}
    sizes: Counter[str] = Counter()
    for part in parts:
        found.setdefault(key(part), []).append(part)
        sizes[key(part)[0]] += 1
    ordered = sorted(found.items(), key=lambda item: (-sizes[item[0][0]], item[0]))
    return [Group(*names, tuple(members)) for names, members in ordered]
