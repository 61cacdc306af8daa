"""``outpace plan``: what speculation costs and brings, before anything is bought."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from outpace.cli.groups import with_groups
from outpace.cli.options import CommonOptions
from outpace.cli.plan_options import (
    AskedOptions,
    AssumptionOptions,
    HardwareOptions,
    ModelOptions,
)
from outpace.cli.show import note, write_json
from outpace.config import check_integer, check_number
from outpace.errors import InvalidValueError

if TYPE_CHECKING:
    from outpace.plan.forecast import Setting
    from outpace.plan.mix import Mix
    from outpace.plan.report import Report

_THIS = "this"
_USUAL_MIX = ["all=1:alpha=0.7"]
_USUAL_HARDWARE = "h100-sxm"


@with_groups
def plan(
    models: ModelOptions,
    hardware: HardwareOptions,
    asked: AskedOptions,
    assumed: AssumptionOptions,
    common: CommonOptions,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object.")] = False,
    html: Annotated[
        Path | None, Option(help="Write a page with plots, of one file.", metavar="FILE")
    ] = None,
    names: Annotated[
        bool, Option("--names", help="List the models and the hardware of the tables.")
    ] = False,
) -> None:
    """Plan memory, speed and replicas with and without speculation.

    From shapes and data sheets, or with --hardware this from step times measured here.
    """
    del common
    if names:
        from outpace.cli.plan_report import print_names

        print_names()
        return
    report = _report(models, hardware, asked, assumed)
    if html is not None:
        from outpace.plan.page import write_page

        write_page(report, html)
        note(f"wrote {html}")
    if as_json:
        write_json(report.as_dict())
    else:
        from outpace.cli.plan_report import print_report

        print_report(report)


def _report(
    models: ModelOptions,
    hardware: HardwareOptions,
    asked: AskedOptions,
    assumed: AssumptionOptions,
) -> Report:
    from outpace.plan.forecast import LARGEST_K, forecast
    from outpace.plan.mix import read_mix
    from outpace.plan.report import Report

    check_integer("context", asked.context, 1, 10_000_000)
    check_integer("max_k", asked.max_k, 1, LARGEST_K)
    check_integer("devices", hardware.devices, 1, 1024)
    check_number("reserve", assumed.reserve, "must be a number from 0 to 0.9", 0, 0.9)
    for name in ("bandwidth", "compute", "memory"):
        value = getattr(hardware, name)
        if value is not None:
            check_number(name, value, "must be a number above 0", 1e-6, 1e9)
    mix = read_mix(asked.mix or _USUAL_MIX)
    make = _measured if hardware.hardware == _THIS else _by_roofline
    setting, where, assumptions = make(models, hardware, asked, assumed, mix)
    status = nullcontext()
    if hardware.hardware == _THIS:
        from rich.console import Console

        status = Console(stderr=True).status("Measuring step times …")  # type: ignore[assignment]
    with status:
        return Report(setting, forecast(setting), where, assumptions)


def _by_roofline(
    models: ModelOptions,
    hardware: HardwareOptions,
    asked: AskedOptions,
    assumed: AssumptionOptions,
    mix: Mix,
) -> tuple[Setting, dict[str, object], dict[str, object]]:
    from dataclasses import asdict

    from outpace.plan.hardware import find_hardware
    from outpace.plan.setting import Models, roofline_setting

    named = hardware.hardware
    if named is None and (hardware.bandwidth is None or hardware.compute is None):
        named = _USUAL_HARDWARE
    part = find_hardware(
        named, hardware.bandwidth, hardware.compute, hardware.memory, hardware.devices
    )
    pair = Models.find(
        models.target,
        models.draft,
        models.precision or "bf16",
        models.draft_precision,
        models.cache_precision,
    )
    assumptions = assumed.assumptions()
    setting = roofline_setting(
        pair,
        part,
        mix,
        asked.context,
        asked.load(),
        max_k=asked.max_k,
        assumptions=assumptions,
        reserve=assumed.reserve,
    )
    where = {"step_times": "roofline", **asdict(part)}
    return setting, where, asdict(assumptions) | {"reserve": assumed.reserve}


def _measured(
    models: ModelOptions,
    hardware: HardwareOptions,
    asked: AskedOptions,
    assumed: AssumptionOptions,
    mix: Mix,
) -> tuple[Setting, dict[str, object], dict[str, object]]:
    for name, value in (
        ("bandwidth", hardware.bandwidth),
        ("compute", hardware.compute),
        ("devices", None if hardware.devices == 1 else hardware.devices),
    ):
        if value is not None:
            raise InvalidValueError(name, value, "does not go with --hardware this, which measures")
    from rich.console import Console

    from outpace.plan.hardware import GIB
    from outpace.plan.measured import measured_setting

    with Console(stderr=True).status(f"Loading {models.target} and {models.draft} …"):
        setting = measured_setting(
            models.target,
            models.draft,
            mix,
            asked.context,
            asked.load(),
            max_k=asked.max_k,
            dtype=models.precision or "auto",
            draft_dtype=models.draft_precision,
            memory=None if hardware.memory is None else hardware.memory * GIB,
            threads=hardware.threads,
            reserve=assumed.reserve,
        )
    where = {
        "step_times": "measured",
        "name": "this machine",
        "source": "forward passes of both models, and the host's work of plain decoding",
        "memory": setting.memory.available,
    }
    return setting, where, {"reserve": assumed.reserve}
