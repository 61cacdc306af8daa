"""The demonstration's figures: for the terminal and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from outpace.cli.show import printable
from outpace.demo.measure import Comparison, Run

if TYPE_CHECKING:
    from outpace.llm import LLM
    from outpace.text.tokenizer import Tokenizer

_WIDTH_WITHOUT_TERMINAL = 100
_BAR_WIDTH = 40
_ACCEPTED = "bold green"
# Slower than this counts as a loss; closer to 1 is what a clock cannot tell.
_SLOWER = 0.97
# Equal runs whose times differ by more than this say more about the machine than about the ways.
_BUSY = 1.5


def print_report(model: str, llm: LLM, comparisons: Sequence[Comparison]) -> None:
    """Print a table for each kind, the chart, a text with its accepted tokens, and the verdict."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_WIDTH_WITHOUT_TERMINAL)
    for comparison in comparisons:
        console.print(_table(comparison))
        console.print()
    console.print(_chart(comparisons, console))
    console.print()
    _print_text(console, comparisons, llm.tokenizer)
    times = "single runs"
    if (repeats := min(comparison.plain.repeats for comparison in comparisons)) > 1:
        times = f"medians of at least {repeats} alternating runs"
    setting = f"Model: {model} in {llm.setting}, guarantee: {llm.guarantee}."
    console.print(f"Times are {times}. {setting}", markup=False)
    if (spread := max(comparison.plain.spread for comparison in comparisons)) > _BUSY:
        console.print(
            f"Equal runs differed by up to {spread:.1f} times: the machine is busy with something "
            "else. Trust the steps, not the times; --threads 1 may help.",
            style="yellow",
        )
    console.print(verdict(comparisons), style="bold", markup=False)


def verdict(comparisons: Sequence[Comparison]) -> str:
    """Say in one sentence whether all tokens were the same."""
    runs = [run for comparison in comparisons for run in comparison.drafted]
    if all(comparison.identical for comparison in comparisons):
        return (
            f"All tokens were identical, plain and speculative, in {len(comparisons)} kinds of "
            f"request with {len(runs)} comparisons."
        )
    broken = [
        f"{comparison.kind.name}/{run.drafter}"
        for comparison in comparisons
        for run in (comparison.plain, *comparison.drafted)
        if not run.identical
    ]
    return f"TOKENS DIFFERED from the first plain run in: {', '.join(broken)}."


def _table(comparison: Comparison) -> Table:
    tokens = len(comparison.plain.result.token_ids)
    title = f"{comparison.kind.title} ({tokens} tokens)"
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    table.add_column("drafter", min_width=10)
    for name in ("steps", "tokens/step", "alpha (95 %)", "seconds", "times faster"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("identical")
    for run in (comparison.plain, *comparison.drafted):
        table.add_row(*_row(comparison, run))
    return table


def _row(comparison: Comparison, run: Run) -> list[str | Text]:
    record = run.result.speculative
    alpha = "-"
    if record.alpha is not None and record.alpha_interval is not None:
        low, high = record.alpha_interval
        alpha = f"{record.alpha:.2f} ({low:.2f}-{high:.2f})"
    ratio = Text("1.00")
    if run is not comparison.plain:
        value = comparison.time_ratio(run)
        style = "green" if value > 1 / _SLOWER else "red" if value < _SLOWER else ""
        ratio = Text(f"{value:.2f}", style=style)
    return [
        "none (plain)" if run is comparison.plain else run.drafter,
        str(record.target_steps),
        f"{record.acceptance_length:.2f}",
        alpha,
        f"{run.seconds:.2f}",
        ratio,
        Text("yes", style="green") if run.identical else Text("NO", style="bold red"),
    ]


def _chart(comparisons: Sequence[Comparison], console: Console) -> Table:
    """Bars of the acceptance length; plain decoding is 1 everywhere."""
    runs = [(comparison, run) for comparison in comparisons for run in comparison.drafted]
    longest = max(run.result.speculative.acceptance_length for _, run in runs)
    block = "█" if "utf" in console.encoding.lower() else "#"
    chart = Table.grid(padding=(0, 1))
    chart.title, chart.title_style, chart.title_justify = (
        "Tokens a target step (plain decoding: 1)",
        "bold",
        "left",
    )
    for comparison, run in runs:
        length = run.result.speculative.acceptance_length
        bar = block * max(1, round(_BAR_WIDTH * length / max(longest, 1.0)))
        chart.add_row(comparison.kind.name, run.drafter, Text(bar, style="cyan"), f"{length:.2f}")
    return chart


def _print_text(console: Console, comparisons: Sequence[Comparison], tokenizer: Tokenizer) -> None:
    """Print the answer in which most draft tokens were accepted, these tokens highlighted."""
    comparison, run = max(
        ((comparison, run) for comparison in comparisons for run in comparison.drafted),
        key=lambda pair: pair[1].result.speculative.accepted,
    )
    in_colour = console.color_system is not None
    how = "in colour" if in_colour else "in ⟦ ⟧"
    title = f"{comparison.kind.title}, drafter {run.drafter}: accepted draft tokens {how}"
    console.print(title, style="bold", markup=False)
    console.print(highlighted(run, tokenizer, in_colour=in_colour))
    console.print()


def highlighted(run: Run, tokenizer: Tokenizer, *, in_colour: bool) -> Text:
    """Return the text of a run with its accepted draft tokens marked."""
    output = run.result.outputs[0]
    detokenizer = tokenizer.detokenizer()
    pieces = [detokenizer.push(token) for token in output.token_ids]
    pieces.append(detokenizer.flush())
    text = Text()
    inside = False
    for piece, accepted in zip(pieces, (*output.accepted, False), strict=True):
        if accepted != inside and not in_colour:
            text.append("⟦" if accepted else "⟧")
        inside = accepted
        text.append(printable(piece), style=_ACCEPTED if accepted else "")
    return text


def as_dict(model: str, llm: LLM, comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Return all figures in a plain structure."""
    return {
        "model": model,
        "setting": llm.setting,
        "guarantee": llm.guarantee,
        "identical": all(comparison.identical for comparison in comparisons),
        "kinds": [
            {
                "kind": comparison.kind.name,
                "prompt": comparison.kind.prompt,
                "runs": [
                    {
                        "drafter": run.drafter,
                        "identical": run.identical,
                        "repeats": run.repeats,
                        "seconds": run.seconds,
                        "spread": run.spread,
                        "time_ratio": comparison.time_ratio(run),
                    }
                    | run.result.as_dict()
                    for run in (comparison.plain, *comparison.drafted)
                ],
            }
            for comparison in comparisons
        ],
    }
