"""``outpace bench``: what speculation brings, measured so that others can check it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from outpace.cli.bench_options import OutputOptions, RunOptions, ServerOptions, WorkOptions
from outpace.cli.failures import FAILED, INTERRUPTED, one_line
from outpace.cli.groups import Without, with_groups
from outpace.cli.options import CommonOptions, EngineOptions
from outpace.cli.show import note, write_json
from outpace.errors import InvalidValueError

if TYPE_CHECKING:
    from outpace.bench.result import Result

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})


@with_groups
def bench(
    context: typer.Context,
    work: WorkOptions,
    running: RunOptions,
    engine: Annotated[EngineOptions, Without({"drafter", "num_speculative_tokens"})],
    server: ServerOptions,
    output: OutputOptions,
    common: CommonOptions,
) -> None:
    """Measure ways to decode against plain decoding, on the same work.

    Without options: some prompts of each of nine tasks, on the demo model. The exit status is 0
    only if the run was whole and every answer was that of plain decoding.
    """
    del common
    if context.invoked_subcommand is not None:
        return
    from outpace.cli.bench_run import run_local, run_servers

    output.check()
    if server.url:
        if engine != EngineOptions():
            raise InvalidValueError(
                "url", server.url[0], "options of the model are for this process; leave them out"
            )
        if running.policy:
            raise InvalidValueError(
                "policy", running.policy[0], "a server's policy is its own: --url NAME=URL"
            )
        if output.record is not None:
            raise InvalidValueError(
                "record", output.record, "a server keeps its own record; leave it out"
            )
        result = run_servers(work, running, server)
    else:
        result = run_local(work, running, engine, output.record)
    _show(result, output)


def _show(result: Result, output: OutputOptions) -> None:
    """Write all that was asked for, then leave with the status that the run deserves."""
    from outpace.bench.files import write_text
    from outpace.bench.policy import PLAIN
    from outpace.bench.report import make_page
    from outpace.bench.result import save

    if output.save is not None:
        save(result, output.save)
    if output.page is not None:
        write_text(output.page, make_page(result))
    if output.as_json:
        write_json(result.as_dict())
    else:
        from outpace.cli.bench_tables import print_result

        print_result(result)
    for path in (output.save, output.page, output.record):
        if path is not None:
            note(f"wrote {path}")
    if result.partial == "interrupted":
        raise typer.Exit(INTERRUPTED)
    if result.partial:
        note(f"error: {one_line(result.partial)}")
        raise typer.Exit(FAILED)
    if any(r.identical is False and r.policy != PLAIN for r in result.records):
        raise typer.Exit(FAILED)


@with_groups
def compare(
    common: CommonOptions,
    first: Annotated[str, Argument(metavar="A.json", help="The run before.")],
    second: Annotated[str, Argument(metavar="B.json", help="The run after.")],
    margin: Annotated[
        float, Option(help="Two runs differ by this share at least before it counts.")
    ] = 0.03,
    across_machines: Annotated[
        bool, Option("--across-machines", help="Compare runs of different processors.")
    ] = False,
    fail_if_slower: Annotated[
        bool, Option("--fail-if-slower", help="Exit status 1 if anything became slower.")
    ] = False,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say whether run B was faster or slower than run A, as far as that can be told."""
    del common
    from outpace.bench import compare as comparison
    from outpace.bench.result import load
    from outpace.config import check_number

    check_number("margin", margin, "must be a number from 0 to 1", 0, 1)
    before, after = load(first), load(second)
    verdicts = comparison.compare(before, after, margin=1 + margin, across_machines=across_machines)
    slower = any(verdict.verdict == comparison.SLOWER for verdict in verdicts)
    if as_json:
        write_json(
            {
                "first": first,
                "second": second,
                "partial": [bool(before.partial), bool(after.partial)],
                "slower": slower,
                "verdicts": [verdict.as_dict() for verdict in verdicts],
            }
        )
    else:
        from outpace.cli.bench_tables import print_comparison

        print_comparison(before, after, verdicts)
    if slower and fail_if_slower:
        raise typer.Exit(FAILED)


@with_groups
def report(
    common: CommonOptions,
    file: Annotated[str, Argument(metavar="FILE.json", help="What --save wrote.")],
    output: Annotated[
        str, Option("--output", "-o", metavar="FILE.html", help="The page to write.")
    ],
) -> None:
    """Make the page of a run from its file."""
    del common
    from outpace.bench.files import write_text
    from outpace.bench.report import make_page
    from outpace.bench.result import load

    write_text(output, make_page(load(file)))
    note(f"wrote {output}")


app.callback(invoke_without_command=True)(bench)
app.command()(compare)
app.command()(report)
