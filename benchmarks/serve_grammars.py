"""Structured answers through a server: whether they fit, and what a step with them takes.

Asks a server in this process for answers in the form of many random schemas, several at once,
with drafters of all kinds, and then for the same without drafts. Prints how many replies are valid
(those that a limit cut short are counted apart), how many differ from the plain ones, and the
median and 99th percentile of a step's time, beside those of the same requests without a schema.

    python benchmarks/serve_grammars.py [--model demo] [--schemas 200] [--clients 8] [--compact]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np

from outpace import LLM
from outpace.control.controller import StepRecord

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from grammars import random_schema
from serving import Running, serving

DRAFTERS = ("auto", "ngram", "grammar", "prediction")
QUESTIONS = (
    "Describe a bridge that is closed until spring.",
    "Give me some data about a river in Africa.",
    "Make up a record for a library book.",
    "Fill this in as you like.",
)
MAX_TOKENS = 600
LONGEST_STRING = 40


class Steps:
    """Seconds of each step, by what was going on."""

    def __init__(self, server: Running) -> None:
        engine = server.service.llm.engine
        self._before = engine.on_step
        self._now: list[float] = []
        engine.on_step = self._see

    def _see(self, step: StepRecord) -> None:
        self._now.append(step.draft_seconds + step.verify_seconds + step.rest_seconds)
        self._before(step)

    def take(self) -> dict[str, float]:
        """Milliseconds of the steps since the last call."""
        times, self._now = np.array(self._now) * 1e3, []
        middle, late = np.percentile(times, [50, 99])
        return {"steps": len(times), "p50": middle, "p99": late, "max": times.max()}


def body(number: int, compact: bool) -> dict[str, Any]:
    """A request; its form, its seed and its drafter follow from its number."""
    schema = ending(random_schema(number))
    if compact:
        schema["x-guidance"] = {"whitespace_flexible": False}
    return {
        "messages": [{"role": "user", "content": QUESTIONS[number % len(QUESTIONS)]}],
        "max_tokens": MAX_TOKENS,
        "temperature": (0, 0.5, 0.8)[number % 3],
        "seed": number,
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}},
        "speculative": {
            "drafter": DRAFTERS[number % len(DRAFTERS)],
            "num_speculative_tokens": (1, 3, 5, 8)[number // 4 % 4],
        },
        # Expected, and mostly wrong, so that the drafter for it has something to propose.
        "prediction": {"type": "content", "content": json.dumps({"name": "red", "id": 7})},
    }


def ending(schema: Any) -> Any:
    """The same, but that every value ends: a small model may repeat letters or digits for ever."""
    if isinstance(schema, list):
        return [ending(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {name: ending(value) for name, value in schema.items()}
    match schema.get("type"):
        case "number" | "integer":
            changed = {"minimum": -999_999, "maximum": 999_999} | changed | {"type": "integer"}
        case "string":
            changed.setdefault("maxLength", LONGEST_STRING)
    return changed


def ask_all(server: Running, bodies: list[dict[str, Any]], clients: int) -> list[dict[str, Any]]:
    """The replies to requests, several at once, in their order."""

    def ask(one: dict[str, Any]) -> dict[str, Any]:
        reply = server.post("/v1/chat/completions", one)
        if reply.status_code != 200:
            raise SystemExit(f"{reply.status_code}: {reply.text}\n{json.dumps(one)}")
        value: dict[str, Any] = reply.json()
        return value

    with ThreadPoolExecutor(clients) as pool:
        return list(pool.map(ask, bodies))


def verdict(reply: dict[str, Any], schema: Any) -> str:
    """Whether a reply is what was asked for."""
    choice = reply["choices"][0]
    if choice["finish_reason"] != "stop":
        return f"ended by {choice['finish_reason']}"
    try:
        jsonschema.validate(json.loads(choice["message"]["content"]), schema)
    except (ValueError, jsonschema.ValidationError) as error:
        return f"not valid: {str(error).splitlines()[0]}"
    return "valid"


def told(reply: dict[str, Any]) -> tuple[str, str]:
    choice = reply["choices"][0]
    return choice["message"]["content"], choice["finish_reason"]


def measure(server: Running, schemas: int, clients: int, compact: bool) -> dict[str, Any]:
    """Ask with drafters, without drafts, and without schemas."""
    bodies = [body(number, compact) for number in range(schemas)]
    ask_all(server, bodies[:clients], clients)  # warm: the library's tables of the vocabulary
    steps = Steps(server)
    drafted = ask_all(server, bodies, clients)
    found = {"with drafters": steps.take()}
    without = {"speculative": {"enabled": False}}
    plain = ask_all(server, [one | without for one in bodies], clients)
    found["plain"] = steps.take()
    free = [{k: v for k, v in one.items() if k != "response_format"} for one in bodies]
    ask_all(server, [one | {"max_tokens": 24} for one in free], clients)
    found["with drafters, without schemas"] = steps.take()
    records = [reply["metrics"]["speculative_decoding"] for reply in drafted]
    server.wait_until_idle()
    return {
        "schemas": schemas,
        "replies": dict(
            Counter(
                verdict(reply, one["response_format"]["json_schema"]["schema"])
                for reply, one in zip(drafted, bodies, strict=True)
            ).most_common()
        ),
        "unlike plain": sum(told(a) != told(b) for a, b in zip(drafted, plain, strict=True)),
        "drafted": sum(one["num_draft_tokens"] for one in records),
        "accepted": sum(one["num_accepted_draft_tokens"] for one in records),
        "target steps": sum(one["target_steps"] for one in records),
        "tokens": sum(reply["usage"]["completion_tokens"] for reply in drafted),
        "milliseconds a step": found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="demo")
    parser.add_argument("--schemas", type=int, default=200)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--compact", action="store_true", help="no white space between parts")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--json", metavar="FILE", help="write the figures here")
    given = parser.parse_args()
    llm = LLM(
        given.model,
        "auto",
        num_speculative_tokens=5,
        threads=given.threads,
        verification="coupled",
        max_model_len=1024,
    )
    with serving(llm, model_name="grammars") as server:
        figures = measure(server, given.schemas, given.clients, given.compact)
    for name, value in figures.items():
        if name != "milliseconds a step":
            print(f"{name}: {value}")
    for name, times in figures["milliseconds a step"].items():
        shown = ", ".join(f"{key} {value:.1f}" for key, value in times.items() if key != "steps")
        print(f"milliseconds a step, {name}: {shown} ({times['steps']} steps)")
    if given.json:
        Path(given.json).write_text(json.dumps(figures, indent=1), "utf-8")
    wrong = [name for name in figures["replies"] if name.startswith("not valid")]
    raise SystemExit(1 if wrong or figures["unlike plain"] else 0)


if __name__ == "__main__":
    main()
