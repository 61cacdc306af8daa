"""What ``outpace train`` shows: a line while it runs, a table at the end."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from outpace.cli.show import note

if TYPE_CHECKING:
    from outpace.train.evaluate import Acceptance
    from outpace.train.figures import Figures
    from outpace.train.loop import LoopOptions, LoopState


@contextmanager
def stoppable() -> Iterator[None]:
    """Let a request to end (SIGTERM) do what Ctrl-C does: save, then leave."""

    def stop(_: int, __: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {}
    for name in (signal.SIGTERM, signal.SIGINT):
        try:
            before[name] = signal.signal(name, stop)
        except ValueError:  # not in the main thread
            break
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


@contextmanager
def bar(description: str) -> Iterator[tuple[Progress, Any]]:
    """A bar on stderr that goes away at the end."""
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield progress, progress.add_task(description, total=1.0)


class TrainingLine:
    """Loss, accuracy by position and predicted acceptance length, as it goes."""

    def __init__(self, progress: Progress, task: Any, options: LoopOptions) -> None:
        self._progress = progress
        self._task = task
        self._options = options
        self._sum: Figures | None = None

    def step(self, state: LoopState, figures: Figures) -> None:
        """After a step."""
        options = self._options
        shares = [
            state.step / options.steps if options.steps else 0.0,
            state.seconds / (60 * options.minutes) if options.minutes else 0.0,
        ]
        text = f"step {state.step}, {state.tokens} tokens, loss {figures.mean_loss:.3f}"
        self._progress.update(self._task, completed=min(1.0, max(shares)), description=text)

    def look(self, state: LoopState, figures: Figures) -> None:
        """After a look at what is held out."""
        by_position = " ".join(f"{share:.3f}" for share in figures.accuracy)
        note(
            f"step {state.step}, {state.tokens} tokens, {state.seconds:.0f} s: held-out loss "
            f"{figures.mean_loss:.3f}, accuracy by position {by_position}, predicted acceptance "
            f"length {figures.acceptance_length:.3f}"
        )


def print_evaluation(found: dict[str, dict[str, Acceptance]]) -> None:
    """A table for each drafter: kinds of request down, positions across."""
    console = Console(file=sys.stdout)
    for drafter, kinds in found.items():
        depth = max((len(one.alpha_at()) for one in kinds.values()), default=0)
        table = Table(title=drafter, title_justify="left")
        for name in ("kind", "requests", "acceptance length", "alpha (95 %)"):
            table.add_column(name, justify="left" if name == "kind" else "right")
        for position in range(1, depth + 1):
            table.add_column(f"alpha at {position}", justify="right")
        for kind, one in kinds.items():
            low, high = one.alpha_interval
            alpha = "-" if one.alpha is None else f"{one.alpha:.2f} ({low:.2f}-{high:.2f})"
            cells = [f"{a:.2f} ({b:.2f}-{c:.2f})" for a, b, c in one.alpha_at()]
            cells += ["-"] * (depth - len(cells))
            table.add_row(kind, str(one.requests), f"{one.acceptance_length:.2f}", alpha, *cells)
        console.print(table)
