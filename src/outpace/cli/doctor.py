"""``outpace doctor``: whether speculation will pay here, or how it does where it runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer
from typer import Argument, Option

from outpace.cli.failures import FAILED
from outpace.cli.groups import with_groups
from outpace.cli.options import CommonOptions, EngineOptions
from outpace.cli.show import write_json
from outpace.errors import InvalidValueError


@with_groups
def doctor(
    engine: EngineOptions,
    common: CommonOptions,
    target: Annotated[
        str | None,
        Argument(
            metavar="[MODEL]", help="The target, as for --model.", show_default="what --model says"
        ),
    ] = None,
    url: Annotated[
        str | None,
        Option(metavar="URL", help="Ask a running server how its speculation does instead."),
    ] = None,
    record: Annotated[
        str | None, Option(metavar="FILE", help="Say how speculation did in a record instead.")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say on one screen whether speculation will pay on this machine, and why.

    Measures the memory and the model's steps, and predicts the speed-up for each k. With --url or
    --record it lists what is wrong with speculation as it runs; exit status 1 if there is a
    warning.
    """
    del common
    if url is not None or record is not None:
        _health(url, record, engine, target, as_json)
        return
    if target is not None:
        engine = replace(engine, model=target)
    config = engine.config()
    from rich.console import Console

    with Console(stderr=True).status(f"Examining {engine.model} …"):
        from outpace.doctor.checkup import check_up

        report = check_up(engine.model, config)
    if as_json:
        from outpace.cli.doctor_report import as_dict

        write_json(as_dict(report))
    else:
        from outpace.cli.doctor_report import print_report

        print_report(report)


def _health(
    url: str | None, record: str | None, engine: EngineOptions, target: str | None, as_json: bool
) -> None:
    if url is not None and record is not None:
        raise InvalidValueError("record", record, "give --url or --record, not both")
    if target is not None or engine != EngineOptions():
        name = "url" if url is not None else "record"
        raise InvalidValueError(name, url or record, "leave out the options of the model")
    from outpace.cli.doctor_health import health_of_record, health_of_server, print_health

    body = health_of_server(url) if url is not None else health_of_record(str(record))
    if as_json:
        write_json(body)
    else:
        print_health(body)
    if body.get("status") != "ok":
        raise typer.Exit(FAILED)
