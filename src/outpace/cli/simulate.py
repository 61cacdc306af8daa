"""``outpace simulate``: policies against invented requests, at any size, on any machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from outpace.cli.groups import with_groups
from outpace.cli.options import CommonOptions
from outpace.cli.show import write_json

if TYPE_CHECKING:
    from outpace.simulate.machine import Machine

_LOAD, _MACHINE = "Load", "Machine"
_POLICIES = ["off", "router"]
# Plain against plain is 1.00 by definition; said in a word so that nobody takes it for measured.
_PLAIN = "1.00 (plain)"


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """The requests."""

    arrival: Annotated[
        str,
        Option(
            help="poisson:REQUESTS_PER_SECOND or closed:REQUESTS, of all replicas together.",
            rich_help_panel=_LOAD,
        ),
    ] = "poisson:2"
    replicas: Annotated[int, Option(help="In the fleet.", rich_help_panel=_LOAD)] = 1
    sample: Annotated[
        int, Option(help="Replicas that are really simulated.", rich_help_panel=_LOAD)
    ] = 1
    seconds: Annotated[float, Option(help="For which requests come.", rich_help_panel=_LOAD)] = 30.0
    max_num_seqs: Annotated[
        int, Option(help="Most sequences in a step of a replica.", rich_help_panel=_LOAD)
    ] = 32
    max_num_batched_tokens: Annotated[
        int, Option(help="Most prompt tokens in a step.", rich_help_panel=_LOAD)
    ] = 512
    seed: Annotated[int, Option(help="Of the requests.", rich_help_panel=_LOAD)] = 0


@dataclass(frozen=True, slots=True)
class MachineOptions:
    """A replica, from data sheets as in ``outpace plan``."""

    hardware: Annotated[
        str, Option(help="A name of outpace plan --names.", rich_help_panel=_MACHINE)
    ] = "h100-sxm"
    devices: Annotated[int, Option(help="Parts of one replica.", rich_help_panel=_MACHINE)] = 1
    target: Annotated[str, Option(help="As in outpace plan.", rich_help_panel=_MACHINE)] = (
        "llama-3.1-8b"
    )
    draft: Annotated[
        str, Option(help="As in outpace plan; the source named model.", rich_help_panel=_MACHINE)
    ] = "llama-3.2-1b"
    precision: Annotated[str, Option(help="Of the weights.", rich_help_panel=_MACHINE)] = "bf16"

    def machine(self) -> Machine:
        """Put the machine together.

        Raises:
            OutpaceError: a name that is not known.
        """
        from outpace.plan.hardware import find_hardware
        from outpace.plan.setting import Models
        from outpace.simulate.machine import by_roofline

        part = find_hardware(self.hardware, None, None, None, self.devices)
        return by_roofline(Models.find(self.target, self.draft, self.precision), part, "model")


@with_groups
def simulate(
    load: LoadOptions,
    machine: MachineOptions,
    common: CommonOptions,
    workload: Annotated[
        Path | None, Argument(help="A TOML file of types; without it a mixed one.")
    ] = None,
    policy: Annotated[
        list[str] | None,
        Option(help="off, router, ngram:k=4, model:k=auto, ngram+model, …; repeatable."),
    ] = None,
    rules: Annotated[
        Path | None, Option(help="A TOML file of what the router must keep to.")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Try policies on invented requests and a computed clock, with the engine's own controllers."""
    del common
    from outpace.control.policy import read_policy
    from outpace.simulate.policies import parse_policy, sources_of
    from outpace.simulate.replica import Limits
    from outpace.simulate.run import Fleet, parse_arrival
    from outpace.simulate.run import simulate as run
    from outpace.simulate.workload import MIXED, read_workload

    mix = read_workload(workload) if workload else read_workload(MIXED)
    policies = [parse_policy(text, mix.sources) for text in dict.fromkeys(policy or _POLICIES)]
    sources = sources_of(policies, mix.sources)
    keep_to = read_policy(rules, sources) if rules else None
    arrival = parse_arrival(load.arrival)
    limits = Limits(load.max_num_seqs, load.max_num_batched_tokens)
    fleet = Fleet(load.replicas, load.sample, load.seconds, limits, load.seed)
    replica = machine.machine()
    results = [run(one, mix, replica, sources, arrival, fleet, keep_to) for one in policies]
    if as_json:
        write_json({"arrival": load.arrival, "replicas": load.replicas, "policies": results})
    else:
        _print(results)


def _print(results: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    load = Table("policy", "requests", "tokens/s", "tokens/step", "sequences", "drafting", "busy")
    tail = Table("policy", "times faster", "p5", "p95", "slower", "p99 step", "p99 token")
    for one in results:
        spread, times = one["speedups"] or {}, one["token_seconds"] or {}
        load.add_row(
            one["policy"],
            str(one["requests"]),
            f"{one['tokens_per_second']:,.0f}",
            f"{one['tokens_per_step']:.2f}",
            f"{one['sequences']:.1f}",
            f"{one['drafting_share']:.0%}",
            f"{one['busy']:.0%}",
        )
        tail.add_row(
            one["policy"],
            f"{spread['whole']:.2f}" if spread else _PLAIN,
            *(f"{spread[key]:.2f}" if spread else "-" for key in ("p5", "p95")),
            f"{spread['slower']:.0%}" if spread else "-",
            *(f"{1e3 * times[k]:.1f} ms" if times else "-" for k in ("p99_step", "p99_amortised")),
        )
    console.print(load, tail)
    kinds = Table("type", "policy", "requests", "times faster", "slower", "drafters at the end")
    for name in sorted({name for one in results for name in one["by_type"]}):
        for one in results:
            entry = one["by_type"].get(name)
            if entry is None:
                continue
            faster, slower = _PLAIN, "-"
            if entry["speedup"] is not None:
                faster, slower = f"{entry['speedup']:.2f}", f"{entry['slower']:.0%}"
            last = ", ".join(f"{k} {v}" for k, v in entry["last_drafter"].items())
            kinds.add_row(name, one["policy"], str(entry["requests"]), faster, slower, last)
    console.print(kinds)
    console.print(
        "times faster, slower: requests that drafted, against plain decoding (1.00) under that load"
    )
