"""What exactness of draft trees costs: a key view for each path, beside one masked view.

Run with nothing else on the machine:

    python benchmarks/tree_attention.py --model demo

Prints the median time of a target step with a tree, both ways in turn, by context and tree.
"""

from __future__ import annotations

import argparse
import statistics
from time import perf_counter
from typing import get_args

import torch
from rich.console import Console
from rich.table import Table

from outpace import LLM, SamplingParams
from outpace.config import TreeAttention
from outpace.engine.scheduler import Scheduled
from outpace.engine.segments import build_batch
from outpace.request import Request
from outpace.spec.tree import DraftTree

SHAPES = {
    "chain of 8": tuple(range(-1, 7)),
    "8 nodes, 4 leaves": (-1, -1, -1, 0, 0, 1, 3, 6),
    "16 nodes, 8 leaves": (-1, -1, -1, 0, 0, 0, 1, 1, 2, 3, 3, 4, 6, 9, 9, 12),
}


def step_seconds(llm: LLM, part: Scheduled, tree: DraftTree, way: TreeAttention) -> float:
    """Seconds to lay out and compute one step."""
    began = perf_counter()
    batch, _ = build_batch([part], [tree], llm.engine.config.block_size, way)
    llm.engine.runner.run(batch)
    return perf_counter() - began


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="demo")
    parser.add_argument("--contexts", type=int, nargs="+", default=[128, 1024, 4096])
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    llm = LLM(args.model, "none", num_speculative_tokens=0)
    table = Table("context", "tree", "paths ms", "mask ms", "ratio")
    for context in args.contexts:
        request = Request("bench", tuple([5] * context), SamplingParams())
        [sequence] = llm.engine.admission.open(request)
        sequence.num_computed = context - 1
        assert llm.engine.blocks.reserve(sequence.table, context + 16)
        for name, parents in SHAPES.items():
            tree = DraftTree(tuple(range(100, 100 + len(parents))), parents)
            part = Scheduled(sequence, 1, len(tree))
            times: dict[str, list[float]] = {way: [] for way in get_args(TreeAttention)}
            for _ in range(args.repeats):
                for way, found in times.items():
                    found.append(step_seconds(llm, part, tree, way))
            paths, mask = (statistics.median(times[way]) * 1e3 for way in ("paths", "mask"))
            table.add_row(str(context), name, f"{paths:.1f}", f"{mask:.1f}", f"{paths / mask:.2f}")
        llm.engine.blocks.free(sequence.table)
    Console().print(table)


if __name__ == "__main__":
    main()
