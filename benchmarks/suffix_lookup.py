"""Time of a lookup in the store of earlier outputs, by how many tokens it holds.

    python benchmarks/suffix_lookup.py --tokens 10000000

The store is filled with outputs of words that are as unevenly frequent as those of a language,
among them pieces that return, as code and reports do. Then texts are looked up that end in the
middle of stored outputs (a match), and texts that nothing is like. No model is needed.
"""

from __future__ import annotations

import argparse
import statistics
from time import perf_counter

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from outpace.spec.retrieval.growth import grow
from outpace.spec.retrieval.store import OutputStore

VOCAB, OUTPUT = 50_000, 400


class Writer:
    """Makes outputs: pieces that return, and frequent words between them."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._pieces = [self._words(int(n)) for n in self._random.integers(5, 60, 5000)]

    def _words(self, count: int) -> np.ndarray:
        return np.minimum(self._random.zipf(1.3, count), VOCAB) - 1

    def output(self) -> np.ndarray:
        """A new text of `OUTPUT` tokens."""
        parts, length = [], 0
        while length < OUTPUT:
            if self._random.random() < 0.5:
                which = min(int(self._random.zipf(1.2)), len(self._pieces)) - 1
                parts.append(self._pieces[which])
            else:
                parts.append(self._words(int(self._random.integers(1, 30))))
            length += len(parts[-1])
        return np.concatenate(parts)[:OUTPUT]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=10_000_000)
    parser.add_argument("--lookups", type=int, default=2000)
    parser.add_argument("-k", type=int, default=15, help="nodes of a draft")
    args = parser.parse_args()
    writer = Writer(1)
    store = OutputStore(args.tokens)
    outputs: list[np.ndarray] = []
    adding = []
    for i in track(range(args.tokens // (OUTPUT + 1)), "filling the store"):
        output = writer.output()
        began = perf_counter()
        store.add(f"tenant {i % 3}", output)
        adding.append(perf_counter() - began)
        if i % 20 == 0:
            outputs.append(output)
    random = np.random.default_rng(2)
    fresh = Writer(3)
    ends = random.integers(40, OUTPUT, args.lookups)
    chosen = random.integers(0, len(outputs), args.lookups)
    known = [outputs[j][:end] for j, end in zip(chosen, ends, strict=True)]
    texts = {"in a stored output": known, "unlike any": [fresh.output() for _ in known]}
    table = Table("text", "found", "look up µs", "99 %", "with the tree µs", "99 %", "nodes")
    for name, some in texts.items():
        lookup, whole, nodes = [], [], []
        for text in some:
            began = perf_counter()
            candidates = store.look_up("tenant 0", text, args.k)
            between = perf_counter()
            nodes.append(len(grow(candidates, args.k, 0.1, "suffix")))
            whole.append(1e6 * (perf_counter() - began))
            lookup.append(1e6 * (between - began))
        row = [statistics.median(lookup), np.quantile(lookup, 0.99)]
        row += [statistics.median(whole), np.quantile(whole, 0.99)]
        found = sum(n > 0 for n in nodes) / len(nodes)
        table.add_row(name, f"{found:.0%}", *(f"{v:.0f}" for v in row), f"{np.mean(nodes):.1f}")
    Console().print(table)
    print(f"remembering an output of {OUTPUT} tokens: {1e6 * statistics.median(adding):.0f} µs")


if __name__ == "__main__":
    main()
