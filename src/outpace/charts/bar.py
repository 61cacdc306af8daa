"""Bars that run to the right, each group under its name, so that names fit on a phone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outpace.charts.axis import Axis, Scale, number, scale
from outpace.charts.svg import (
    WIDTH,
    colours,
    element,
    figure,
    hint,
    horizontal_axis,
    label,
    nothing,
    shortened,
    width_of,
)

_LEFT, _RIGHT = 8.0, 14.0
_BAR, _BETWEEN, _NAME, _AFTER = 13.0, 3.0, 18.0, 10.0
_AXIS_ROOM = 44.0


@dataclass(frozen=True, slots=True)
class Bars:
    """One bar of the same colour in each group.

    Attributes:
        name: for the legend.
        values: one for each group; None where there is none.
        intervals: (low, high) around each value; empty: none are drawn.
        muted: drawn in grey: what the others are compared with.
    """

    name: str
    values: tuple[float | None, ...]
    intervals: tuple[tuple[float, float] | None, ...] = ()
    muted: bool = False


def bar_chart(
    title: str,
    groups: Sequence[str],
    bars: Sequence[Bars],
    axis: Axis,
    *,
    reference: float | None = None,
    note: str = "",
) -> str:
    """Return a figure with a group of bars for each name, side by side.

    ``reference`` draws a line across the bars of all groups, such as 1 for a ratio; it leaves out
    their names, and values are written beside it.

    Raises:
        ValueError: a value that has no place on the axis.
    """
    values = [value for series in bars for value in series.values if value is not None]
    if not values:
        return nothing(title, note or "Nothing was measured for this.")
    shown = [*values, *([reference] if reference is not None else [])]
    shown += [bound for series in bars for pair in series.intervals if pair for bound in pair]
    written = max(width_of(number(value) + axis.unit) for value in values) + 10
    across = scale(axis, shown, _LEFT, WIDTH - _RIGHT - written)
    classes = colours([series.muted for series in bars])
    drawing: list[str] = []
    top = 4.0
    for i, group in enumerate(groups):
        drawing.append(label(_LEFT, top + 12, shortened(group, WIDTH - 20), class_="group"))
        top += _NAME
        began = top
        for series, class_ in zip(bars, classes, strict=True):
            value = series.values[i]
            if value is None:
                continue
            interval = series.intervals[i] if series.intervals else None
            said = f"{group}, {series.name}"
            drawing += _bar(said, value, interval, class_, across, top, axis, reference)
            top += _BAR + _BETWEEN
        if reference is not None and top > began:
            x = across(reference)
            ends = {"y1": began - _BETWEEN, "y2": top}
            drawing.append(element("line", None, x1=x, x2=x, **ends, class_="reference"))
        top += _AFTER
    frame = horizontal_axis(axis, across, 0, top)
    legend = [(class_, series.name) for class_, series in zip(classes, bars, strict=True)]
    return figure(title, [*frame, *drawing], top + _AXIS_ROOM, legend, note)


def _bar(
    said: str,
    value: float,
    interval: tuple[float, float] | None,
    class_: str,
    across: Scale,
    top: float,
    axis: Axis,
    reference: float | None,
) -> list[str]:
    zero = across(0.0) if not across.log else across.start
    end = across(value)
    told = f"{said}: {number(value)}{axis.unit}"
    text_at = max(end, zero)
    whisker = []
    if interval is not None:
        low, high = across(interval[0]), across(interval[1])
        middle = top + _BAR / 2
        told += f" ({number(interval[0])} to {number(interval[1])})"
        whisker.append(element("line", x1=low, x2=high, y1=middle, y2=middle, class_="whisker"))
        text_at = max(text_at, high)
    body = element(
        "rect",
        hint(told),
        x=min(zero, end),
        y=top,
        width=max(abs(end - zero), 1.0),
        height=_BAR,
        rx=2,
        class_=f"fill {class_}",
    )
    text = f"{number(value)}{axis.unit}"
    text_at += 5
    if reference is not None and text_at - 2 < across(reference) < text_at + width_of(text) + 2:
        text_at = across(reference) + 5
    written = label(text_at, top + _BAR - 2, text, class_="value")
    return [body, *whisker, written]


def stacked_chart(
    title: str,
    groups: Sequence[str],
    parts: Sequence[Bars],
    axis: Axis,
    *,
    note: str = "",
) -> str:
    """Return a figure with one bar for each name, made of parts that add up.

    Raises:
        ValueError: a value that has no place on the axis.
    """
    sums = [sum(part.values[i] or 0.0 for part in parts) for i in range(len(groups))]
    if not any(sums):
        return nothing(title, note or "Nothing was measured for this.")
    written = max(width_of(number(value) + axis.unit) for value in sums) + 10
    across = scale(axis, sums, _LEFT, WIDTH - _RIGHT - written)
    classes = colours([part.muted for part in parts])
    drawing: list[str] = []
    top = 4.0
    for i, group in enumerate(groups):
        drawing.append(label(_LEFT, top + 12, shortened(group, WIDTH - 20), class_="group"))
        top += _NAME
        below = 0.0
        for part, class_ in zip(parts, classes, strict=True):
            value = part.values[i] or 0.0
            x, end = across(below), across(below + value)
            below += value
            told = hint(f"{group}, {part.name}: {number(value)}{axis.unit}")
            size = {"width": max(end - x, 0.0), "height": _BAR}
            drawing.append(element("rect", told, x=x, y=top, class_=f"fill {class_}", **size))
        text = f"{number(sums[i])}{axis.unit}"
        drawing.append(label(across(below) + 5, top + _BAR - 2, text, class_="value"))
        top += _BAR + _AFTER
    frame = horizontal_axis(axis, across, 0, top)
    legend = [(class_, part.name) for class_, part in zip(classes, parts, strict=True)]
    return figure(title, [*frame, *drawing], top + _AXIS_ROOM, legend, note)
