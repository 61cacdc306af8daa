"""Outpace beside other systems: same models, same prompts, taking turns on one machine.

    python benchmarks/peers.py --prompts prompts.jsonl --json peers.json --plot peers.svg

Makes a virtual environment for each of the others on the first call. docs/peers.md says what is
compared and how.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.progress import Progress

from outpace.errors import OutpaceError
from outpace.text.tokenizer import Tokenizer
from peers import prompts, report, systems
from peers.environments import DEFAULT_ROOT, CannotInstallError, Environment
from peers.measure import Session
from peers.plot import draw
from peers.pool import Pool, Worker
from peers.systems import Models, System

HERE = Path(__file__).parent
MODELS = Path(os.environ.get("OUTPACE_MODELS", "~/.cache/outpace-models")).expanduser()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], epilog=f"A system is {systems.SPELLINGS}."
    )
    add = parser.add_argument
    add(
        "--prompts",
        type=Path,
        required=True,
        help="lines of JSON: category and turns, or task and prompt",
    )
    add("--tasks", default="", help="which tasks, separated by commas; all of the file's")
    add("--per-task", type=int, default=1, help="prompts of each task")
    add("--longest", type=int, default=4000, help="characters of a prompt")
    add("--systems", default=",".join(systems.DEFAULT), help="which, separated by commas")
    add("--baseline", help="what ratios are against; the first system that is in")
    add("--tokens", type=int, default=96, help="new tokens of an answer")
    add("--rounds", type=int, default=3)
    add("--concurrency", type=int, default=0, help="also measure so many requests at once")
    add("--target", type=Path, default=MODELS / "qwen2.5-coder-1.5b")
    add("--draft", type=Path, default=MODELS / "qwen2.5-coder-0.5b")
    add("--target-gguf", type=Path, help="the target's name with .gguf")
    add("--draft-gguf", type=Path, help="the draft's name with .gguf")
    add("--context", type=int, default=2048, help="longest context in tokens")
    add("--threads", type=int, default=psutil.cpu_count(logical=False) or os.cpu_count() or 1)
    add("--reserve", type=float, default=2.0, help="GiB of memory to leave free")
    add("--environments", type=Path, default=DEFAULT_ROOT)
    add("--install-only", action="store_true")
    add("--logs", type=Path, help="keep what the workers print in this folder")
    add("--json", type=Path, help="write everything measured, after every round")
    add("--plot", type=Path, help="write an SVG picture")
    return parser.parse_args()


def chosen_systems(args: argparse.Namespace) -> list[System]:
    models = Models(
        args.target,
        args.draft,
        args.target_gguf or args.target.with_name(args.target.name + ".gguf"),
        args.draft_gguf or args.draft.with_name(args.draft.name + ".gguf"),
    )
    for path in vars(models).values():
        if not path.exists():
            raise ValueError(f"{path}: no such model; name it with --target, --draft and so on")
    built = args.environments / "llama.cpp" / "build" / "bin" / "llama-speculative-simple"
    common = {
        "threads": args.threads,
        "context": args.context,
        "concurrency": max(args.concurrency, 1),
        "program": str(built),
        "converted": str(args.environments / "openvino" / "converted"),
    }
    names = list(dict.fromkeys(filter(None, args.systems.split(","))))
    return [systems.parse(name, models, common) for name in names]


def install(console: Console, root: Path, wanted: list[System]) -> dict[str, str]:
    """Make what is missing; return why, by system, where that failed."""
    failures: dict[str, str] = {}
    for name in dict.fromkeys(system.environment for system in wanted):
        if name == "outpace":
            continue
        try:
            Environment(name, root / name).install(console.print)
        except CannotInstallError as error:
            reason = f"not installed: {error}"
            console.print(f"{name}: {reason}", highlight=False)
            failures |= {s.spec: reason for s in wanted if s.environment == name}
    return failures


def start(system: System, root: Path, logs: Path, threads: int) -> Worker:
    """Start a system's worker, in its own environment."""
    own = system.environment == "outpace"
    python = (
        sys.executable if own else Environment(system.environment, root / system.environment).python
    )
    paths = [str(HERE), str(HERE.parent / "src")] if own else [str(HERE)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if system.environment == "vllm":
        # In one process: no second one that waits for the first by spinning.
        environment |= {
            "VLLM_CPU_KVCACHE_SPACE": "2",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_NO_USAGE_STATS": "1",
        }
    log = logs / f"{system.process.replace(':', '_')}.log"
    return Worker([str(python), "-m", system.worker], environment, log)


def measure(
    console: Console, session: Session, wanted: list[System], args: argparse.Namespace
) -> None:
    """All rounds. Ctrl-C ends them, and what was measured until then is shown."""
    batching = [system for system in wanted if system.batches]
    try:
        with console.status("loading each system once"):
            together = session.prepare(wanted)
        if not together:
            console.print("Not all fit into memory together: each is loaded again for its turn.")
        with Progress(console=console) as progress:
            bar = progress.add_task("rounds", total=args.rounds)
            for number in range(args.rounds):
                session.answer_all(wanted, number, together)
                if args.concurrency:
                    session.answer_crowds(batching, number, args.concurrency)
                save(session, wanted, args)
                progress.advance(bar)
    except KeyboardInterrupt:
        console.print("Interrupted.")
        save(session, wanted, args)
    finally:
        session.pool.close()


def baseline(session: Session, wanted: list[System], args: argparse.Namespace) -> str:
    if args.baseline:
        return str(args.baseline)
    running = [system.spec for system in wanted if system.spec not in session.failures]
    return running[0] if running else wanted[0].spec


def save(session: Session, wanted: list[System], args: argparse.Namespace) -> None:
    against = baseline(session, wanted, args)
    if args.json:
        about: dict[str, Any] = {
            name: str(value) if isinstance(value, Path) else value
            for name, value in vars(args).items()
        }
        whole = report.as_json(session, wanted, against, about)
        args.json.write_text(json.dumps(whole, indent=1))
    if args.plot:
        found = report.all_figures(session, wanted, against)
        tasks = list(dict.fromkeys(prompt.task for prompt in session.prompts))
        processor = report.machine()["processor"]
        caption = f"Greedy, one request at a time, {session.limit} tokens; {processor}"
        args.plot.write_text(draw(found, tasks, caption))


def main() -> None:
    # Ended by a signal, it must still end its workers: suspended ones would stay for ever.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    args = arguments()
    console = Console()
    try:
        wanted = chosen_systems(args)
        if args.baseline and args.baseline not in [system.spec for system in wanted]:
            raise ValueError(f"--baseline {args.baseline}: not among --systems")
        tasks = [name for name in args.tasks.split(",") if name]
        questions = prompts.choose(prompts.read(args.prompts), tasks, args.per_task, args.longest)
        tokenizer = Tokenizer.load(args.target)
        rendered = prompts.render(tokenizer, questions)
        longest = max(len(prompt.ids) for prompt in rendered) + args.tokens
        if longest >= args.context:
            raise ValueError(
                f"--context {args.context}: the longest prompt needs more than {longest}"
            )
    except (ValueError, OSError, OutpaceError) as error:
        sys.exit(f"error: {error}")
    failures = install(console, args.environments, wanted)
    if args.install_only:
        sys.exit(bool(failures))
    with tempfile.TemporaryDirectory() as folder:
        logs = args.logs or Path(folder)
        logs.mkdir(parents=True, exist_ok=True)
        pool = Pool(lambda s: start(s, args.environments, logs, args.threads), args.reserve)
        session = Session(
            pool, rendered, tokenizer.eos_token_ids, args.tokens, console.print, failures=failures
        )
        measure(console, session, wanted, args)
    report.show(console, session, wanted, baseline(session, wanted, args))


if __name__ == "__main__":
    main()
