"""``outpace doctor``: whether speculation will pay on this machine, and why."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from typer import Argument, Option

from outpace.cli.groups import with_groups
from outpace.cli.options import CommonOptions, EngineOptions
from outpace.cli.show import write_json


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
    as_json: Annotated[bool, Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say on one screen whether speculation will pay on this machine, and why.

    Measures the memory and the model's steps, and predicts the speed-up for each k.
    """
    del common
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
