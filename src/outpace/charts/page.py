"""The page around charts and tables: one file, no script, nothing loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page: a heading, a sentence or two, and figures or tables as HTML."""

    heading: str
    text: str = ""
    blocks: tuple[str, ...] = ()


def table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    text_columns: int = 1,
    caption: str = "",
) -> str:
    """Return a table; the first ``text_columns`` columns are words, the others numbers."""

    def row(cells: Sequence[str], tag: str) -> str:
        shown = []
        for i, cell in enumerate(cells):
            class_ = "" if i < text_columns else ' class="number"'
            shown.append(f"<{tag}{class_}>{escape(cell)}</{tag}>")
        return f"<tr>{''.join(shown)}</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    head = row(headings, "th")
    said = f"<caption>{escape(caption)}</caption>" if caption else ""
    inside = f"{said}<thead>{head}</thead><tbody>{body}</tbody>"
    return f'<div class="table"><table>{inside}</table></div>'


def facts(pairs: Sequence[tuple[str, str]]) -> str:
    """Return a list of names and what they are."""
    entries = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in pairs)
    return f"<dl>{entries}</dl>"


def warning(text: str) -> str:
    """Return a paragraph that must not be overlooked."""
    return f'<p class="warning" role="note">{escape(text)}</p>'


def page(title: str, lead: str, sections: Sequence[Section], footer: str = "") -> str:
    """Return a whole HTML document."""
    style = (files("outpace.charts") / "page.css").read_text("utf-8")
    body = "".join(_section(section) for section in sections)
    below = f"<footer>{escape(footer)}</footer>" if footer else ""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>{style}</style></head>\n"
        f'<body><header><h1>{escape(title)}</h1><p class="lead">{escape(lead)}</p></header>'
        f"\n<main>{body}</main>\n{below}</body></html>\n"
    )


def _section(section: Section) -> str:
    text = f"<p>{escape(section.text)}</p>" if section.text else ""
    blocks = "".join(section.blocks)
    return (
        f"\n<section><h2>{escape(section.heading)}</h2>{text}"
        f'<div class="blocks">{blocks}</div></section>'
    )
