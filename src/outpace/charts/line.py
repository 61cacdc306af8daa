"""Lines over a quantity, and points in a plane."""

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
    left_margin,
    nothing,
    vertical_axis,
)

_TOP, _BOTTOM, _RIGHT = 28.0, 44.0, 14.0
_HEIGHT = 270.0


@dataclass(frozen=True, slots=True)
class Line:
    """A named series of points.

    Attributes:
        name: for the legend and the hints.
        points: (x, y), in the order in which they are joined.
        intervals: (low, high) of y at each point, drawn as a band; empty: none.
        joined: whether a line goes through the points.
        muted: drawn in grey: what the others are compared with.
        dashed: drawn with gaps: what was computed rather than measured.
        labels: what the hint of each point says before its numbers; empty: the name.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    intervals: tuple[tuple[float, float], ...] = ()
    joined: bool = True
    muted: bool = False
    dashed: bool = False
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reference:
    """A straight line that helps to read the others.

    ``x`` or ``y`` places a vertical or horizontal one; with neither it is the diagonal y = x.
    """

    text: str
    x: float | None = None
    y: float | None = None


def line_chart(
    title: str,
    lines: Sequence[Line],
    x: Axis,
    y: Axis,
    *,
    references: Sequence[Reference] = (),
    note: str = "",
) -> str:
    """Return a figure of lines or points over two axes.

    Raises:
        ValueError: a value that has no place on its axis.
    """
    points = [point for line in lines for point in line.points]
    if not points:
        return nothing(title, note or "Nothing was measured for this.")
    ys = [point[1] for point in points] + [r.y for r in references if r.y is not None]
    ys += [bound for line in lines for interval in line.intervals for bound in interval]
    xs = [point[0] for point in points] + [r.x for r in references if r.x is not None]
    vertical = scale(y, ys, _HEIGHT - _BOTTOM, _TOP)
    left = left_margin(vertical)
    horizontal = scale(x, xs, left, WIDTH - _RIGHT)
    drawing = vertical_axis(y, vertical, left, WIDTH - _RIGHT)
    drawing += horizontal_axis(x, horizontal, _TOP, _HEIGHT - _BOTTOM)
    for reference in references:
        drawing += _reference(reference, horizontal, vertical)
    legend = []
    for line, class_ in zip(lines, colours([line.muted for line in lines]), strict=True):
        legend.append((class_, line.name))
        drawing += _line(line, class_, horizontal, vertical, (x, y))
    return figure(title, drawing, _HEIGHT, legend, note)


def _line(line: Line, class_: str, across: Scale, up: Scale, axes: tuple[Axis, Axis]) -> list[str]:
    places = [(across(x), up(y)) for x, y in line.points]
    parts = []
    if line.intervals:
        xs = [place[0] for place in places]
        lows = [(x, up(low)) for x, (low, _) in zip(xs, line.intervals, strict=True)]
        highs = [(x, up(high)) for x, (_, high) in zip(xs, line.intervals, strict=True)]
        parts.append(
            element("polygon", points=_path([*lows, *highs[::-1]]), class_=f"band {class_}")
        )
    if line.joined and len(places) > 1:
        dash = "5 4" if line.dashed else None
        drawn = _path(places)
        parts.append(
            element("polyline", points=drawn, class_=f"line {class_}", stroke_dasharray=dash)
        )
    for i, ((x, y), place) in enumerate(zip(line.points, places, strict=True)):
        said = line.labels[i] if line.labels else line.name
        told = f"{said}: {number(x)}{axes[0].unit}, {number(y)}{axes[1].unit}"
        mark = {"cx": place[0], "cy": place[1], "r": 3.5, "class_": f"fill mark {class_}"}
        parts.append(element("circle", hint(told), **mark))
    return parts


def _reference(reference: Reference, across: Scale, up: Scale) -> list[str]:
    if reference.x is not None:
        x = across(reference.x)
        ends = (x, up.start, x, up.end)
        at, anchor = (x + 5, up.end + 12), "start"
        if x > (across.start + across.end) / 2:
            at, anchor = (x - 5, up.end + 12), "end"
    elif reference.y is not None:
        y = up(reference.y)
        ends = (across.start, y, across.end, y)
        at, anchor = (across.end - 4, y - 5), "end"
    else:
        low, high = max(across.low, up.low), min(across.high, up.high)
        if low >= high:
            return []
        ends = (across(low), up(low), across(high), up(high))
        middle = low + 0.55 * (high - low)
        at, anchor = (across(middle) + 8, up(middle) + 14), "start"
    x1, y1, x2, y2 = ends
    line = element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_="reference")
    return [line, label(*at, reference.text, anchor=anchor, class_="tick")]


def _path(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
