"""What ended requests leave behind: experience, times against plain decoding, alarms."""

from __future__ import annotations

import logging
from collections import deque

from outpace.control.drift import (
    ACCEPTANCE,
    EVERY_TYPE,
    Alarm,
    DriftSettings,
    DriftWatch,
    Guesses,
)
from outpace.control.lengths import AnswerLengths
from outpace.control.state import SequenceState
from outpace.control.tail import RequestTime, SpeedupDistribution, speedups
from outpace.control.typed_acceptance import TypedAcceptance

_MOST_TIMES, _MOST_ALARMS = 1000, 100
# An alarm about the same type and drafter is logged again after so many requests.
_SILENCE = 1000
_LOG = logging.getLogger("outpace")


class Aftermath:
    """Learns from each request when it ends, and watches whether what was learned still holds.

    An alarm of the drift tests is logged, kept, and makes `TypedAcceptance` forget quickly what it
    knew of the guesses in question. Nothing that is wrong here could change a token.

    Args:
        history: that is learned from and doubted.
        settings: how sure and how quick the drift tests are.

    Attributes:
        alarms: the last ones, oldest first.
        lengths: of answers, by type.
        times: of the last requests, the seconds of their steps in which no prompt was read.
    """

    def __init__(self, history: TypedAcceptance, settings: DriftSettings | None = None) -> None:
        self.alarms: deque[Alarm] = deque(maxlen=_MOST_ALARMS)
        self.times: deque[RequestTime] = deque(maxlen=_MOST_TIMES)
        self.lengths = AnswerLengths()
        self._history = history
        self._watch = DriftWatch(settings)
        self._logged: dict[tuple[str, str, str], int] = {}

    def ended(self, state: SequenceState) -> None:
        """A request ended in this state."""
        self.lengths.record(state.request_type, state.emitted, state.emitted < state.limit)
        tried = [(name, source.counts) for name, source in state.sources.items()]
        tried = [(name, counts) for name, counts in tried if counts.tried]
        if state.seconds > 0 and state.plain_seconds > 0:
            self.times.append(RequestTime(state.seconds, state.plain_seconds, bool(tried)))
        for name, counts in tried:
            self._history.ended(state.request_type, name, counts)
        guesses = [
            Guesses(
                state.request_type, name, list(map(int, one.tried)), list(map(int, one.accepted))
            )
            for name, one in tried
        ]
        alarms = self._watch.add_mix_only(state.request_type)
        for one in guesses:
            alarms += self._watch.add_guesses(one)
        for alarm in alarms:
            self._take(alarm)

    def begin_anew(self, source: str) -> None:
        """Another drafter has this name from now on: it is not held against the one before."""
        self._watch.begin_anew(source)

    def _take(self, alarm: Alarm) -> None:
        self.alarms.append(alarm)
        key = (alarm.kind, alarm.request_type, alarm.drafter)
        if alarm.at >= self._logged.get(key, -_SILENCE) + _SILENCE:
            self._logged[key] = alarm.at
            _LOG.warning("%s", alarm.text)
        if alarm.kind == ACCEPTANCE:
            kind = None if alarm.request_type == EVERY_TYPE else alarm.request_type
            self._history.doubt(alarm.drafter, kind)

    @property
    def tests(self) -> list[dict[str, object]]:
        """How far each drift test is."""
        return self._watch.status()

    def tail(self) -> SpeedupDistribution | None:
        """How the last requests fared one by one; None before the first."""
        return speedups(list(self.times))
