"""``outpace calibrate``: what can be found out once for a model and this machine, and is kept."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from outpace.cli.groups import Without, with_groups
from outpace.cli.options import CommonOptions, EngineOptions
from outpace.cli.show import write_json
from outpace.config import check_number
from outpace.errors import InvalidValueError

if TYPE_CHECKING:
    from outpace.engine.exits import ExitFigure

app = typer.Typer(
    name="calibrate", help="Find out what drafts best with a model here, and keep it."
)
_HIDDEN = Without(
    {"drafter", "draft_quantization", "num_speculative_tokens", "verification", "max_model_len"}
)
_SHOWN = 8


@app.callback()
def root() -> None:
    """Find out what drafts best with a model here, and keep it."""


@app.command("early-exit")
@with_groups
def early_exit(
    engine: Annotated[EngineOptions, _HIDDEN],
    common: CommonOptions,
    text: Annotated[
        str | None,
        Option(
            metavar="FILE",
            help="A text like those that the model will write.",
            show_default="a sample of ours",
        ),
    ] = None,
    seconds: Annotated[
        float, Option(help="About how long to search; longer finds better layers.")
    ] = 60.0,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Choose the layers with which --drafter early_exit drafts.

    Tries early exits and layers that can be left out on a text, prices them by measured times,
    and keeps the best in the cache folder for this model, precision and machine.
    """
    del common
    check_number("seconds", seconds, "must be a number from 0 to 86400", 0, 86_400)
    sample = None if text is None else _read(text)
    engine = replace(engine, drafter="none", num_speculative_tokens="0")
    config = engine.config()
    from rich.console import Console

    with Console(stderr=True).status(f"Loading {engine.model} …") as status:
        from outpace.assembly import assemble
        from outpace.parts.drafter_parts import calibration
        from outpace.text.sample import SAMPLE

        assembly = assemble(engine.model, config)
        found = calibration(assembly.engine.runner, assembly.folder)
        figures = found.run(
            assembly.tokenizer.encode(SAMPLE if sample is None else sample),
            seconds,
            lambda share: status.update(f"Trying layers of {engine.model}: {share:.0%}"),
        )
    num_layers = assembly.engine.runner.decoder.config.num_layers
    if as_json:
        write_json(
            {
                "kept": str(found.file),
                "num_layers": num_layers,
                "figures": [asdict(figure) for figure in figures],
            }
        )
    else:
        _print(figures, num_layers, found.file)


def _read(file: str) -> str:
    try:
        return Path(file).read_text("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidValueError("text", file, "is not UTF-8; convert the file") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "its name is not one of a file"
        raise InvalidValueError("text", file, f"cannot be read: {reason}") from error


def _print(figures: list[ExitFigure], num_layers: int, file: Path) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("layers", "left out", "agreement", "ms a guess", "best k", "times faster")
    for figure in figures[:_SHOWN]:
        table.add_row(
            str(len(figure.layers)),
            stretches([i for i in range(num_layers) if i not in figure.layers]),
            f"{figure.agreement:.2f}",
            f"{figure.seconds * 1e3:.1f}",
            str(figure.num_tokens),
            f"{figure.speedup:.2f}",
        )
    console = Console()
    console.print(table)
    if figures[0].speedup <= 1:
        console.print("None of them pays here: with an automatic k it will not be used.")
    console.print(f"The first is kept in {file}", soft_wrap=True)


def stretches(layers: list[int]) -> str:
    """Ascending numbers, runs as ``first-last``."""
    parts: list[list[int]] = []
    for layer in layers:
        if parts and parts[-1][-1] == layer - 1:
            parts[-1].append(layer)
        else:
            parts.append([layer])
    return ", ".join(f"{p[0]}-{p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)
