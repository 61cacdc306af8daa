"""Many clients at once, doing all that clients do: each answer must still be the right one.

Starts a server in this process, and clients that ask for all kinds of things, stream or not,
leave in the middle, set deadlines they cannot meet, and choose other drafters. What is compared:

- every reply with what the same request gives alone, drafted by nobody, after the storm;
- the engine's books at the end: all blocks free and nothing waiting;
- the memory of the process between the end of the first fifth and the end.

    python benchmarks/serve_stress.py --minutes 10 --clients 32
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvicorn

from outpace.llm import LLM
from outpace.server.app import Service, make_app
from outpace.server.keys import ApiKeys
from outpace.server.settings import ServerSettings

PROMPTS = [
    "Repeat word for word: the old bridge of Lindholm is closed until spring.",
    "Write a Python function that adds two numbers, then call it three times.",
    "Name three rivers in Africa.",
    "Grüße aus Köln, 世界! Translate this to English.",
    "List the numbers from 1 to 30, separated by commas.",
]
DRAFTERS = ["auto", "ngram", "none", "prediction"]
COMPARED = ("text", "finish_reason", "logprobs")


@dataclass
class Tally:
    """What became of the requests; answers are kept by request, to be compared at the end."""

    counts: collections.Counter[str] = field(default_factory=collections.Counter)
    answers: dict[str, list[Any]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, name: str) -> None:
        """Count what became of a request."""
        with self.lock:
            self.counts[name] += 1

    def answered(self, body: dict[str, Any], choices: list[Any]) -> None:
        """Remember an answer; a second one to the same request must be equal."""
        key = json.dumps({k: v for k, v in body.items() if k not in ("speculative", "stream")})
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
        {"prediction": {"type": "content", "content": prompt}},
        {"guided_regex": "[a-z ]{3,40}"},
        {"response_format": {"type": "json_object"}, "max_tokens": 32},
        {"min_tokens": 5, "repetition_penalty": 1.1},
    ]
    made |= chance.choice(options)
    made["stream"] = chance.random() < 0.5
    made["speculative"] = {"drafter": chance.choice(DRAFTERS)}
    if chance.random() < 0.3:
        made["speculative"]["num_speculative_tokens"] = chance.choice([1, 5, 12])
    return made


def client(url: str, number: int, until: float, tally: Tally) -> None:
    """Ask until time is up."""
    chance = random.Random(number)
    while time.monotonic() < until:
        asked = body(chance)
        kind = chance.random()
        try:
            if kind < 0.15:
                leave(url, asked, chance)
                tally.count("left")
            elif kind < 0.25:
                headers = {"X-Outpace-Timeout": str(chance.choice([0.01, 0.1, 0.5]))}
                whole(url, asked, tally, headers)
            else:
                whole(url, asked, tally, {})
        except Exception as error:
            tally.count(f"failed: {type(error).__name__}: {error}")


def leave(url: str, asked: dict[str, Any], chance: random.Random) -> None:
    """Go away in the middle."""
    try:
        with httpx.stream("POST", url, json=asked, timeout=chance.uniform(0.01, 0.6)) as response:
            for _, _ in zip(response.iter_lines(), range(chance.randrange(4)), strict=False):
                pass
    except httpx.TimeoutException:
        return


def whole(url: str, asked: dict[str, Any], tally: Tally, headers: dict[str, str]) -> None:
    """Wait for the answer."""
    response = httpx.post(url, json=asked, headers=headers, timeout=300)
    if response.status_code != 200:
        code = response.json()["error"]["code"]
        tally.count(code)
        if code == "queue_full":
            time.sleep(0.2)
        return
    if not asked["stream"]:
        choices = response.json()["choices"]
        tally.answered(asked, [[choice[name] for name in COMPARED] for choice in choices])
        return
    events = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    if events[-1] != "[DONE]":
        tally.count(json.loads(events[-1])["error"]["code"])
        return
    tally.answered(asked, folded([json.loads(event) for event in events[:-1]]))


def folded(events: list[dict[str, Any]]) -> list[Any]:
    """The choices of a stream, as a whole reply has them."""
    choices: dict[int, list[Any]] = {}
    for event in events:
        for piece in event["choices"]:
            choice = choices.setdefault(piece["index"], ["", None, None])
            choice[0] += piece["text"]
            choice[1] = piece["finish_reason"]
            for name, values in (piece["logprobs"] or {}).items():
                choice[2] = choice[2] or {}
                choice[2].setdefault(name, []).extend(values)
    return [choices[index] for index in sorted(choices)]


def alone(url: str, tally: Tally) -> None:
    """Ask everything again, one by one and plainly."""
    for key, choices in tally.answers.items():
        asked = json.loads(key) | {"speculative": {"enabled": False}, "stream": False}
        reply = httpx.post(url, json=asked, timeout=300).json()
        if [[choice[name] for name in COMPARED] for choice in reply["choices"]] != choices:
            tally.wrong.append(key)


def books(base: str) -> dict[str, Any]:
    value: dict[str, Any] = httpx.get(f"{base}/debug/engine", timeout=60).json()
    return value


def at_rest(base: str) -> dict[str, Any]:
    """The books when nothing is left to do."""
    for _ in range(600):
        found = books(base)
        if not (found["running"] or found["waiting"] or found["unfinished"]):
            return found
        time.sleep(0.1)
    raise SystemExit(f"the server does not come to rest: {found}")


def storm(base: str, arguments: argparse.Namespace, tally: Tally) -> dict[str, Any]:
    """Run the clients; returns the books after a fifth of the time."""
    url = f"{base}/v1/completions"
    began = time.monotonic()
    until = began + 60 * arguments.minutes
    threads = [
        threading.Thread(target=client, args=(url, i, until, tally), daemon=True)
        for i in range(arguments.clients)
    ]
    for thread in threads:
        thread.start()
    time.sleep(60 * arguments.minutes / 5)
    early = books(base)
    for thread in threads:
        thread.join(60 * arguments.minutes + 600)
    if any(thread.is_alive() for thread in threads):
        raise SystemExit("a client hangs")
    return early


def report(early: dict[str, Any], end: dict[str, Any], tally: Tally) -> bool:
    """Print what was found; returns whether all is well."""
    for name, count in tally.counts.most_common():
        print(f"{count:8d}  {name}")
    print(f"{len(tally.answers)} different requests, {len(tally.wrong)} answered differently")
    for key in tally.wrong[:5]:
        print(f"  {key}")
    grown = (end["resident_bytes"] - early["resident_bytes"]) / 2**20
    print(f"blocks free {end['blocks_free']} of {end['blocks']}, integrity {end['integrity']}")
    print(
        f"preemptions {end['preemptions']}, memory grown by {grown:.1f} MiB after the first fifth"
    )
    failed = [name for name in tally.counts if name.startswith("failed")]
    clean = end["integrity"] == "ok" and end["blocks_free"] == end["blocks"]
    return clean and not tally.wrong and not failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="demo")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--kv-cache-tokens", type=int, default=2048)
    arguments = parser.parse_args()
    llm = LLM(
        arguments.model,
        "auto",
        max_model_len=512,
        kv_cache_tokens=arguments.kv_cache_tokens,  # small: sequences are preempted
        threads=arguments.threads,
        verification="coupled",
    )
    service = Service(llm, ServerSettings(model_name="stress", inspection=True), ApiKeys())
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(make_app(service), log_config=None, access_log=False))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    tally = Tally()
    early = storm(base, arguments, tally)
    end = at_rest(base)
    alone(f"{base}/v1/completions", tally)
    well = report(early, end, tally)
    server.should_exit = True
    thread.join()
    raise SystemExit(0 if well else 1)


if __name__ == "__main__":
    main()
