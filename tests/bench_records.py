"""Made-up benchmark runs: times and answers that are chosen, not measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from outpace.bench.record import Record, SpeculationRecord
from outpace.bench.result import Result, make_result
from outpace.bench.run import Measured

MACHINE = {
    "processor": "Abacus 9",
    "cores": 2,
    "memory_gib": 4.0,
    "system": "Linux x86_64",
    "load_average_before": 0.1,
}
SETTINGS = {
    "workload": "shipped",
    "workload_fingerprint": "abc",
    "repeats": 1,
    "max_tokens": 11,
    "temperature": 0.0,
    "seed": 0,
    "ignore_eos": False,
}


def speculation(**changes: Any) -> SpeculationRecord:
    plain: dict[str, Any] = {
        "target_steps": 5,
        "drafted": 8,
        "accepted": 6,
        "rejections": 2,
        "drafted_per_position": (4, 4),
        "accepted_per_position": (4, 2),
        "draft_seconds": 0.1,
        "verify_seconds": 0.7,
        "rest_seconds": 0.2,
    }
    return SpeculationRecord(**plain | changes)


def record(prompt: str, policy: str = "off", seconds: float = 1.0, **changes: Any) -> Record:
    """One request; its first token came after a fifth of its time."""
    usual: dict[str, Any] = {
        "task": prompt.rpartition("-")[0],
        "arrival": "one",
        "repeat": 0,
        "group": 0,
        "place": 0,
        "due_seconds": 0.0,
        "first_token_seconds": seconds / 5,
        "prompt_tokens": 7,
        "tokens": 11,
        "finish_reason": "length",
        "guarantee": "bit-exact",
        "answer_digest": f"answer to {prompt}",
        "identical": True,
        "first_difference": None,
        "speculation": None if policy == "off" else speculation(),
    }
    return Record(prompt=prompt, policy=policy, total_seconds=seconds, **usual | changes)


def run(factor: float, *, prompts: int = 6, repeats: int = 3, drift: float = 0.0) -> list[Record]:
    """Plain decoding and an n-gram drafter that is ``factor`` times faster on every prompt.

    Each repeat is slower than the last by the share ``drift``.
    """
    records = []
    for repeat in range(repeats):
        for i in range(prompts):
            seconds = (1 + i / 10) * (1 + drift) ** repeat
            prompt = f"{'code' if i % 2 else 'chat'}-{i}"
            where = {"repeat": repeat, "group": i}
            records.append(record(prompt, "off", seconds, **where))
            records.append(record(prompt, "ngram:k=4", seconds / factor, **where))
    return records


def result(records: Sequence[Record], stopped: str = "", **changes: Any) -> Result:
    policies = list(dict.fromkeys(one.policy for one in records))
    target = {"kind": "local", "model": "demo", "setting": "float32, 1 thread"}
    target |= changes.pop("target", {})
    return make_result(
        Measured(list(records), stopped),
        target,
        SETTINGS | changes.pop("settings", {}),
        policies,
        {1: 0.01, 2: 0.011, 4: 0.012, 8: 0.016, 16: 0.03},
        MACHINE | changes.pop("machine", {}),
    )
