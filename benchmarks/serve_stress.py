"""Many clients at once, doing all that clients do: each answer must still be the right one.

Starts ``outpace serve`` with a cache that is too small, so that sequences are preempted, and
clients that ask for all kinds of things, stream or not, leave in the middle, set deadlines that
they cannot meet, and choose other drafters. What is looked at:

- every reply, against what the same request gives alone, drafted by nobody, after the storm;
- the engine's books at the end: all blocks free and nothing waiting;
- the record: a row for each request that came into the engine, and none twice;
- the pages and figures, which somebody reads all the time;
- the memory of the server's process, over the whole time;
- the signal to stop: the process ends with status 0.

    python benchmarks/serve_stress.py --minutes 10 --clients 32
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from outpace.record.recorder import load

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from serving import events, folded

PROMPTS = [
    "Repeat word for word: the old bridge of Lindholm is closed until spring.",
    "Write a Python function that adds two numbers, then call it three times.",
    "Name three rivers in Africa.",
    "Grüße aus Köln, 世界! Translate this to English.",
    "List the numbers from 1 to 30, separated by commas.",
]
DRAFTERS = ["auto", "ngram", "none", "prediction", "grammar", "suffix"]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Oslo", "Bergen"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
READ = ("/metrics", "/dashboard/data", "/health/speculation", "/health", "/v1/models")
# What may be otherwise without another answer; everything else of a request is part of its name.
WITHOUT_EFFECT = ("speculative", "stream", "metadata", "prediction")


@dataclass
class Tally:
    """What became of the requests; answers are kept by request, to be compared at the end."""

    counts: collections.Counter[str] = field(default_factory=collections.Counter)
    answers: dict[str, list[Any]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)  # (minutes, MiB)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, name: str) -> None:
        """Count what became of a request."""
        with self.lock:
            self.counts[name] += 1

    def answered(self, asked: dict[str, Any], choices: list[Any]) -> None:
        """Remember an answer; a second one to the same request must be equal."""
        key = json.dumps({k: v for k, v in asked.items() if k not in WITHOUT_EFFECT})
        with self.lock:
            self.counts["answered"] += 1
            if self.answers.setdefault(key, choices) != choices:
                self.wrong.append(key)


def body(chance: random.Random) -> dict[str, Any]:
    """A request; few different ones, so that many meet their equals."""
    prompt = chance.choice(PROMPTS)
    made: dict[str, Any] = {"prompt": prompt, "seed": chance.randrange(3)}
    made["max_tokens"] = chance.choice([1, 7, 24, 48])
    made["temperature"] = chance.choice([0, 0.7, 1.2])
    options: list[dict[str, Any]] = [
        {},
        {"n": 3},
        {"logprobs": 2},
        {"stop": [".", "\n\n"]},
        {"presence_penalty": 0.6, "frequency_penalty": 0.3},
        {"top_k": 30, "min_p": 0.02},
        {"guided_regex": "[a-z ]{3,40}"},
        {"response_format": {"type": "json_object"}, "max_tokens": 32},
        {"min_tokens": 5, "repetition_penalty": 1.1},
    ]
    if chance.random() < 0.3:
        made["messages"] = [{"role": "user", "content": made.pop("prompt")}]
        options[2] = {"logprobs": True, "top_logprobs": 2}
        options += [{"tools": [TOOL], "tool_choice": "required"}, {"tools": [TOOL]}]
    made |= chance.choice(options)
    if chance.random() < 0.2:
        made["prediction"] = {"type": "content", "content": prompt}
    if chance.random() < 0.2:
        made["metadata"] = {"request_type": f"label-{chance.randrange(30)}"}
    made["stream"] = chance.random() < 0.5
    made["speculative"] = {"drafter": chance.choice(DRAFTERS)}
    if chance.random() < 0.3:
        made["speculative"]["num_speculative_tokens"] = chance.choice([1, 5, 12])
    return made


def path_of(asked: dict[str, Any]) -> str:
    return "/v1/chat/completions" if "messages" in asked else "/v1/completions"


def client(base: str, number: int, until: float, tally: Tally) -> None:
    """Ask until time is up."""
    chance = random.Random(number)
    with httpx.Client(base_url=base, timeout=300) as connection:
        while time.monotonic() < until:
            asked = body(chance)
            kind = chance.random()
            try:
                if kind < 0.15:
                    leave(base, asked, chance)
                    tally.count("left")
                elif kind < 0.25:
                    headers = {"X-Outpace-Timeout": str(chance.choice([0.01, 0.1, 0.5]))}
                    ask(connection, asked, tally, headers)
                else:
                    ask(connection, asked, tally, {})
            except Exception as error:
                tally.count(f"failed: {type(error).__name__}: {error}")


def leave(base: str, asked: dict[str, Any], chance: random.Random) -> None:
    """Go away in the middle: before the answer, or after some events."""
    url, patience = base + path_of(asked), chance.uniform(0.01, 0.6)
    try:
        with httpx.stream("POST", url, json=asked, timeout=patience) as response:
            for _, _ in zip(response.iter_lines(), range(chance.randrange(4)), strict=False):
                pass
    except httpx.TimeoutException:
        return


def ask(
    connection: httpx.Client, asked: dict[str, Any], tally: Tally, headers: dict[str, str]
) -> None:
    """Wait for the answer."""
    response = connection.post(path_of(asked), json=asked, headers=headers)
    if response.status_code != 200:
        code = response.json()["error"]["code"]
        tally.count(code)
        if code == "queue_full":
            time.sleep(0.2)
    elif not asked["stream"]:
        tally.answered(asked, [whole(one) for one in response.json()["choices"]])
    elif response.text.endswith("data: [DONE]\n\n"):
        choices = folded(events(response.text))
        tally.answered(asked, [compared(one) for one in choices])
    else:
        last = response.text.strip().split("\n\n")[-1].removeprefix("data: ")
        tally.count(json.loads(last)["error"]["code"])


def whole(choice: dict[str, Any]) -> list[Any]:
    """What is compared of a choice of a whole reply."""
    message = choice.get("message", {})
    calls = [one["function"] for one in message.get("tool_calls") or ()]
    return compared(
        choice
        | {
            "text": choice.get("text", message.get("content")) or "",
            "calls": [[one["name"], one["arguments"]] for one in calls],
        }
    )


def compared(choice: dict[str, Any]) -> list[Any]:
    """What is compared of a choice as `folded` makes it of a stream."""
    names = ("text", "calls", "finish_reason", "stop_reason")
    logprobs = choice["logprobs"] or {}
    # A stream has no pieces of what a whole reply calls None or has none of.
    told = {name: values for name, values in logprobs.items() if values}
    return [*(choice[name] for name in names), told]


def alone(base: str, tally: Tally) -> None:
    """Ask everything again, one by one and plainly."""
    with httpx.Client(base_url=base, timeout=300) as connection:
        for key, choices in tally.answers.items():
            asked = json.loads(key) | {"speculative": {"enabled": False}, "stream": False}
            reply = connection.post(path_of(asked), json=asked).json()
            if [whole(one) for one in reply["choices"]] != choices:
                tally.wrong.append(key)


def reader(base: str, began: float, until: float, tally: Tally) -> None:
    """Somebody who looks at everything all the time, and writes down the memory."""
    with httpx.Client(base_url=base, timeout=300) as connection:
        while time.monotonic() < until:
            for path in READ:
                status = connection.get(path).status_code
                tally.count("pages read" if status == 200 else f"failed: {path}: {status}")
            found = connection.get("/debug/engine").json()
            minutes = (time.monotonic() - began) / 60
            tally.memory.append((minutes, found["resident_bytes"] / 2**20))
            time.sleep(1)


def at_rest(base: str) -> dict[str, Any]:
    """The books when nothing is left to do."""
    for _ in range(600):
        found: dict[str, Any] = httpx.get(f"{base}/debug/engine", timeout=60).json()
        if not (found["running"] or found["waiting"] or found["unfinished"]):
            return found
        time.sleep(0.1)
    raise SystemExit(f"the server does not come to rest: {found}")


def storm(base: str, minutes: float, clients: int, tally: Tally) -> None:
    """Run the clients until time is up, and all of them have ended."""
    began = time.monotonic()
    until = began + 60 * minutes
    work = [(client, (base, i, until, tally)) for i in range(clients)]
    threads = [
        threading.Thread(target=target, args=values, daemon=True)
        for target, values in [*work, (reader, (base, began, until, tally))]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60 * minutes + 600)
    if any(thread.is_alive() for thread in threads):
        raise SystemExit("a client hangs")


class Server:
    """``outpace serve`` in a process of its own."""

    def __init__(self, given: argparse.Namespace, record: Path) -> None:
        command = [sys.executable, "-c", "import sys; from outpace.cli import main; main()"]
        command += ["serve", "--model", given.model, "--drafter", "suffix", "--port", "0"]
        command += ["--verification", "coupled", "--max-model-len", "512", "--inspection"]
        command += ["--kv-cache-tokens", str(given.kv_cache_tokens), "--record", str(record)]
        if given.threads is not None:
            command += ["--threads", str(given.threads)]
        # Arenas of their own for each thread keep what others freed: with few of them memory that
        # grows is memory that is held.
        environment = os.environ | ({"MALLOC_ARENA_MAX": given.arenas} if given.arenas else {})
        self._process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env=environment
        )
        self.base = ""
        self._words: list[str] = []
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if found := re.search(r"answers at (http\S+)/v1", line):
                self.base = found[1]
                break
            self._words.append(line)
        else:
            raise SystemExit("the server does not start:\n" + "".join(self._words))
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            if re.match(r"\d{4}-", line):
                print(line.rstrip()[:200])

    def stop(self) -> int:
        """Ask it to end; returns its status."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(120)


def report(end: dict[str, Any], rows: int, status: int, tally: Tally) -> bool:
    """Print what was found; returns whether all is well."""
    for name, count in tally.counts.most_common():
        print(f"{count:8d}  {name}")
    print(f"{len(tally.answers)} different requests, {len(tally.wrong)} answered differently")
    for key in tally.wrong[:5]:
        print(f"  {key}")
    print(f"blocks free {end['blocks_free']} of {end['blocks']}, integrity {end['integrity']}")
    print(f"preemptions {end['preemptions']}, rows in the record {rows}, exit status {status}")
    shares = [tally.memory[int(i * (len(tally.memory) - 1) / 10)] for i in range(11)]
    print("memory (minutes: MiB) " + ", ".join(f"{m:.1f}: {b:.0f}" for m, b in shares))
    failed = [name for name in tally.counts if name.startswith("failed")]
    clean = end["integrity"] == "ok" and end["blocks_free"] == end["blocks"]
    return clean and not tally.wrong and not failed and status == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="demo")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--kv-cache-tokens", type=int, default=768)
    parser.add_argument("--arenas", default="", help="MALLOC_ARENA_MAX of the server")
    given = parser.parse_args()
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "record.db"
        server = Server(given, record)
        storm(server.base, given.minutes, given.clients, tally)
        end = at_rest(server.base)
        alone(server.base, tally)
        status = server.stop()
        names = [row.request_id for row in load(record)]
        twice = len(names) - len(set(names))
        fewest = tally.counts["answered"] + len(tally.answers)
        if twice or len(names) < fewest:
            tally.count(f"failed: {twice} rows are there twice, {len(names)} of {fewest}")
    well = report(end, len(names), status, tally)
    raise SystemExit(0 if well else 1)


if __name__ == "__main__":
    main()
