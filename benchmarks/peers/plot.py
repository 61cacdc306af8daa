"""The rates as a picture: one SVG file that needs nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from peers.figures import ALL, Figures

ROW, BAR, NAMES, BARS, VALUES, TOP = 22, 14, 230, 300, 60, 34
PANEL = NAMES + BARS + VALUES
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f; }
  .title { font-weight: 600; font-size: 14px; }
  .value { font-variant-numeric: tabular-nums; }
  .other { fill: #8c959f; }
  .own { fill: #1f6feb; }
  .axis { stroke: #d0d7de; }
  .page { fill: #ffffff; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .other { fill: #6e7681; }
    .own { fill: #4c9aff; }
    .axis { stroke: #30363d; }
    .page { fill: #0d1117; }
  }
"""


def draw(found: Mapping[str, Figures], tasks: Sequence[str], caption: str) -> str:
    """Bars of tokens a second, a panel for all tasks and one for each, two beside each other."""
    panels = [ALL, *tasks]
    height = TOP + ROW * len(found) + 18
    rows = (len(panels) + 1) // 2
    width, total = 2 * PANEL + 40, rows * height + 40
    body = [
        f'<rect class="page" width="{width}" height="{total}"/>',
        f'<text x="10" y="24">{escape(caption)}</text>',
    ]
    for index, task in enumerate(panels):
        x, y = 10 + (index % 2) * (PANEL + 20), 40 + (index // 2) * height
        body.append(f'<g transform="translate({x},{y})">{_panel(found, task)}</g>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {total}"'
        f' width="{width}" height="{total}" role="img">\n<title>{escape(caption)}</title>\n'
        f"<style>{STYLE}</style>\n" + "\n".join(body) + "\n</svg>\n"
    )


def _panel(found: Mapping[str, Figures], task: str) -> str:
    rates = {spec: one.rates[task] for spec, one in found.items() if task in one.rates}
    longest = max(rates.values(), default=1.0)
    bottom = TOP + ROW * len(rates)
    lines = [
        f'<text class="title" x="0" y="20">{escape(task)}, tokens a second</text>',
        f'<line class="axis" x1="{NAMES}" x2="{NAMES}" y1="{TOP - 4}" y2="{bottom}"/>',
    ]
    for index, (spec, value) in enumerate(rates.items()):
        y = TOP + index * ROW
        kind = "own" if spec.startswith("outpace") else "other"
        length = value / longest * BARS
        middle = y + BAR - 3
        lines += [
            f'<text x="{NAMES - 8}" y="{middle}" text-anchor="end">{escape(spec)}</text>',
            f'<rect class="{kind}" x="{NAMES}" y="{y}" width="{length:.1f}" height="{BAR}"/>',
            f'<text class="value" x="{NAMES + length + 6:.1f}" y="{middle}">{value:.1f}</text>',
        ]
    return "\n".join(lines)
