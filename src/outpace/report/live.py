"""The live page's data: a window of the last requests, and the last minutes' steps."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from importlib.resources import files
from typing import Any

from outpace.control.controller import StepRecord
from outpace.control.drift import Alarm, DriftSettings, DriftWatch
from outpace.control.step_log import Second, StepLog
from outpace.health.findings import Finding
from outpace.health.groups import by_type, by_type_and_drafter, whole
from outpace.health.history import watch
from outpace.health.status import speculation_health
from outpace.record.row import Row

WINDOW_REQUESTS = 500
WINDOW_SECONDS = 300
_MOST_ALARMS = 20


def live_data(
    rows: Sequence[Row],
    seconds: Sequence[Second],
    alarms: Sequence[Alarm],
    now: float,
    health: dict[str, Any],
) -> dict[str, Any]:
    """All that the page shows, plain for JSON.

    Args:
        rows: the last requests, oldest first.
        seconds: the last steps.
        alarms: of drift, all since the start.
        now: seconds since 1970.
        health: of `outpace.health.status.speculation_health`.
    """
    return {
        "now": now,
        "window": {
            "requests": len(rows),
            "since": min((row.arrived for row in rows), default=None),
            "seconds": WINDOW_SECONDS,
        },
        "models": sorted({row.model for row in rows}),
        "all": whole(rows).brief(),
        "types": [group.brief() for group in by_type(rows)],
        "groups": [group.brief() for group in by_type_and_drafter(rows)],
        "steps": [second.as_plain() for second in seconds],
        "health": health,
        "alarms": [alarm.as_plain() for alarm in alarms[-_MOST_ALARMS:][::-1]],
    }


class Live:
    """What a server keeps for its live page; may be used from several threads.

    Args:
        at_start: what was found when the models were loaded.
        settings: of the drift tests.
        clock: seconds since 1970.
        now_found: asked for what is found beside the requests, each time.
    """

    def __init__(
        self,
        at_start: Iterable[Finding] = (),
        settings: DriftSettings | None = None,
        clock: Callable[[], float] = time.time,
        now_found: Callable[[], Iterable[Finding]] = tuple,
    ) -> None:
        self._at_start = tuple(at_start)
        self._clock = clock
        self._rows: deque[Row] = deque(maxlen=WINDOW_REQUESTS)
        self._steps = StepLog(WINDOW_SECONDS)
        self._watch = DriftWatch(settings)
        self._alarms: deque[Alarm] = deque(maxlen=_MOST_ALARMS)
        self._now_found = now_found
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._kept: tuple[int, dict[str, Any]] | None = None

    def remember(self, rows: Iterable[Row]) -> None:
        """Take in the rows of an earlier run, so that baselines survive a restart."""
        for row in rows:
            self.add_row(row)

    def add_row(self, row: Row) -> list[Alarm]:
        """Take in an ended request; returns the alarms that it completes."""
        with self._lock:
            self._rows.append(row)
            alarms = watch(self._watch, row)
            self._alarms.extend(alarms)
            return alarms

    def add_step(self, step: StepRecord) -> None:
        """Take in a step; meant for `outpace.engine.engine.Engine.on_step`."""
        self._steps.add(step, self._clock())

    def data(self) -> dict[str, Any]:
        """The page's data; made at most once a second, however many look."""
        with self._making:
            now = self._clock()
            if self._kept is None or self._kept[0] != int(now):
                with self._lock:
                    rows, alarms, recent = self._window()
                seconds = self._steps.since(now - WINDOW_SECONDS)
                health = speculation_health(rows, recent, self._beside())
                self._kept = (int(now), live_data(rows, seconds, alarms, now, health))
            return self._kept[1]

    def health(self) -> dict[str, Any]:
        """The body of ``/health/speculation``, as the page has it."""
        health: dict[str, Any] = self.data()["health"]
        return health

    def _beside(self) -> list[Finding]:
        return [*self._at_start, *self._now_found()]

    def _window(self) -> tuple[list[Row], list[Alarm], list[Alarm]]:
        """The last rows, all alarms that are kept, and those that are as young as the rows."""
        alarms = list(self._alarms)
        oldest = self._watch.requests - WINDOW_REQUESTS
        return list(self._rows), alarms, [one for one in alarms if one.at > oldest]


def live_page(data_url: str = "dashboard/data") -> str:
    """The live page: one HTML document that fetches its data from ``data_url`` alone.

    Where a key is needed the page asks for it, and sends it as the bearer token. It also takes one
    from behind ``#key=`` in its address; what stands behind the ``#`` does not leave the browser.
    """
    style = (files("outpace.charts") / "page.css").read_text("utf-8")
    text = (files("outpace.report") / "live.html").read_text("utf-8")
    return text.replace("/* page.css */", style).replace("DATA_URL", data_url)
