r"""What each drafter brings, by task: alpha, acceptance length, and times against plain decoding.

Times are those of whole answers, the reading of the prompt included, and of decoding alone, from
the first token on.

Run with nothing else on the machine:

    python benchmarks/drafters.py --model demo \
        --drafter ngram --drafter early_exit --drafter "ngram|early_exit" \
        --workload prompts.jsonl --per-task 4 --json drafters.json --markdown drafters.md
    python benchmarks/drafters.py --model ./qwen2.5-coder-1.5b --quantization int8 \
        --drafter ngram --drafter model:./qwen2.5-coder-0.5b:k=3 --drafter model:demo

A drafter is written as everywhere, with ``:k=4`` behind it for a fixed k. Each gets an engine of
its own, one after the other, and in it plain decoding and the drafter take turns on every prompt,
in an order that turns round; a prompt counts with the median of its repeats. The files are written
anew after each drafter, so that Ctrl-C keeps what is there.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from pathlib import Path
from typing import Any

from outpace import LLM, OutpaceError, SamplingParams
from outpace.bench.arrival import Asked, parse_arrivals, rounds
from outpace.bench.figures import figures
from outpace.bench.local import LocalTarget
from outpace.bench.machine import machine_facts, versions
from outpace.bench.policy import Policy, parse_policies
from outpace.bench.run import measure, warm_up
from outpace.bench.words import interval_text, ratio_text, shown
from outpace.bench.workload import SHIPPED, Workload, load

USUAL = ("ngram", "early_exit", "ngram|early_exit")


def main() -> int:
    args = parse_arguments()
    try:
        policies = parse_policies(args.drafter or USUAL)
        workload = load(args.workload).selected(args.task or [], args.per_task)
    except OutpaceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    plain, *drafting = policies
    content: dict[str, Any] = {
        "model": args.model,
        "settings": {
            name: getattr(args, name)
            for name in ("quantization", "dtype", "threads", "max_tokens", "temperature", "seed")
        }
        | {"repeats": args.repeats, "workload": workload.name, "prompts": len(workload.entries)},
        "fingerprint": workload.fingerprint,
        "machine": machine_facts(),
        "versions": versions(),
        "failed": {},
        "rows": [],
    }
    for policy in drafting:
        print(f"{policy.name} …", file=sys.stderr, flush=True)
        try:
            rows, stopped = compare(args, plain, policy, workload)
        except OutpaceError as error:
            content["failed"][policy.name] = str(error)
            print(f"{policy.name}: {error}", file=sys.stderr)
            continue
        content["rows"] += rows
        write(args, content)
        if stopped:
            print(f"{policy.name}: {stopped}; the rest is not run", file=sys.stderr)
            break
        gc.collect()
    write(args, content)
    print(as_markdown(content))
    return 1 if content["failed"] else 0


def compare(
    args: argparse.Namespace, plain: Policy, policy: Policy, workload: Workload
) -> tuple[list[dict[str, Any]], str]:
    """Rows of figures of one drafter, by task, and why it was stopped if it was."""
    options = {
        name: getattr(args, name)
        for name in ("quantization", "dtype", "threads", "max_model_len")
        if getattr(args, name) is not None
    }
    llm = LLM(args.model, policy.drafter, prefix_caching=False, **options)
    params = SamplingParams(
        max_tokens=args.max_tokens, temperature=args.temperature, seed=args.seed
    )
    pair = (plain, policy)
    target = LocalTarget({policy.drafter: llm}, pair, params)
    entries = workload.entries
    target.check([Asked(entry) for entry in entries], pair)
    plan = rounds(entries, parse_arrivals(["one"]), len(pair), args.repeats, args.seed)
    warm_up(target, pair, [Asked(entry) for entry in entries[: args.warmup]])
    measured = measure(target, pair, list(plan))
    rows = figures(measured.records, target.cost_table())
    kept = [row for row in rows if row["policy"] == policy.name]
    return kept, measured.stopped


def write(args: argparse.Namespace, content: dict[str, Any]) -> None:
    if args.json:
        Path(args.json).write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    if args.markdown:
        Path(args.markdown).write_text(as_markdown(content), "utf-8")


def as_markdown(content: dict[str, Any]) -> str:
    """One line for each task and drafter, tasks together."""
    lines = [
        "| task | drafter | alpha (95 %) | acceptance length | times faster (95 %) "
        "| decoding alone (95 %) | same tokens |",
        "|---|---|---|---|---|---|---|",
    ]
    rows = content["rows"]
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    for task in sorted(tasks, key=lambda task: task == "all"):
        lines += [_line(row) for row in rows if row["task"] == task]
    lines += [f"\n`{name}` could not be run: {why}" for name, why in content["failed"].items()]
    return "\n".join(lines) + "\n"


def _line(row: dict[str, Any]) -> str:
    alpha = interval_text(row["alpha"], row["alpha_low"], row["alpha_high"])
    length = shown(row["acceptance_length"])
    faster, decoding = ratio_text(row["speedup"]), ratio_text(row["decode_speedup"])
    other = row["requests_with_other_tokens"]
    same = "yes" if other == 0 else f"{other} of {row['requests']} not"
    name = row["policy"].replace("|", "\\|")
    return f"| {row['task']} | `{name}` | {alpha} | {length} | {faster} | {decoding} | {same} |"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="demo")
    parser.add_argument("--drafter", action="append", help="as for outpace; may have :k=N behind")
    parser.add_argument("--workload", default=SHIPPED, help="a file of JSON lines")
    parser.add_argument("--task", action="append")
    parser.add_argument("--per-task", type=int, default=4, help="prompts of each task; 0: all")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quantization", default="none")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--max-model-len", type=int)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--markdown", metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
