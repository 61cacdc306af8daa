"""How long a step takes by rows and context: measured at start-up, corrected while running."""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

_DRIFT = 0.1
_POINT = 0.06
_TREND = 0.2
# How far single points may move against the others: a factor and its inverse.
_FARTHEST_POINT = 2.0


@dataclass(frozen=True, slots=True)
class AttentionCost:
    """What a context longer than ``base_context`` adds to a step, in seconds.

    ``per_key`` is paid for each key beyond it, whatever the rows (the cache is read once),
    ``per_pair`` for each of these keys and each row.
    """

    base_context: int = 0
    per_key: float = 0.0
    per_pair: float = 0.0

    @classmethod
    def fitted(
        cls,
        base_context: int,
        few: tuple[int, int, float],
        many: tuple[int, int, float] | None = None,
    ) -> AttentionCost:
        """Solve for the two prices from one or two points ``(rows, context, added seconds)``.

        With one point all is laid to the keys. Prices below zero are noise and become zero.
        """
        rows, context, added = few
        slope = max(added, 0.0) / max(context - base_context, 1)
        if many is None:
            return cls(base_context, slope, 0.0)
        more_rows, more_context, more_added = many
        more_slope = max(more_added, 0.0) / max(more_context - base_context, 1)
        per_pair = max(more_slope - slope, 0.0) / max(more_rows - rows, 1)
        return cls(base_context, max(slope - rows * per_pair, 0.0), per_pair)

    def seconds(self, rows: int, context: int) -> float:
        """What ``rows`` rows of one sequence with so many tokens of context add."""
        beyond = max(context - self.base_context, 0)
        return (self.per_key + self.per_pair * rows) * beyond


class CostTable:
    """Seconds of one forward pass: T(rows, context) = linear(rows) + attention(rows, context).

    The linear part is interpolated between measured points, since kernels work in tiles and a
    step may cost the same for several numbers of rows.

    Args:
        seconds: measured step times by rows, at a context of at most ``attention.base_context``;
            at least one point.
        attention: what longer contexts add.
        reading: seconds for each token of a long run of which only the last is asked what comes
            next, as in a prompt; None: as rows of a step, which are all asked.
    """

    def __init__(
        self,
        seconds: Mapping[int, float],
        attention: AttentionCost | None = None,
        reading: float | None = None,
    ) -> None:
        if not seconds:
            raise ValueError("a cost table needs at least one measured point")
        self._rows = sorted(seconds)
        self._measured = [seconds[rows] for rows in self._rows]
        self._attention = attention or AttentionCost()
        self._reading = reading
        self._make_plausible()
        self._factors = [1.0] * len(self._rows)
        self._drift = 1.0
        self._trend = 0.0  # by how much recent steps were off, on average
        self._seconds = list(self._measured)

    def __call__(self, rows: int, context: int = 0) -> float:
        """Seconds for a step of ``rows`` rows of one sequence with ``context`` tokens before.

        Beyond the last point it goes on growing as it did over the second half of the points.
        """
        extra = self.attention(rows, context) if context else 0.0
        return self._linear(rows) + extra

    def reading(self, tokens: int, context: int) -> float:
        """Seconds to compute the last ``tokens`` known tokens of ``context`` ones."""
        extra = self.attention(tokens, context - tokens // 2)  # what they see on average
        if self._reading is None:
            return self._linear(tokens) + extra
        return self._linear(1) + self._drift * self._reading * (tokens - 1) + extra

    def attention(self, rows: int, context: int) -> float:
        """The part that a sequence's context adds, in seconds; add it up over a batch."""
        return self._drift * self._attention.seconds(rows, context)

    def further_row(self, context: int) -> float:
        """What one more row of the same sequence adds to that: its keys are read already."""
        return self.attention(2, context) - self.attention(1, context)

    def _linear(self, rows: int) -> float:
        at = bisect.bisect_left(self._rows, rows)
        if at == len(self._rows):
            return self._beyond(rows)
        if self._rows[at] == rows or at == 0:
            return self._seconds[at]
        low, high = self._rows[at - 1], self._rows[at]
        share = (rows - low) / (high - low)
        return self._seconds[at - 1] * (1 - share) + self._seconds[at] * share

    def _beyond(self, rows: int) -> float:
        last = self._rows[-1]
        half = bisect.bisect_right(self._rows, last // 2) - 1
        if half < 0:
            return self._seconds[-1] * rows / last
        slope = (self._seconds[-1] - self._seconds[half]) / (last - self._rows[half])
        return self._seconds[-1] + slope * (rows - last)

    def correct(self, rows: int, seconds: float, attention: float = 0.0) -> None:
        """Move the table towards an observed time; one observation moves it little.

        The whole table moves, since a machine that is slower now is slower for any number of
        rows: otherwise a warm-up in a bad moment would leave the points that are not used, and
        so never corrected, too dear for good. What sets this observation apart from the last
        ones moves the points next to ``rows``, though never to more than twice or less than half
        of their measured share: further off it is disturbed rather than misjudged. The
        observation is capped at twice the expectation, because an interruption by another
        process says nothing about the model.

        Args:
            rows: of the whole batch.
            seconds: that the step took.
            attention: the part of the expectation that is due to the sequences' contexts.
        """
        expected = self._linear(rows) + attention
        change = min(seconds, 2 * expected) / expected - 1
        self._drift *= 1 + _DRIFT * change
        apart = change - self._trend
        self._trend += _TREND * apart
        for point, share in self._neighbours(rows):
            factor = self._factors[point] * (1 + _POINT * share * apart)
            self._factors[point] = min(max(factor, 1 / _FARTHEST_POINT), _FARTHEST_POINT)
        self._apply()

    def _neighbours(self, rows: int) -> list[tuple[int, float]]:
        """The points that decide the time for ``rows``, with their shares in it."""
        at = bisect.bisect_left(self._rows, rows)
        if at == len(self._rows):
            return [(at - 1, 1.0)]
        if self._rows[at] == rows or at == 0:
            return [(at, 1.0)]
        share = (rows - self._rows[at - 1]) / (self._rows[at] - self._rows[at - 1])
        return [(at - 1, 1 - share), (at, share)]

    def rescaled(self, ratio: float) -> CostTable:
        """The measured table with every time multiplied by ``ratio``, without corrections."""
        attention = self._attention
        return CostTable(
            {rows: ratio * one for rows, one in zip(self._rows, self._measured, strict=True)},
            AttentionCost(
                attention.base_context, ratio * attention.per_key, ratio * attention.per_pair
            ),
            None if self._reading is None else ratio * self._reading,
        )

    @property
    def points(self) -> dict[int, float]:
        """Seconds by rows as they are now, corrections included."""
        return dict(zip(self._rows, self._seconds, strict=True))

    @property
    def attention_cost(self) -> AttentionCost:
        """What longer contexts add, as measured."""
        return self._attention

    def as_plain(self) -> dict[str, Any]:
        """The measured table as plain values for JSON."""
        points = {str(k): s for k, s in zip(self._rows, self._measured, strict=True)}
        return {
            "seconds_by_rows": points,
            "attention": asdict(self._attention),
            "reading": self._reading,
        }

    @classmethod
    def from_plain(cls, plain: Any) -> CostTable:
        """Read what `as_plain` wrote.

        Raises:
            ValueError: it is something else.
        """
        try:
            points = {int(rows): float(one) for rows, one in plain["seconds_by_rows"].items()}
            attention = AttentionCost(**plain["attention"])
            reading = plain["reading"]
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a cost table: {error}") from error
        prices = [attention.per_key, attention.per_pair, attention.base_context]
        prices += [] if reading is None else [reading]
        if not all(isinstance(price, int | float) and 0 <= price < math.inf for price in prices):
            raise ValueError(f"not the prices of an attention and of reading: {prices}")
        if not all(rows > 0 and 0 < seconds < math.inf for rows, seconds in points.items()):
            raise ValueError("not step times: rows and seconds must be above 0 and finite")
        return cls(points, attention, reading)

    def _make_plausible(self) -> None:
        """Rows never cost more together than one by one: where they seem to it is noise."""
        dearest = self._measured[0] / self._rows[0]
        pairs = zip(self._rows, self._measured, strict=True)
        self._measured = _monotonous([min(seconds, dearest * rows) for rows, seconds in pairs])

    def _apply(self) -> None:
        pairs = zip(self._measured, self._factors, strict=True)
        self._seconds = _monotonous([self._drift * one * factor for one, factor in pairs])


def _monotonous(seconds: list[float]) -> list[float]:
    """More rows never cost less: where a measurement says so it is noise."""
    result = list(seconds)
    for i in range(len(result) - 2, -1, -1):
        result[i] = min(result[i], result[i + 1])
    return result
