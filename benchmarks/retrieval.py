"""What drafting from earlier texts brings: a second pass, nothing to match, and a datastore.

    python benchmarks/retrieval.py --model demo

Three parts (choose with ``--part``):

- ``again``: a file is edited, or a report written, and then the same with another wish or other
  figures. Measured is the second time, with ``suffix``, with the first answer as ``prediction``,
  with ``ngram`` and plainly; and the first request once more, word for word.
- ``nothing``: open questions that share nothing, with ``suffix`` and plainly: what it costs.
- ``code``: tasks for a programmer, with ``ngram`` and with a ``datastore`` over the standard
  library of the Python that runs this, at the same k.

Steps and acceptance lengths are exact: they do not depend on the machine. Times are of decoding,
from the first token on (whoever asks first also reads the prompt into the prefix cache), of ways
that take turns; run it with nothing else on the machine. Intervals are bootstraps over requests.
"""

from __future__ import annotations

import argparse
import json
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from outpace import LLM, SamplingParams
from outpace.bench.intervals import time_ratio
from outpace.bench.workload import load
from outpace.cli import run as command
from outpace.request import Request

TEXTS = Path(__file__).parent / "retrieval"
_LEFT_OUT = {"site-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__"}


@dataclass(slots=True)
class Runs:
    """What one way did: emitted tokens, steps and seconds, by request; seconds of each repeat."""

    emitted: dict[str, int] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    tokens: dict[str, list[int]] = field(default_factory=dict)
    different: int = 0

    def length(self, names: Sequence[str]) -> float:
        """Acceptance length over these requests."""
        return sum(self.emitted[n] for n in names) / sum(self.steps[n] for n in names)


class Bench:
    """Asks a model and keeps what it did, each way under its name."""

    def __init__(self, llm: LLM, max_tokens: int) -> None:
        self.llm = llm
        self.ways: dict[str, Runs] = {}
        self._params = SamplingParams(max_tokens=max_tokens)
        self._count = 0

    def prompt(self, text: str) -> tuple[int, ...]:
        """Token ids of a question."""
        return tuple(self.llm.tokenizer.encode_chat([{"role": "user", "content": text}]))

    def ask(
        self,
        name: str,
        text: str,
        drafter: str,
        way: str | None = None,
        tenant: str = "",
        prediction: Sequence[int] = (),
    ) -> list[int]:
        """Answer one request; with ``way`` it is booked there."""
        self._count += 1
        request = Request(
            f"r{self._count}",
            self.prompt(text),
            self._params,
            tuple(prediction),
            drafter,
            tenant=tenant,
        )
        [sequence] = self.llm.engine.add(request)
        while self.llm.engine.has_work:
            self.llm.engine.step()
        assert sequence.first_token_at is not None
        assert sequence.finished_at is not None
        seconds = sequence.finished_at - sequence.first_token_at
        if way is not None:
            runs = self.ways.setdefault(way, Runs())
            runs.different += runs.tokens.setdefault(name, sequence.output.token_ids) != list(
                sequence.output.token_ids
            )
            runs.emitted[name] = sequence.counts.emitted
            runs.steps[name] = sequence.counts.target_steps
            runs.seconds.setdefault(name, []).append(seconds)
        return list(sequence.output.token_ids)


def difference(one: Runs, other: Runs) -> tuple[float, float]:
    """95 % interval of the gain in acceptance length from one to the other; the same requests."""
    names = list(one.steps)
    random = np.random.default_rng(20240501)
    drawn = random.integers(0, len(names), (4000, len(names)))
    lengths = []
    for runs in (one, other):
        emitted = np.array([runs.emitted[n] for n in names])[drawn].sum(axis=1)
        lengths.append(emitted / np.array([runs.steps[n] for n in names])[drawn].sum(axis=1))
    low, high = np.quantile(lengths[1] - lengths[0], [0.025, 0.975])
    return float(low), float(high)


def show(title: str, bench: Bench, plain: str, against: str, as_json: bool) -> None:
    """Print a table of all ways: against ``plain`` in time, ``against`` in acceptance length."""
    columns = ("way", "requests", "tokens", "steps", "acceptance length", "gain (95 %)")
    table = Table(*columns, "times faster (95 %)", "tokens identical", title=title)
    rows = []
    expected = bench.ways[plain].tokens
    for way, runs in bench.ways.items():
        names = list(runs.steps)
        ratio = time_ratio(bench.ways[plain].seconds, runs.seconds)
        assert ratio is not None
        low, high = difference(bench.ways[against], runs)
        identical = runs.different == 0 and runs.tokens == expected
        emitted, steps = sum(runs.emitted.values()), sum(runs.steps.values())
        rows.append(
            {
                "way": way,
                "requests": len(names),
                "tokens": emitted,
                "steps": steps,
                "acceptance_length": emitted / steps,
                "gain": [low, high],
                "times_faster": ratio.as_dict(),
                "identical": identical,
            }
        )
        gain = "" if way == against else f"{low:+.2f} to {high:+.2f} over {against}"
        faster = f"{ratio.value:.2f}"
        if ratio.low is not None:
            faster += f" ({ratio.low:.2f}-{ratio.high:.2f})"
        length = f"{emitted / steps:.2f}"
        table.add_row(
            way,
            str(len(names)),
            str(emitted),
            str(steps),
            length,
            gain,
            faster,
            "yes" if identical else "NO",
        )
    if as_json:
        print(json.dumps({"part": title, "ways": rows}))
    else:
        Console(width=130).print(table)


def again(args: argparse.Namespace) -> None:
    bench = Bench(LLM(args.model, "suffix", num_speculative_tokens=args.again_k), 160)
    same = Bench(bench.llm, 160)
    pairs = [json.loads(line) for line in (TEXTS / "again.jsonl").read_text("utf-8").splitlines()]
    ways: list[tuple[str, str]] = [("plain", "none"), ("ngram", "ngram")]
    ways += [("suffix", "suffix"), ("prediction", "prediction")]
    for repeat in range(args.repeats):
        for i, pair in enumerate(track(pairs, f"again, repeat {repeat + 1}", console=note())):
            first, second, name = pair["first"], pair["second"], f"{i}"
            tenant = f"{repeat} {i}"  # nothing that an earlier repeat has left
            answer = bench.ask(name, first, "suffix", None, tenant)
            for way, drafter in ways if repeat % 2 == 0 else reversed(ways):
                bench.ask(name, second, drafter, way, tenant, answer)
                if drafter in ("none", "suffix"):
                    same.ask(name, first, drafter, way, tenant)
    show("a similar request, after the first", bench, "plain", "ngram", args.json)
    show("the same request again", same, "plain", "plain", args.json)


def nothing(args: argparse.Namespace) -> None:
    bench = Bench(LLM(args.model, "suffix"), 96)
    entries = [entry for entry in load("shipped").entries if entry.task in ("chat", "qa")]
    ways = [("plain", "none"), ("suffix", "suffix")]
    for entry in entries[:4]:  # the first answers of a process are slower
        bench.ask(entry.id, entry.text, "none")
    for repeat in range(args.repeats):
        for entry in track(entries, f"nothing to match, repeat {repeat + 1}", console=note()):
            for way, drafter in ways if repeat % 2 == 0 else reversed(ways):
                bench.ask(entry.id, entry.text, drafter, way, f"{repeat} {entry.id}")
    show("open questions", bench, "plain", "plain", args.json)


def code(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        index = str(Path(folder) / "python.index")
        if command(["index", "build", *library(), "-o", index, "--model", args.model]):
            raise SystemExit(1)
        llm = LLM(args.model, f"datastore:{index}", num_speculative_tokens=args.code_k)
        bench = Bench(llm, 160)
        tasks = [(e.id, e.text) for e in load("shipped").entries if e.task == "code"]
        lines = (TEXTS / "code.txt").read_text("utf-8").splitlines()
        tasks += [(f"own-{i}", line) for i, line in enumerate(lines)]
        ways = [("plain", "none"), ("ngram", "ngram"), ("datastore", "datastore")]
        for repeat in range(args.repeats):
            for name, text in track(tasks, f"code, repeat {repeat + 1}", console=note()):
                for way, drafter in ways if repeat % 2 == 0 else reversed(ways):
                    bench.ask(name, text, drafter, way)
        show(f"code, k = {args.code_k}", bench, "plain", "ngram", args.json)


def library() -> list[str]:
    """The files of Python's standard library, without tests and installed packages."""
    root = Path(sysconfig.get_path("stdlib"))
    files = (f for f in root.rglob("*.py") if not _LEFT_OUT & set(f.relative_to(root).parts))
    return sorted(map(str, files))


def note() -> Console:
    return Console(stderr=True)


def main() -> None:
    parts: dict[str, Callable[[argparse.Namespace], None]]
    parts = {"again": again, "nothing": nothing, "code": code}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="demo")
    parser.add_argument("--part", choices=parts, action="append")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--again-k", default="auto", type=lambda t: t if t == "auto" else int(t))
    parser.add_argument("--code-k", default=8, type=lambda t: t if t == "auto" else int(t))
    parser.add_argument("--json", action="store_true", help="one JSON object a table")
    args = parser.parse_args()
    for name in args.part or parts:
        parts[name](args)


if __name__ == "__main__":
    main()
