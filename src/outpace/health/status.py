"""Whether speculation is well, as a server says it under ``/health/speculation``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from outpace.control.drift import Alarm
from outpace.health.findings import WARNING, Finding, find
from outpace.health.groups import whole
from outpace.record.row import Row

OK, ATTENTION = "ok", "attention"


def speculation_health(
    rows: Sequence[Row], alarms: Iterable[Alarm] = (), at_start: Iterable[Finding] = ()
) -> dict[str, Any]:
    """The JSON body.

    ``status`` is ``attention`` if there is a warning: speculation costs time or is broken. The
    answers are right in any case, so that this is no reason to take a server out of service.

    Args:
        rows: the last requests.
        alarms: of drift.
        at_start: what was found when the models were loaded.
    """
    found = [*at_start, *find(rows, alarms)]
    group = whole(rows)
    seconds = group.seconds
    return {
        "status": ATTENTION if any(one.severity == WARNING for one in found) else OK,
        "requests": len(rows),
        "acceptance_length": group.acceptance_length,
        "alpha": group.alpha.as_plain(),
        "speedup": seconds[1] / seconds[0] if seconds else None,
        "findings": [one.as_plain() for one in found],
    }
