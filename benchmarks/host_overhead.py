"""Host work per step outside the model's forward pass, at batch 1 (bar: 2 ms).

Run with nothing else on the machine:

    python benchmarks/host_overhead.py --model demo

Each drafter and way of sampling is run in turn, several times, so that drifts of the machine
meet all of them alike; the medians over the repeats are printed.
"""

from __future__ import annotations

import argparse
import json
import statistics

from rich.console import Console
from rich.table import Table

from outpace import LLM, SamplingParams
from outpace.request import Speculation

PROMPT = (
    "Repeat this list three times, word for word: apples, pears, plums, cherries, quinces, "
    "medlars, peaches, apricots, figs, grapes, melons, lemons, limes, oranges, dates."
)
WAYS = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 0.8, "seed": 7},
    "sampled, top_p": {"temperature": 0.8, "seed": 7, "top_p": 0.9},
    "penalties": {"temperature": 0.8, "seed": 7, "frequency_penalty": 0.1},
    "rejection": {"temperature": 0.8},
    "logprobs": {"temperature": 0.0, "logprobs": 5},
}


def host_milliseconds(record: Speculation) -> tuple[float, float]:
    """Proposing, and everything else beside the forward pass, per target step."""
    scale = 1e3 / record.target_steps
    return record.draft_seconds * scale, record.rest_seconds * scale


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="demo")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("-k", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    llm = LLM(args.model, "ngram", num_speculative_tokens=args.k)
    messages = [{"role": "user", "content": PROMPT}]
    figures: dict[tuple[str, str], list[Speculation]] = {}
    for _ in range(args.repeats):
        for way, options in WAYS.items():
            params = SamplingParams(max_tokens=args.tokens, ignore_eos=True, **options)
            for drafter in ("none", "ngram"):
                [result] = llm.chat(messages, params, drafter=drafter)
                figures.setdefault((way, drafter), []).append(result.speculative)
    rows = []
    for (way, drafter), records in figures.items():
        draft, rest = zip(*map(host_milliseconds, records), strict=True)
        forward = [1e3 * r.verify_seconds / r.target_steps for r in records]
        rows.append(
            {
                "sampling": way,
                "drafter": drafter,
                "steps": records[0].target_steps,
                "propose_ms": statistics.median(draft),
                "rest_ms": statistics.median(rest),
                "host_ms": statistics.median(d + r for d, r in zip(draft, rest, strict=True)),
                "forward_ms": statistics.median(forward),
            }
        )
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    table = Table("sampling", "drafter", "steps", "propose ms", "rest ms", "host ms", "forward ms")
    for row in rows:
        shown = [f"{v:.2f}" if isinstance(v, float) else str(v) for v in row.values()]
        table.add_row(*shown)
    Console().print(table)


if __name__ == "__main__":
    main()
