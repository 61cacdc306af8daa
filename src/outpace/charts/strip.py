"""Distributions: every value as a dot, the middle half as a box, the median as a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import quantiles

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
)

_LEFT, _RIGHT = 12.0, 18.0
_NAME, _LANE, _AFTER = 18.0, 22.0, 10.0
_AXIS_ROOM = 44.0
# Dots are put on these heights in turn, so that neighbours do not hide each other.
_HEIGHTS = (0.5, 0.2, 0.8, 0.35, 0.65)


@dataclass(frozen=True, slots=True)
class Strip:
    """The values of one group, and optionally a name for each of them."""

    name: str
    values: tuple[float, ...]
    labels: tuple[str, ...] = ()
    muted: bool = False


def strip_chart(
    title: str,
    strips: Sequence[Strip],
    axis: Axis,
    *,
    reference: float | None = None,
    note: str = "",
) -> str:
    """Return a figure with a lane of dots for each group.

    Raises:
        ValueError: a value that has no place on the axis.
    """
    values = [value for strip in strips for value in strip.values]
    if not values:
        return nothing(title, note or "Nothing was measured for this.")
    shown = [*values, *([reference] if reference is not None else [])]
    across = scale(axis, shown, _LEFT, WIDTH - _RIGHT)
    drawing: list[str] = []
    top = 4.0
    for strip, class_ in zip(strips, colours([s.muted for s in strips]), strict=True):
        if not strip.values:
            continue
        if reference is not None:  # through the lane alone and not through its name
            x, lane = across(reference), top + _NAME
            ends = {"y1": lane - 2, "y2": lane + _LANE + 2}
            drawing.append(element("line", None, x1=x, x2=x, **ends, class_="reference"))
        drawing += _lane(strip, class_, across, top, axis)
        top += _NAME + _LANE + _AFTER
    frame = horizontal_axis(axis, across, 0, top)
    return figure(title, [*frame, *drawing], top + _AXIS_ROOM, note=note)


def _lane(strip: Strip, class_: str, across: Scale, top: float, axis: Axis) -> list[str]:
    ordered = sorted(strip.values)
    low, middle, high = quartiles(ordered)
    said = (
        f"median {number(middle)}{axis.unit}, "
        f"middle half {number(low)} to {number(high)}{axis.unit}, {len(ordered)} values"
    )
    room = WIDTH - 30 - 6.4 * len(said)
    parts = [
        label(_LEFT - 4, top + 12, shortened(strip.name, room), class_="group"),
        label(WIDTH - _RIGHT, top + 12, said, anchor="end", class_="tick"),
    ]
    lane = top + _NAME
    width = max(across(high) - across(low), 1.0)
    box = {"x": across(low), "y": lane, "width": width, "height": _LANE, "rx": 3}
    parts.append(element("rect", None, **box, class_=f"box {class_}"))
    by_value = sorted(range(len(strip.values)), key=strip.values.__getitem__)
    for rank, i in enumerate(by_value):
        value = strip.values[i]
        name = strip.labels[i] if strip.labels else strip.name
        told = hint(f"{name}: {number(value)}{axis.unit}")
        y = lane + _LANE * _HEIGHTS[rank % len(_HEIGHTS)]
        dot = {"cx": across(value), "cy": y, "r": 2.6, "class_": f"fill dot {class_}"}
        parts.append(element("circle", told, **dot))
    x = across(middle)
    parts.append(
        element("line", x1=x, x2=x, y1=lane - 2, y2=lane + _LANE + 2, class_=f"line {class_}")
    )
    return parts


def quartiles(ordered: Sequence[float]) -> tuple[float, float, float]:
    """Return the three values that cut sorted values into quarters."""
    if len(ordered) == 1:
        return ordered[0], ordered[0], ordered[0]
    low, middle, high = quantiles(ordered, n=4, method="inclusive")
    return low, middle, high
