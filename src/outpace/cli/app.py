"""The commands under one roof."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from outpace.cli.align import app as align_app
from outpace.cli.bench import app as bench_app
from outpace.cli.calibrate import app as calibrate_app
from outpace.cli.chat import chat
from outpace.cli.demo import demo
from outpace.cli.doctor import doctor
from outpace.cli.generate import generate
from outpace.cli.index import app as index_app
from outpace.cli.plan import plan
from outpace.cli.prove import prove
from outpace.cli.record_report import report
from outpace.cli.serve import serve
from outpace.cli.simulate import simulate
from outpace.cli.train import app as train_app

app = typer.Typer(
    name="outpace",
    help="Answers from a language model, faster, with not a token changed.",
    epilog="Start with: outpace demo",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.")
    ] = False,
) -> None:
    """Answers from a language model, faster, with not a token changed."""
    if version:
        from outpace import __version__

        sys.stdout.write(f"outpace {__version__}\n")
        raise typer.Exit
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


app.command()(generate)
app.command()(chat)
app.command()(demo)
app.command()(doctor)
app.command()(plan)
app.add_typer(bench_app, name="bench")
app.add_typer(calibrate_app, name="calibrate")
app.command()(prove)
app.add_typer(index_app, name="index")
app.command()(report)
app.command()(serve)
app.command()(simulate)
app.add_typer(train_app, name="train")
app.add_typer(align_app, name="align")
