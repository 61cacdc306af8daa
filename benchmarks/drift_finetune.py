"""How soon the drift alarm comes while a target is fine-tuned away from its draft, on real models.

Usage: ``python benchmarks/drift_finetune.py [--model demo] [--noise 0.03,0.06,0.09] [--json]``

The draft is the model itself, so that it is right nearly always. Then the target's weights move
step by step: noise is added to every linear layer, as a share of its own spread. Answers are as
right as the target is, whatever happens; only the draft falls behind.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from outpace import LLM, SamplingParams
from outpace.bench.workload import Entry, load
from outpace.control.drift import ACCEPTANCE, DriftSettings, DriftWatch
from outpace.health.groups import whole
from outpace.health.history import watch
from outpace.model.source import resolve
from outpace.record.capture import Capture
from outpace.record.row import Row
from outpace.record.taken import take_row
from outpace.request import Request


def moved(folder: Path, noise: float, place: Path) -> Path:
    """A copy of a checkpoint whose linear layers are so far from the original."""
    shutil.copytree(folder, place)
    generator = torch.Generator().manual_seed(0)  # the same direction, further at each step
    for file in sorted(place.glob("*.safetensors")):
        tensors = load_file(file)
        for name, weight in tensors.items():
            if weight.ndim == 2 and "embed" not in name and "lm_head" not in name:
                step = torch.randn(weight.shape, generator=generator) * weight.float().std()
                tensors[name] = (weight.float() + noise * step).to(weight.dtype).contiguous()
        save_file(tensors, file, metadata={"format": "pt"})
    return place


def answered(
    llm: LLM,
    entries: Iterator[Entry],
    count: int,
    tokens: int,
    at: int,
    capture: Capture | None = None,
) -> list[Row]:
    """Rows of so many requests, some at a time; a capture gets what was asked and answered."""
    rows: list[Row] = []
    while len(rows) < count:
        some = []
        for _ in range(min(llm.engine.config.max_num_seqs, count - len(rows))):
            entry = next(entries)
            prompt = tuple(llm.tokenizer.encode_chat(entry.conversation))
            params = SamplingParams(max_tokens=tokens, temperature=0.7, seed=at + len(rows))
            name = f"{at}-{len(rows)}-{len(some)}"
            request = Request(name, prompt, params, request_type=entry.task)
            some.append((request, llm.engine.add(request)))
        while llm.engine.has_work:
            llm.engine.step()
        for request, sequences in some:
            controller = llm.engine.controller
            rows.append(take_row(request, sequences, controller, llm.model, llm.guarantee))
            if capture is not None:
                capture.add_request(request, sequences[0].output.token_ids, llm.model)
    return rows


def main() -> None:
    """Print what was seen at each step of the fine-tune."""
    parser = argparse.ArgumentParser(description="Time to detection on a synthetic fine-tune.")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--noise", default="0.03,0.06,0.09", help="one step after the other")
    parser.add_argument("--requests", type=int, default=120, help="at each step")
    parser.add_argument("--baseline", type=int, default=240, help="before the first step")
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--tasks", default="code,chat,qa", help="types of requests")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    tasks = options.tasks.split(",")
    entries = cycle(load("shipped").selected(tasks, 0).entries)
    watcher = DriftWatch(DriftSettings(learn=options.baseline // (2 * len(tasks))))
    folder, steps = resolve(options.model), []
    with tempfile.TemporaryDirectory() as scratch:
        for number, noise in enumerate([0.0, *map(float, options.noise.split(","))]):
            place = moved(folder, noise, Path(scratch) / str(number))
            llm = LLM(
                str(place), f"model:{options.model}", num_speculative_tokens=3,
                threads=options.threads, prefix_caching=False, kv_cache_tokens=8192,
            )  # fmt: skip
            count = options.baseline if number == 0 else options.requests
            began = watcher.requests
            rows = answered(llm, entries, count, options.tokens, at=1000 * number)
            alarms = [alarm for row in rows for alarm in watch(watcher, row)]
            first = next((a.at - began for a in alarms if a.kind == ACCEPTANCE), None)
            seen = whole(rows).alpha
            steps.append({"noise": noise, "requests": count, "alpha": seen.as_plain(),
                          "requests_to_alarm": first})  # fmt: skip
            if not options.json:
                low, high = seen.low, seen.high
                print(f"noise {noise:.3f}: alpha {seen.value:.3f} ({low:.3f}-{high:.3f}), "
                      f"first alarm after {first} of {count} requests", flush=True)  # fmt: skip
            del llm
    if options.json:
        print(json.dumps(steps, indent=1))


if __name__ == "__main__":
    main()
