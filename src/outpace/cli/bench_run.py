"""From the options of ``outpace bench`` to a measured result."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from outpace.bench.arrival import Arrival, Asked, parse_arrivals, rounds
from outpace.bench.local import LocalTarget, drafters_to_load
from outpace.bench.machine import machine_facts
from outpace.bench.policy import PLAIN, Policy, parse_policies
from outpace.bench.result import Result, make_result
from outpace.bench.run import Measured, Target, measure, warm_up
from outpace.bench.server import Server, ServerTarget
from outpace.bench.workload import Workload, load
from outpace.cli import loading
from outpace.cli.bench_options import RunOptions, ServerOptions, WorkOptions
from outpace.cli.options import EngineOptions
from outpace.cli.show import note
from outpace.config import NoDrafter
from outpace.errors import InvalidValueError
from outpace.record.recorder import open_recorder

_NAMED = re.compile(r"^([\w.:+-]+)=(https?://.*)$", re.DOTALL)


def run_local(
    work: WorkOptions, running: RunOptions, engine: EngineOptions, record: str | None = None
) -> Result:
    """Measure policies in this process; with ``record`` each request is a row of that file.

    Raises:
        OutpaceError: an option, the workload or a model cannot be used.
    """
    running.check()
    config, params = engine.config(), work.params()
    if config.verification == "rejection":
        raise InvalidValueError(
            "verification",
            "rejection",
            "keeps the distribution, not each token, and ratios need the same tokens; "
            "use coupled or auto",
        )
    policies = parse_policies(running.policies)
    arrivals = parse_arrivals(running.arrival or ["one"])
    workload = _workload(work)
    recorder = open_recorder(record)
    machine = machine_facts()
    # Without the cache of equal beginnings each policy reads each prompt itself, as the first
    # would have to.
    most = max(config.max_num_seqs, *(arrival.at_once or 0 for arrival in arrivals))
    config = replace(config, prefix_caching=False, max_num_seqs=most)
    llms = {
        drafter: loading.load(engine, replace(config, drafter=drafter))
        for drafter in drafters_to_load(policies)
    }
    local = LocalTarget(llms, policies, params, recorder=recorder)
    local.check([Asked(entry) for entry in workload.entries], policies)
    measured = _measure(local, policies, workload, arrivals, work, running)
    if recorder is not None:
        recorder.close()
    first = next(iter(llms.values()))
    told = {
        "kind": "local",
        "model": engine.model,
        "setting": first.setting,
        "guarantee": first.guarantee,
        "options": _changed(engine),
    }
    settings = _settings(workload, arrivals, work, running)
    names = [policy.name for policy in policies]
    return make_result(measured, told, settings, names, local.cost_table(), machine)


def run_servers(work: WorkOptions, running: RunOptions, server: ServerOptions) -> Result:
    """Measure servers.

    Raises:
        OutpaceError: an option or the workload cannot be used, or a server does not answer.
    """
    running.check()
    server.check()
    params = work.params()
    servers = named_servers(server.url or [], server.timeout)
    arrivals = parse_arrivals(running.arrival or ["one"])
    workload = _workload(work)
    machine = machine_facts()
    target = ServerTarget(servers, server.served_model, params)
    policies = [Policy(name, NoDrafter(), 0) for name in servers]
    measured = _measure(target, policies, workload, arrivals, work, running)
    told = {
        "kind": "server",
        "model": target.model,
        "servers": [f"{name}={one.url}" for name, one in servers.items()],
    }
    settings = _settings(workload, arrivals, work, running)
    return make_result(measured, told, settings, list(servers), {}, machine)


def named_servers(urls: Sequence[str], timeout: float) -> dict[str, Server]:
    """Read ``[NAME=]URL``; a single one without a name is ``server``, several need names.

    Raises:
        InvalidValueError: a name that is missing or there twice, or an address that is none.
    """
    servers: dict[str, Server] = {}
    for text in urls:
        found = _NAMED.match(text)
        name, url = found.groups() if found else ("server", text)
        if name in servers:
            way_out = f"name each server once: {PLAIN}=URL for the reference, NAME=URL for others"
            raise InvalidValueError("url", text, way_out)
        servers[name] = Server.at(url, timeout)
    return servers


def _workload(work: WorkOptions) -> Workload:
    whole = load(work.workload, skip_bad=work.skip_bad_lines)
    for line in whole.skipped:
        note(f"left out: {line}")
    return whole.selected(work.task or [], work.per_task)


def _measure(
    target: Target,
    policies: Sequence[Policy],
    workload: Workload,
    arrivals: Sequence[Arrival],
    work: WorkOptions,
    running: RunOptions,
) -> Measured:
    entries = workload.entries
    plan = list(rounds(entries, arrivals, len(policies), running.repeats, work.seed))
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("warming up", total=sum(len(one.asked) for one in plan))
        warm_up(target, policies, [Asked(entry) for entry in entries[: running.warmup]])
        progress.update(task, description="measuring; Ctrl-C keeps what is there")
        sizes = iter(plan)
        return measure(
            target, policies, plan, lambda: progress.advance(task, len(next(sizes).asked))
        )


def _settings(
    workload: Workload, arrivals: Sequence[Arrival], work: WorkOptions, running: RunOptions
) -> dict[str, Any]:
    return {
        "workload": workload.name,
        "workload_fingerprint": workload.fingerprint,
        "tasks": list(dict.fromkeys(entry.task for entry in workload.entries)),
        "prompts": len(workload.entries),
        "lines_left_out": len(workload.skipped),
        "later_turns_not_asked": sum(entry.unused_turns for entry in workload.entries),
        "arrivals": [arrival.name for arrival in arrivals],
        "repeats": running.repeats,
        "warmup": running.warmup,
        "max_tokens": work.max_tokens,
        "temperature": work.temperature,
        "seed": work.seed,
        "ignore_eos": work.ignore_eos,
    }


def _changed(engine: EngineOptions) -> list[str]:
    """The options of the engine that are not the usual ones, as they were given."""
    usual = EngineOptions()
    values = {name: getattr(engine, name) for name in EngineOptions.__dataclass_fields__}
    return [f"{k}={v}" for k, v in values.items() if k != "model" and v != getattr(usual, k)]
