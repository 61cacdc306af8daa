r"""The automatic k beside every fixed one, task by task, in turn in one process.

    python benchmarks/automatic_k.py --prompts prompts.jsonl --model TARGET \
        --drafter ngram+model:DRAFT --quantization int4 --rounds 2 --json result.json

All ways answer each prompt greedily, one request at a time, and the order is turned round from
round to round. Times are those of decoding, from the first token on. The best fixed k of a task is
chosen by the *other* rounds and judged by the one at hand: chosen and judged by the same times,
the best of many noisy ones would look faster than any of them is.

``auto`` chooses k for the drafter that is named, as the fixed ones do. ``routed`` may choose among
that drafter's parts besides, and now and then explores one.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import count
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.progress import track
from rich.table import Table

from outpace import LLM, SamplingParams
from outpace.engine.ticket import Ticket
from outpace.request import Request
from peers import prompts as workload

PLAIN, AUTO, ROUTED = "0", "auto", "routed"
_NUMBERS = count()
# One round's seconds of decoding, by task and way.
Seconds = dict[str, dict[str, float]]


def ask(
    llm: LLM, task: str, prompt: list[int], way: str, tokens: int
) -> tuple[float, tuple[int, ...]]:
    """Seconds from the first token to the last, and all of them."""
    k = None if way in (AUTO, ROUTED) else int(way)
    params = SamplingParams(max_tokens=tokens)
    request = Request(
        f"{next(_NUMBERS)}",
        tuple(prompt),
        params,
        drafter=None if way == ROUTED else llm.engine.config.drafter.name,
        num_speculative_tokens=k,
        request_type=task,
    )
    ticket = Ticket(request, llm.engine.add(request), llm.guarantee)
    while not ticket.finished:
        llm.engine.step()
    answer = ticket.result()
    return answer.timing.total_seconds - answer.timing.first_token_seconds, answer.token_ids


def run_round(
    llm: LLM, prompts: list[tuple[str, list[int]]], ways: list[str], tokens: int, name: str
) -> Seconds:
    """Seconds by task and way.

    Raises:
        AssertionError: an answer depends on how it was drafted.
    """
    seconds: Seconds = {}
    jobs = [(task, prompt, way) for task, prompt in prompts for way in ways]
    expected: dict[int, tuple[int, ...]] = {}
    for task, prompt, way in track(jobs, name, console=Console(stderr=True)):
        taken, answer = ask(llm, task, prompt, way, tokens)
        if expected.setdefault(id(prompt), answer) != answer:
            raise AssertionError(f"{task}: the tokens with k = {way} are others")
        by_way = seconds.setdefault(task, {})
        by_way[way] = by_way.get(way, 0.0) + taken
    return seconds


def chosen(rounds: list[Seconds], task: str, ways: list[str], judged: int) -> str:
    """The fixed k that was best in all rounds but one."""
    others = [one for place, one in enumerate(rounds) if place != judged] or rounds
    return min(ways, key=lambda way: sum(one[task][way] for one in others))


def whole(rounds: list[Seconds]) -> list[Seconds]:
    """The same with a further task: all together."""
    return [
        one | {"all": {way: sum(t[way] for t in one.values()) for way in next(iter(one.values()))}}
        for one in rounds
    ]


def judge(rounds: list[Seconds], fixed: list[str]) -> list[dict[str, object]]:
    """For each task: ratios of times, medians over rounds; above 1 automatic k is faster."""
    rows: list[dict[str, object]] = []
    for task in rounds[0]:
        bests = [chosen(rounds, task, fixed, place) for place in range(len(rounds))]
        pairs = list(zip(rounds, bests, strict=True))
        rows.append(
            {
                "task": task,
                "best_k": bests,
                "best_fixed_over_plain": median(o[task][PLAIN] / o[task][b] for o, b in pairs),
                "auto_over_plain": median(o[task][PLAIN] / o[task][AUTO] for o in rounds),
                "auto_over_best_fixed": median(o[task][b] / o[task][AUTO] for o, b in pairs),
                "routed_over_plain": median(o[task][PLAIN] / o[task][ROUTED] for o in rounds),
                "routed_over_best_fixed": median(o[task][b] / o[task][ROUTED] for o, b in pairs),
            }
        )
    return rows


def show(rows: list[dict[str, object]], title: str) -> None:
    table = Table(title=title)
    for name in ("task", "best fixed k", "its speed-up"):
        table.add_column(name)
    for way in (AUTO, ROUTED):
        table.add_column(f"{way}'s speed-up")
        table.add_column(f"{way} against it")
    for row in rows:
        ratios = [f"{row[key]:.2f}" for key in list(row)[2:]]
        table.add_row(str(row["task"]), ", ".join(row["best_k"]), *ratios)  # type: ignore[arg-type]
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--prompts", type=Path, required=True, help="JSONL in either layout of peers.py")
    add("--tasks", default="", help="names, separated by commas; all by default")
    add("--per-task", type=int, default=1)
    add("--longest", type=int, default=4000, help="characters of a prompt")
    add("--model", default="demo")
    add("--drafter", default="ngram")
    add("--quantization", default="none")
    add("--ks", default="0,1,2,3,4,6,8", help="fixed k, separated by commas; 0 has to be there")
    add("--tokens", type=int, default=64)
    add("--rounds", type=int, default=2)
    add("--json", type=Path)
    args = parser.parse_args()
    fixed = args.ks.split(",")
    if PLAIN not in fixed:
        parser.error("--ks must have 0, which is plain decoding")
    questions = workload.read(args.prompts)
    names = args.tasks.split(",") if args.tasks else list(questions)
    picked = workload.choose(questions, names, args.per_task, args.longest)
    llm = LLM(args.model, args.drafter, quantization=args.quantization)
    prompts = [
        (task, llm.tokenizer.encode_chat([{"role": "user", "content": text}]))
        for task, text in picked
    ]
    ways = [*fixed, AUTO, ROUTED]
    for way in ways:
        ask(llm, *prompts[0], way, 16)  # what is first pays for what all share
    rounds: list[Seconds] = []
    title = f"{args.model}, {args.drafter}, {args.quantization}, {args.tokens} tokens"
    for number in range(args.rounds):
        order = ways if number % 2 == 0 else ways[::-1]
        rounds.append(run_round(llm, prompts, order, args.tokens, f"round {number + 1}"))
        if args.json:
            kept = {"setting": title, "rounds": rounds, "tasks": judge(whole(rounds), fixed)}
            args.json.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    show(judge(whole(rounds), fixed), title)


if __name__ == "__main__":
    sys.exit(main())
