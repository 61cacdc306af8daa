"""What control costs where nothing is drafted (bar: 2 % of a step).

Run with nothing else on the machine:

    python benchmarks/control_cost.py --model demo --threads 1

One process, one loaded model, and three engines around it that take turns round by round:

- ``bare``: no drafters but the plain one, a fixed k of 0, nothing that learns;
- ``off``: the engine of ``LLM`` with its router, asked for ``drafter="none"``;
- ``silent``: the same, where the router chooses and its policy pins plain decoding, so that the
  trained head listens in case it is wanted later.

A round's figure is the median over its steps; the ratio to ``bare`` is taken within a round, and
the median over rounds is printed with a 95 % interval (of the order statistics). ``host`` is what
a step takes beside the forward pass; how much more that is than in ``bare``, as a share of a whole
step, is less disturbed by what else the machine does, but leaves out what listening adds to the
pass.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
from time import perf_counter

from rich.console import Console
from rich.table import Table

from outpace import LLM, SamplingParams
from outpace.control.policy import DrafterPolicy, TypePolicy
from outpace.control.routed import RoutedController
from outpace.engine.engine import Engine
from outpace.prove.workbench import Workbench
from outpace.request import Request

PROMPT = "Tell a long story about a lighthouse, its keeper, and the ships that came and went."
BARE, OFF, SILENT = "bare", "off", "silent"


def step_seconds(
    engine: Engine, prompts: list[tuple[int, ...]], ask: dict[str, object]
) -> tuple[float, float]:
    """Median seconds of the steps in which every sequence decodes: whole, and beside the pass."""
    params = SamplingParams(max_tokens=int(str(ask["tokens"])), ignore_eos=True)
    drafter = ask["drafter"]
    requests = [
        Request(f"cost-{i}", prompt, params, drafter=None if drafter is None else str(drafter))
        for i, prompt in enumerate(prompts)
    ]
    sequences = [sequence for request in requests for sequence in engine.add(request)]
    times, passes, host = [], [0.0], []
    engine.on_step = lambda step: passes.append(step.verify_seconds)
    while engine.has_work:
        decoding = all(one.num_missing == 1 and one.output.token_ids for one in sequences)
        began = perf_counter()
        engine.step()
        if decoding and engine.has_work:
            times.append(perf_counter() - began)
            host.append(times[-1] - passes[-1])
    return statistics.median(times), statistics.median(host)


def interval(values: list[float]) -> tuple[float, float, float]:
    """Median, and the order statistics that enclose it in 95 % of cases."""
    ordered, n = sorted(values), len(values)
    reach = 0.98 * n**0.5
    low, high = max(0, int(n / 2 - reach)), min(n - 1, round(n / 2 + reach))
    return statistics.median(ordered), ordered[low], ordered[high]


def main() -> None:
    """Measure, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="demo")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--at-once", default="1,8", help="numbers of sequences")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    llm = LLM(
        args.model, threads=args.threads, prefix_caching=False, kv_cache_tokens=8192,
        keep_learned=False,
    )  # fmt: skip
    controller = llm.engine.controller
    assert isinstance(controller, RoutedController)
    controller.router.policy = DrafterPolicy(TypePolicy(pin="none"))
    bare = Workbench(llm).engine({}, k=0, prefix_caching=False)
    prompt = tuple(llm.tokenizer.encode(PROMPT))
    engines = {BARE: (bare, "none"), OFF: (llm.engine, "none"), SILENT: (llm.engine, None)}
    rows = []
    gc.disable()  # a collection would meet one of them by chance
    for at_once in map(int, args.at_once.split(",")):
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in engines}
        for number in range(args.rounds + 1):
            names = list(engines)
            for name in names[number % 3 :] + names[: number % 3]:
                engine, drafter = engines[name]
                ask = {"tokens": args.tokens, "drafter": drafter}
                seconds = step_seconds(engine, [prompt] * at_once, ask)
                if number:  # the first round warms up
                    found[name].append(seconds)
            gc.collect()
        for name in (OFF, SILENT):
            pairs = list(zip(found[name], found[BARE], strict=True))
            ratios = [one / other for (one, _), (other, _) in pairs]
            more = [(mine - its) / whole for (_, mine), (whole, its) in pairs]
            middle, low, high = interval(ratios)
            rows.append({
                "sequences": at_once, "engine": name,
                "bare_ms": 1e3 * statistics.median(whole for whole, _ in found[BARE]),
                "ms": 1e3 * statistics.median(whole for whole, _ in found[name]),
                "ratio": middle, "low": low, "high": high,
                "bare_host_ms": 1e3 * statistics.median(host for _, host in found[BARE]),
                "host_ms": 1e3 * statistics.median(host for _, host in found[name]),
                "host_more": statistics.median(more),
            })  # fmt: skip
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    table = Table(
        "sequences", "engine", "bare ms", "ms", "ratio", "95 %", "bare host", "host", "host more"
    )
    for row in rows:
        table.add_row(
            str(row["sequences"]), str(row["engine"]), f"{row['bare_ms']:.3f}", f"{row['ms']:.3f}",
            f"{row['ratio']:.4f}", f"{row['low']:.4f}-{row['high']:.4f}",
            f"{row['bare_host_ms']:.3f}", f"{row['host_ms']:.3f}", f"{row['host_more']:.2%}",
        )  # fmt: skip
    Console().print(table)


if __name__ == "__main__":
    main()
