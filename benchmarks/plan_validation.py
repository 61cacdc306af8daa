"""How far `outpace plan` is off: on this machine, and beside what others have published.

    python benchmarks/plan_validation.py published
    python benchmarks/plan_validation.py here --target demo --draft ngram -k 4 --save here.json
    python benchmarks/plan_validation.py here --target LARGE --draft SMALL -k 2 -k 4
    python benchmarks/plan_validation.py here --from here.json

`here` runs the engine at several numbers of sequences at once, plainly and with k draft tokens in
turn, and holds the measured ratio against the plan's: step times from bare forward passes, host
work from plain decoding alone, acceptance from the counts of the run (a plan takes alpha as given).
Only steps count in which all sequences are running and none is computing its prompt. Run it with
nothing else on the machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from time import perf_counter

from rich.console import Console
from rich.table import Table

from outpace import LLM, SamplingParams
from outpace.demo.kinds import kinds
from outpace.engine.sequence import Sequence
from outpace.plan.measured import HostWork, MeasuredSteps, load_draft, measure_host
from outpace.plan.mix import Mix, RequestType
from outpace.plan.setting import WITHOUT_MODEL
from outpace.plan.speedup import Pair, no_draft_model
from outpace.plan.steps import Shape
from outpace.request import Request
from plan_published import print_published

_FEWEST = 5
CONCURRENCY = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Run:
    """Steady decoding: tokens and seconds of the steps that count, and what was accepted."""

    tokens: int
    seconds: float
    steps: int
    drafted_steps: int
    accepted: int
    rejections: int
    drafted: int
    context: float


@dataclass(frozen=True)
class Point:
    """One concurrency and k: what was measured and what the plan says."""

    concurrency: int
    k: int
    alpha: float
    coverage: float
    acceptance_length: float
    measured: float
    predicted: float
    predicted_from_length: float
    plain_ms: float
    predicted_plain_ms: float
    step_ms: float
    predicted_step_ms: float

    @property
    def error(self) -> float:
        """By how much the plan is too hopeful."""
        return self.predicted / self.measured - 1


def run(llm: LLM, prompts: list[list[int]], drafter: str, k: int, tokens: int) -> Run:
    """Decode the prompts together and count the steps in which all of them are decoding."""
    params = SamplingParams(max_tokens=tokens, ignore_eos=True)
    engine = llm.engine
    sequences: list[Sequence] = []
    for i, prompt in enumerate(prompts):
        name = f"{drafter}-{k}-{i}-{perf_counter()}"
        request = Request(name, tuple(prompt), params, (), drafter, k)
        sequences += engine.add(request)
    while any(sequence.num_missing > 1 or sequence.counts.emitted < 2 for sequence in sequences):
        engine.step()
    before = [_counts(sequence) for sequence in sequences]
    contexts = [sum(len(sequence.tokens) for sequence in sequences)]
    emitted = steps = 0
    began = perf_counter()
    # The last steps of a sequence draft less than k, for want of room: they do not count.
    while all(s.output.finish_reason is None and s.room >= max(k, 1) for s in sequences):
        emitted += sum(progress.num_new for progress in engine.step())
        steps += 1
    seconds = perf_counter() - began
    contexts.append(sum(len(sequence.tokens) for sequence in sequences))
    after = [_counts(sequence) for sequence in sequences]
    for sequence in sequences:
        engine.abort(sequence.request.request_id)
    change = [
        sum(a[i] - b[i] for a, b in zip(after, before, strict=True)) for i in range(len(after[0]))
    ]
    return Run(emitted, seconds, steps, *change, sum(contexts) / 2 / len(sequences))


def _together(runs: list[Run]) -> Run:
    """Runs of several groups as one, with their mean context."""
    sums = [sum(values) for values in zip(*map(astuple, runs), strict=True)]
    return Run(*sums[:-1], sums[-1] / len(runs))


def _counts(sequence: Sequence) -> tuple[int, int, int, int]:
    counts = sequence.counts
    return counts.drafted_at[1], counts.accepted, counts.rejections, counts.drafted


def measure(args: argparse.Namespace) -> dict[str, object]:
    """Measure runs and bare step times in turn, so that drift meets both, and predict."""
    lookup = args.draft in WITHOUT_MODEL
    most = max(args.concurrency)
    length = args.longest + args.tokens + 64
    llm = LLM(
        args.target,
        args.draft if lookup else f"model:{args.draft}",
        num_speculative_tokens=max(args.k),
        dtype=args.dtype,
        max_num_seqs=most,
        kv_cache_tokens=most * length + 2048,
        max_model_len=length,
        prefix_caching=False,
        threads=args.threads,
    )
    small = None
    if not lookup:
        small = load_draft(args.draft, args.draft_dtype, llm, most * length + 2048)
    prompts = _prompts(llm, max(most, _FEWEST), args.longest)
    host = measure_host(llm)
    name = args.draft if lookup else "model"
    points, runs = [], {}
    for count in args.concurrency:
        # Few at once say little about alpha, so that several groups take their turn.
        groups = [prompts[i : i + count] for i in range(0, max(_FEWEST, count), count)]
        groups = [group for group in groups if len(group) == count]
        lengths = [len(prompt) for group in groups for prompt in group]
        context = round(statistics.mean(lengths) + args.tokens / 2)
        found: dict[int, list[Run]] = {k: [] for k in (0, *args.k)}
        steps: dict[int, list[float]] = {k: [] for k in (0, *args.k)}
        for repeat in range(args.repeats):
            ways = [0, *args.k]
            for k in ways if repeat % 2 == 0 else reversed(ways):
                way = name if k else "none"
                parts = [run(llm, group, way, k, args.tokens) for group in groups]
                found[k].append(_together(parts))
            target = MeasuredSteps(llm.engine.runner, host)
            draft = no_draft_model
            if small is not None:
                draft = MeasuredSteps(small.engine.runner, HostWork(0.0, host.row))
            for k in ways:
                full = target(Shape(count, 1 + k, context))
                steps[k].append(full + k * draft(Shape(count, 1, context)))
        plain = statistics.median(steps[0])
        for k in args.k:
            step = statistics.median(steps[k])
            points.append(asdict(_point(count, k, found[0], found[k], plain, step)))
        runs[count] = {k: [asdict(one) for one in many] for k, many in found.items()}
    return {
        "target": args.target,
        "draft": args.draft,
        "setting": llm.setting,
        "host_ms": [host.step * 1e3, host.row * 1e3],
        "points": points,
        "runs": runs,
    }


def _point(
    count: int, k: int, plain: list[Run], drafted: list[Run], plain_step: float, full_step: float
) -> Point:
    """Hold one measured ratio against the plan's; step times are in seconds, without silence."""
    row_steps = sum(r.steps for r in drafted) * count
    trials = sum(r.accepted + r.rejections for r in drafted)
    alpha = sum(r.accepted for r in drafted) / trials if trials else 0.0
    coverage = min(sum(r.drafted_steps for r in drafted) / row_steps, 1.0)
    length = sum(r.tokens for r in drafted) / row_steps
    mix = Mix.of([RequestType("measured", 1.0, (alpha,), coverage)]).fitted(100)
    times = {1: plain_step, 1 + k: full_step}
    pair = Pair(lambda shape: times[shape.rows], no_draft_model, mix, 100)
    step = pair.step_seconds(count, k)
    rates = [statistics.median(r.tokens / r.seconds for r in runs) for runs in (drafted, plain)]
    return Point(
        concurrency=count,
        k=k,
        alpha=alpha,
        coverage=coverage,
        acceptance_length=length,
        measured=rates[0] / rates[1],
        predicted=pair.speedup(count, k),
        predicted_from_length=length * plain_step / step,
        plain_ms=1e3 * statistics.median(r.seconds / r.steps for r in plain),
        predicted_plain_ms=1e3 * plain_step,
        step_ms=1e3 * statistics.median(r.seconds / r.steps for r in drafted),
        predicted_step_ms=1e3 * step,
    )


def _prompts(llm: LLM, count: int, longest: int) -> list[list[int]]:
    """Prompts of the demonstration, each a little different so that sequences are not equal."""
    texts = [kind.prompt for kind in kinds()]
    found = []
    for i in range(count):
        text = texts[i % len(texts)]
        text += f" (Request {i // len(texts) + 1}.)" if i >= len(texts) else ""
        ids = llm.tokenizer.encode_chat([{"role": "user", "content": text}])
        found.append(ids[-longest:])
    return found


def crossing(points: list[Point], value: str) -> int | None:
    """The first concurrency from which on the ratio is not above 1."""
    paying = [p.concurrency for p in points if getattr(p, value) > 1]
    later = [p.concurrency for p in points if not paying or p.concurrency > max(paying)]
    return min(later, default=None)


def print_here(result: dict) -> None:
    console = Console(width=130)
    points = [Point(**one) for one in result["points"]]
    host = " + ".join(f"{x:.2f}" for x in result["host_ms"])
    console.print(
        f"{result['target']} with {result['draft']} ({result['setting']}), host {host} ms/row"
    )
    table = Table(
        *("k", "at once", "alpha", "coverage", "length", "plain ms", "plan", "step ms", "plan"),
        *("measured", "predicted", "error", "given length"),
    )
    for p in points:
        table.add_row(
            str(p.k),
            str(p.concurrency),
            f"{p.alpha:.3f}",
            f"{p.coverage:.2f}",
            f"{p.acceptance_length:.2f}",
            *(f"{x:.1f}" for x in (p.plain_ms, p.predicted_plain_ms)),
            *(f"{x:.1f}" for x in (p.step_ms, p.predicted_step_ms)),
            *(f"{x:.2f}" for x in (p.measured, p.predicted)),
            f"{p.error:+.1%}",
            f"{p.predicted_from_length:.2f}",
        )
    console.print(table)
    for k in sorted({p.k for p in points}):
        own = [p for p in points if p.k == k]
        found, said = crossing(own, "measured"), crossing(own, "predicted")
        names = [p.concurrency for p in own]
        steps = abs(
            (names.index(found) if found else len(names))
            - (names.index(said) if said else len(names))
        )
        console.print(
            f"k = {k}: stops paying at {found or 'none of these'}, predicted "
            f"{said or 'none of these'}: {steps} steps of {names} apart; "
            f"batch 1 off by {own[0].error:+.1%}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("published", "here"))
    parser.add_argument("--target", default="demo")
    parser.add_argument("--draft", default="ngram")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--draft-dtype")
    parser.add_argument("-k", type=int, action="append", help="repeatable; 4")
    parser.add_argument("--concurrency", type=int, nargs="+", default=list(CONCURRENCY))
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--longest", type=int, default=384, help="tokens of a prompt")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--from", dest="source", type=Path, help="show what was saved")
    parser.add_argument("--save", type=Path)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    args.k = args.k or [4]
    if args.what == "published":
        print_published(args.json)
        return
    result = json.loads(args.source.read_text()) if args.source else measure(args)
    if args.save:
        args.save.write_text(json.dumps(result, indent=1))
    if args.json:
        print(json.dumps(result, indent=1))
    else:
        print_here(result)


if __name__ == "__main__":
    main()
