"""Writing SVG: elements, texts, and the figure around a drawing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from outpace.charts.axis import Axis, Scale, tick_label

# Drawn at this width and scaled to its card: at 1:1 on a desk, at about 0.8 on a phone.
WIDTH = 440.0
_COLOURS = 8
_CHARACTER = 6.6  # a usual width at the size of labels, where the real one cannot be known


def element(name: str, text: str | None = None, **attributes: object) -> str:
    """Return an element; ``_`` in a name stands for ``-``, ``class_`` for ``class``."""
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None:
            continue
        shown = f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
        parts.append(f' {key.rstrip("_").replace("_", "-")}="{escape(shown)}"')
    parts.append("/>" if text is None else f">{text}</{name}>")
    return "".join(parts)


def label(x: float, y: float, text: str, *, anchor: str = "start", class_: str = "label") -> str:
    """Return a text at a place; ``anchor`` is ``start``, ``middle`` or ``end``."""
    return element("text", escape(text), x=x, y=y, text_anchor=anchor, class_=class_)


def hint(text: str) -> str:
    """Return what a pointer that rests on the element around it is told."""
    return element("title", escape(text))


def width_of(text: str) -> float:
    """About how wide a label will be."""
    return _CHARACTER * len(text)


def shortened(text: str, room: float) -> str:
    """Return the text, cut with an ellipsis where it would not fit."""
    most = max(4, int(room / _CHARACTER))
    return text if len(text) <= most else f"{text[: most - 1]}…"


def colours(muted: Sequence[bool]) -> list[str]:
    """The class that carries each series' colour: grey, or one of eight in turn.

    Grey ones take none of the eight, so that a series has the same colour beside them and alone.
    """
    classes = []
    used = 0
    for grey in muted:
        classes.append("muted" if grey else f"c{used % _COLOURS}")
        used += not grey
    return classes


def figure(
    title: str,
    drawing: Sequence[str],
    height: float,
    legend: Sequence[tuple[str, str]] = (),
    note: str = "",
) -> str:
    """Return a titled figure; ``legend`` pairs the class of a colour with a name."""
    body = "".join(drawing)
    svg = element("svg", body, viewBox=f"0 0 {WIDTH:g} {height:g}", role="img", aria_label=title)
    entries = "".join(
        f'<li><svg viewBox="0 0 10 10" aria-hidden="true"><rect width="10" height="10" rx="2" '
        f'class="fill {class_}"/></svg>{escape(name)}</li>'
        for class_, name in legend
    )
    listed = f'<ul class="legend">{entries}</ul>' if entries else ""
    below = f'<p class="note">{escape(note)}</p>' if note else ""
    return f"<figure><figcaption>{escape(title)}</figcaption>{listed}{svg}{below}</figure>"


def nothing(title: str, reason: str) -> str:
    """Return a figure that says why there is nothing to see."""
    return (
        f"<figure><figcaption>{escape(title)}</figcaption>"
        f'<p class="nothing">{escape(reason)}</p></figure>'
    )


def horizontal_axis(axis: Axis, scale: Scale, top: float, bottom: float) -> list[str]:
    """Draw grid lines, ticks and the label of an axis that runs to the right."""
    parts = []
    for tick in scale.ticks:
        x = scale(tick)
        parts.append(element("line", x1=x, x2=x, y1=top, y2=bottom, class_="grid"))
        parts.append(label(x, bottom + 16, tick_label(tick), anchor="middle", class_="tick"))
    middle = (scale.start + scale.end) / 2
    parts.append(label(middle, bottom + 34, axis.label, anchor="middle", class_="axis"))
    return parts


def vertical_axis(axis: Axis, scale: Scale, left: float, right: float) -> list[str]:
    """Draw grid lines, ticks and, above them, the label of an axis that runs upwards."""
    parts = [label(4, scale.end - 12, axis.label, class_="axis")]
    for tick in scale.ticks:
        y = scale(tick)
        parts.append(element("line", x1=left, x2=right, y1=y, y2=y, class_="grid"))
        parts.append(label(left - 6, y + 4, tick_label(tick), anchor="end", class_="tick"))
    return parts


def left_margin(scale: Scale) -> float:
    """Room for the labels of a vertical axis."""
    return 14 + max(width_of(tick_label(tick)) for tick in scale.ticks)
