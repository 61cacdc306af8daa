"""Charts: where things lie on paper, what is written on them, and what has no place there."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from outpace.charts.axis import Axis, number, scale, tick_label
from outpace.charts.bar import Bars, bar_chart, stacked_chart
from outpace.charts.line import Line, Reference, line_chart
from outpace.charts.page import Section, facts, page, table, warning
from outpace.charts.strip import Strip, quartiles, strip_chart
from outpace.charts.svg import width_of

AXIS = Axis("speed-up", unit="×")


def svg(figure: str) -> ElementTree.Element:
    """The drawing of a figure; fails if it is not well-formed."""
    whole = ElementTree.fromstring(figure)
    found = next(child for child in whole if child.tag == "svg")
    assert found.get("role") == "img"
    return found


def hints(figure: str) -> list[str]:
    return [title.text or "" for title in ElementTree.fromstring(figure).iter("title")]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1.0, "1.00"),
        (4567, "4\u2009567"),
        (1.256, "1.26"),
        (12.34, "12.3"),
        (123.4, "123"),
        (4567.8, "4\u2009568"),
        (0.0123, "0.012"),
        (0.00001, "1.0e-5"),
        (-2.5, "-2.50"),
    ],
)
def test_numbers_for_people(value: float, text: str) -> None:
    assert number(value) == text


def test_tick_labels_are_short() -> None:
    assert [tick_label(v) for v in (0.0, 0.25, 1.0, 2.5, 40.0, 20_000.0)] == [
        "0", "0.25", "1", "2.5", "40", "20k",
    ]  # fmt: skip


def test_a_linear_axis_holds_its_values_and_begins_at_zero() -> None:
    laid = scale(Axis("x"), [1.0, 3.7], 100, 200)
    assert laid.ticks == (0.0, 1.0, 2.0, 3.0, 4.0)
    assert laid(0) == 100
    assert laid(4) == 200
    assert laid(2) == 150
    assert laid(9) == 200


def test_an_axis_need_not_begin_at_zero() -> None:
    assert scale(Axis("x", zero=False), [10.0, 11.0], 0, 1).ticks[0] == 10.0


def test_between_whole_numbers_stands_no_tick() -> None:
    for most in range(2, 17):
        found = scale(Axis("position", zero=False, whole=True), [1, most], 0, 100)
        assert all(tick.is_integer() for tick in found.ticks)
        assert found.ticks[0] <= 1 < most <= found.ticks[-1]
        assert 2 <= len(found.ticks) <= 7
    assert 1.5 in scale(Axis("position", zero=False), [1, 3], 0, 100).ticks


def test_one_value_alone_has_an_axis() -> None:
    assert (
        scale(Axis("x", zero=False), [5.0], 0, 1).low < 5 < scale(Axis("x"), [5.0], 0, 1).high + 1
    )
    assert scale(Axis("x"), [0.0], 0, 1).ticks


def test_equal_ratios_are_equally_far_apart_on_a_log_axis() -> None:
    laid = scale(Axis("batch", log=True), [1, 32], 0, 50)
    assert laid.ticks == (1, 2, 4, 8, 16, 32)
    assert [laid(tick) for tick in laid.ticks] == [0, 10, 20, 30, 40, 50]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_has_no_place(value: float) -> None:
    with pytest.raises(ValueError, match="no place on the axis 'speed-up'"):
        scale(AXIS, [value], 0, 1)


def test_zero_has_no_place_on_a_log_axis() -> None:
    with pytest.raises(ValueError, match="no place"):
        scale(Axis("x", log=True), [0.0, 1.0], 0, 1)


def test_bars_end_where_their_values_are_and_say_them() -> None:
    drawn = bar_chart(
        "Speed",
        ["code", "a < b"],
        [
            Bars("plain", (1.0, 1.0), muted=True),
            Bars("ngram", (2.0, None), ((1.5, 2.5), None)),
        ],
        AXIS,
        reference=1,
    )
    rects = list(svg(drawn).iter("rect"))
    assert [e.get("class") for e in rects] == ["fill muted", "fill c0", "fill muted"]
    plain, ngram, _ = (float(e.get("width", "")) for e in rects)
    assert ngram == pytest.approx(2 * plain, abs=0.11)  # coordinates have one decimal
    assert hints(drawn) == [
        "code, plain: 1.00×",
        "code, ngram: 2.00× (1.50 to 2.50)",
        "a < b, plain: 1.00×",
    ]


def crossed(drawn: str) -> list[str]:
    """Texts that a reference line runs through, by about how wide they are."""
    shape = svg(drawn)
    lines = [
        tuple(float(e.get(name, "")) for name in ("x1", "y1", "y2"))
        for e in shape.iter("line")
        if e.get("class") == "reference"
    ]
    assert lines
    found = []
    for text in shape.iter("text"):
        x, y, said = float(text.get("x", "")), float(text.get("y", "")), text.text or ""
        left = x - {"start": 0, "middle": 0.5, "end": 1}[text.get("text-anchor", "")] * width_of(
            said
        )
        inside = (
            left < at < left + width_of(said) and y1 < y and y - 9 < y2 for at, y1, y2 in lines
        )
        if any(inside):
            found.append(said)
    return found


@pytest.mark.parametrize("value", [0.5, 0.8, 0.92, 0.99, 1.0, 1.01, 1.3])
def test_the_reference_runs_through_no_text(value: float) -> None:
    names = ["a type with a name that is long enough to reach the line", "chat"]
    bars = [Bars("plain", (value, 1.2)), Bars("ngram", (1.4, value))]
    assert crossed(bar_chart("Speed", names, bars, AXIS, reference=1)) == []
    strips = [Strip(name, (value, 1.2, 1.4)) for name in names]
    assert crossed(strip_chart("Spread", strips, AXIS, reference=1)) == []


def test_stacked_parts_add_up() -> None:
    parts = [Bars("draft", (1.0,)), Bars("verify", (3.0,))]
    drawn = stacked_chart("Time", ["ngram"], parts, Axis("seconds", unit=" s"))
    first, second = svg(drawn).iter("rect")
    end = float(first.get("x", "")) + float(first.get("width", ""))
    assert end == pytest.approx(float(second.get("x", "")), abs=0.11)  # one decimal
    assert "4.00 s" in "".join(svg(drawn).itertext())


def test_a_line_passes_through_its_points() -> None:
    line = Line("ngram", ((1, 1.0), (2, 2.0), (4, 3.0)), ((0.5, 1.5), (1.5, 2.5), (2.5, 3.5)))
    drawn = line_chart(
        "Load", [line], Axis("at once", log=True), AXIS, references=[Reference("even", y=1.0)]
    )
    shape = svg(drawn)
    marks = [(e.get("cx"), e.get("cy")) for e in shape.iter("circle")]
    [joined] = [e.get("points", "") for e in shape.iter("polyline")]
    assert joined == " ".join(f"{float(x or 0):.1f},{float(y or 0):.1f}" for x, y in marks)
    assert len(list(shape.iter("polygon"))) == 1
    assert "ngram: 4, 3.00×" in hints(drawn)


def test_points_beside_the_diagonal() -> None:
    cloud = Line("ngram", ((1.0, 1.1), (2.0, 1.8)), joined=False, labels=("code", "chat"))
    drawn = line_chart("Prediction", [cloud], AXIS, AXIS, references=[Reference("as predicted")])
    assert not list(svg(drawn).iter("polyline"))
    assert [text.split(":")[0] for text in hints(drawn)] == ["code", "chat"]
    assert "as predicted" in drawn


def test_a_strip_shows_every_value_and_its_quarters() -> None:
    drawn = strip_chart("Spread", [Strip("ngram", (1.0, 2.0, 3.0, 4.0, 5.0))], AXIS, reference=1)
    assert len(list(svg(drawn).iter("circle"))) == 5
    assert "median 3.00×, middle half 2.00 to 4.00×, 5 values" in drawn
    assert quartiles([7.0]) == (7.0, 7.0, 7.0)


def test_nothing_measured_is_said() -> None:
    for drawn in (
        bar_chart("T", ["a"], [Bars("x", (None,))], AXIS),
        stacked_chart("T", [], [], AXIS),
        line_chart("T", [], AXIS, AXIS),
        strip_chart("T", [Strip("x", ())], AXIS),
    ):
        assert "Nothing was measured for this." in drawn
        assert "<svg" not in drawn


def test_a_page_is_whole_safe_and_needs_nothing_else() -> None:
    section = Section(
        "Part <1>",
        "Text & more",
        (table(["task", "×"], [["<b>", "1.0"]]), facts([("CPU", "a & b")]), warning("partial")),
    )
    whole = page("Title <x>", "lead", [section], "foot")
    assert whole.startswith("<!doctype html>")
    assert "<b>" not in whole
    assert "Title &lt;x&gt;" in whole
    assert 'name="viewport"' in whole
    assert "prefers-color-scheme: dark" in whole
    assert not re.search(r"<script|https?://|src=|url\(", whole)
