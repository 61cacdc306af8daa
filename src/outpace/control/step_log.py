"""What the last minutes' steps did, second by second."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass
from typing import Any

from outpace.control.controller import StepRecord


@dataclass(slots=True)
class Second:
    """The steps that ended within one second; counts are added up over them.

    Attributes:
        at: the second, since 1970.
        steps: that were made.
        sequences: that took part.
        asked: draft tokens that were allowed.
        drafted, accepted: that were made, and right.
        emitted: all tokens that left.
        busy: seconds that the steps took.
    """

    at: int
    steps: int = 0
    sequences: int = 0
    asked: int = 0
    drafted: int = 0
    accepted: int = 0
    emitted: int = 0
    busy: float = 0.0

    def as_plain(self) -> dict[str, Any]:
        """A plain structure for JSON."""
        return asdict(self)


class StepLog:
    """Keeps the last seconds in which anything was done.

    Args:
        seconds: how many of them.
    """

    def __init__(self, seconds: int = 600) -> None:
        self._seconds: deque[Second] = deque(maxlen=seconds)

    def add(self, step: StepRecord, now: float) -> None:
        """Count a step that ended now, in seconds since 1970."""
        at = int(now)
        if not self._seconds or self._seconds[-1].at != at:
            self._seconds.append(Second(at))
        second = self._seconds[-1]
        second.steps += 1
        second.sequences += len(step.outcomes)
        second.busy += step.verify_seconds + step.draft_seconds + step.rest_seconds
        for outcome in step.outcomes:
            second.asked += outcome.asked
            second.drafted += outcome.drafted
            second.accepted += outcome.accepted
            second.emitted += outcome.emitted

    def since(self, at: float) -> list[Second]:
        """The seconds from that one on, oldest first."""
        return [second for second in list(self._seconds) if second.at >= at]
