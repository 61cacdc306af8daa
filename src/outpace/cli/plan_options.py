"""The options of ``outpace plan`` in groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from typer import Option

from outpace.plan.forecast import Load
from outpace.plan.steps import Assumptions

_MODELS, _HARDWARE, _ASKED, _ASSUMED = "Models", "Hardware", "What is asked", "Assumptions"


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Which models, and how precise."""

    target: Annotated[
        str,
        Option(
            help="A name of the table (--names), a folder, config.json, FILE.gguf or hub name.",
            rich_help_panel=_MODELS,
        ),
    ] = "llama-3.1-8b"
    draft: Annotated[
        str,
        Option(
            help="The same; or ngram (computes nothing), or eagle[:VOCABULARY] (a head).",
            rich_help_panel=_MODELS,
        ),
    ] = "llama-3.2-1b"
    precision: Annotated[
        str,
        Option(
            help="bf16, fp32, fp8, int8, w8a8, int4[:GROUP]; with --hardware this also auto.",
            rich_help_panel=_MODELS,
            show_default="bf16, on this machine auto",
        ),
    ] = ""
    draft_precision: Annotated[
        str | None,
        Option(help="Of the draft.", rich_help_panel=_MODELS, show_default="the target's"),
    ] = None
    cache_precision: Annotated[
        str, Option(help="Of keys and values: bf16, fp32 or fp8.", rich_help_panel=_MODELS)
    ] = "bf16"


@dataclass(frozen=True, slots=True)
class HardwareOptions:
    """What it runs on."""

    hardware: Annotated[
        str | None,
        Option(
            help="A name of the table (--names), or this: step times are measured here.",
            rich_help_panel=_HARDWARE,
            show_default="h100-sxm",
        ),
    ] = None
    devices: Annotated[
        int, Option(help="Parts of one replica that share each layer.", rich_help_panel=_HARDWARE)
    ] = 1
    bandwidth: Annotated[
        float | None,
        Option(help="GB/s of a part, instead of the table's.", rich_help_panel=_HARDWARE),
    ] = None
    compute: Annotated[
        float | None,
        Option(help="10^12 operations a second of a part.", rich_help_panel=_HARDWARE),
    ] = None
    memory: Annotated[float | None, Option(help="GiB of a part.", rich_help_panel=_HARDWARE)] = None
    threads: Annotated[
        int | None, Option(help="CPU threads, with --hardware this.", rich_help_panel=_HARDWARE)
    ] = None


@dataclass(frozen=True, slots=True)
class AskedOptions:
    """The requests and the load."""

    context: Annotated[
        int, Option(help="Tokens that a sequence holds, on average.", rich_help_panel=_ASKED)
    ] = 2048
    mix: Annotated[
        list[str] | None,
        Option(
            metavar="NAME=SHARE:alpha=A",
            help="A kind of request; repeatable. More after commas: coverage=, prompt=, output=; "
            "several alphas by position: .8/.7/.6. Or one FILE.toml or FILE.json.",
            rich_help_panel=_ASKED,
            show_default="all=1:alpha=0.7",
        ),
    ] = None
    rate: Annotated[float | None, Option(help="Requests a second.", rich_help_panel=_ASKED)] = None
    latency_target: Annotated[
        float | None,
        Option(help="Most milliseconds between a sequence's tokens.", rich_help_panel=_ASKED),
    ] = None
    utilization: Annotated[
        float, Option(help="Most of a replica's time that is busy.", rich_help_panel=_ASKED)
    ] = 0.8
    max_k: Annotated[
        int, Option(help="Look at up to so many draft tokens.", rich_help_panel=_ASKED)
    ] = 8

    def load(self) -> Load:
        """Return the load.

        Raises:
            InvalidValueError: a value out of range.
        """
        seconds = None if self.latency_target is None else self.latency_target / 1e3
        return Load(self.rate, seconds, self.utilization)


@dataclass(frozen=True, slots=True)
class AssumptionOptions:
    """What no data sheet says."""

    bandwidth_efficiency: Annotated[
        float, Option(help="Share of the bandwidth that is reached.", rich_help_panel=_ASSUMED)
    ] = Assumptions().bandwidth_efficiency
    compute_efficiency: Annotated[
        float, Option(help="Share of the operations that is reached.", rich_help_panel=_ASSUMED)
    ] = Assumptions().compute_efficiency
    step_overhead: Annotated[
        float, Option(help="Milliseconds of host work a step.", rich_help_panel=_ASSUMED)
    ] = Assumptions().step_overhead * 1e3
    row_overhead: Annotated[
        float, Option(help="Microseconds of host work a row.", rich_help_panel=_ASSUMED)
    ] = Assumptions().row_overhead * 1e6
    pass_overhead: Annotated[
        float, Option(help="Microseconds to start a pass.", rich_help_panel=_ASSUMED)
    ] = Assumptions().pass_overhead * 1e6
    layer_overhead: Annotated[
        float, Option(help="Microseconds to start a layer.", rich_help_panel=_ASSUMED)
    ] = Assumptions().layer_overhead * 1e6
    reserve: Annotated[
        float, Option(help="Share of memory that is kept free.", rich_help_panel=_ASSUMED)
    ] = 0.1

    def assumptions(self) -> Assumptions:
        """Return the assumptions.

        Raises:
            InvalidValueError: a value out of range.
        """
        return Assumptions(
            bandwidth_efficiency=self.bandwidth_efficiency,
            compute_efficiency=self.compute_efficiency,
            step_overhead=self.step_overhead / 1e3,
            row_overhead=self.row_overhead / 1e6,
            pass_overhead=self.pass_overhead / 1e6,
            layer_overhead=self.layer_overhead / 1e6,
        )
