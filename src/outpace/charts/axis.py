"""Axes: which values get a tick, how numbers are written, and where they lie on the paper."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_MOST_TICKS = 6
# At least one label in this many ticks of a log axis, so that they never overlap on a phone.
_MOST_LOG_TICKS = 9


@dataclass(frozen=True, slots=True)
class Axis:
    """What an axis shows.

    Attributes:
        label: the quantity and its unit, in words.
        log: whether equal ratios are equally far apart (base 2); all values must be positive.
        zero: whether a linear axis begins at 0 even if no value is near it.
        unit: written behind each value that is shown beside a mark, for example ``×``.
        whole: whether there is nothing between two whole numbers, so that no tick stands there.
    """

    label: str
    log: bool = False
    zero: bool = True
    unit: str = ""
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis laid out: values from ``low`` to ``high`` become ``start`` to ``end`` on paper."""

    low: float
    high: float
    start: float
    end: float
    ticks: tuple[float, ...]
    log: bool = False

    def __call__(self, value: float) -> float:
        """The place of a value on paper; values beyond the axis are put at its end."""
        low, high = self.low, self.high
        value = min(max(value, low), high)
        if self.log:
            low, high, value = math.log2(low), math.log2(high), math.log2(value)
        return self.start + (value - low) / (high - low) * (self.end - self.start)


def scale(axis: Axis, values: Iterable[float], start: float, end: float) -> Scale:
    """Lay an axis out for the values it must hold.

    Raises:
        ValueError: a value that is not finite, or not positive on a log axis: such values must
            not reach a chart, because nothing on paper stands for them.
    """
    held = list(values)
    for value in held:
        if not math.isfinite(value) or (axis.log and value <= 0):
            raise ValueError(f"{value} has no place on the axis {axis.label!r}")
    low, high = (min(held), max(held)) if held else (0.0, 1.0)
    if axis.log:
        return _log_scale(low if held else 1.0, high if held else 2.0, start, end)
    if axis.zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        low, high = (low, low + 1.0) if low == 0 else (low - abs(low) / 2, low + abs(low) / 2)
    step = _nice_step((high - low) / (_MOST_TICKS - 1), axis.whole)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(round(i * step, 12) for i in range(first, last + 1))
    return Scale(ticks[0], ticks[-1], start, end, ticks)


def _log_scale(low: float, high: float, start: float, end: float) -> Scale:
    first, last = math.floor(math.log2(low) + 1e-9), math.ceil(math.log2(high) - 1e-9)
    if first == last:
        first, last = first - 1, last + 1
    every = math.ceil((last - first + 1) / _MOST_LOG_TICKS)
    ticks = tuple(2.0**i for i in range(first, last + 1, every))
    return Scale(2.0**first, 2.0**last, start, end, ticks, log=True)


def _nice_step(least: float, whole: bool) -> float:
    if whole:
        least = max(least, 1.0)
    power = 10.0 ** math.floor(math.log10(least))
    steps = [power * step for step in _STEPS]
    return next(
        step for step in steps if step >= least * (1 - 1e-9) and (step.is_integer() or not whole)
    )


def number(value: float) -> str:
    """Write a number for people: three figures, without an exponent where that is readable.

    Whole numbers (of type int) are counts and are written whole.
    """
    if value == 0:
        return "0"
    if isinstance(value, int):
        return f"{value:,}".replace(",", "\u2009")
    size = abs(value)
    if size >= 1e6 or size < 1e-3:
        mantissa, exponent = f"{value:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    if size >= 1000:
        return f"{value:,.0f}".replace(",", "\u2009")
    decimals = 3 if size < 0.1 else 2 if size < 10 else 1 if size < 100 else 0
    return f"{value:.{decimals}f}"


def tick_label(value: float) -> str:
    """Write a tick: as short as it can be told from its neighbours."""
    if value and (abs(value) >= 1e6 or abs(value) < 1e-3):
        return number(value)
    text = f"{value:.4f}".rstrip("0").rstrip(".")
    if abs(value) >= 10_000:
        text = f"{value / 1000:g}k"
    return "0" if text in ("-0", "") else text
