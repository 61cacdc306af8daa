"""A tiny target, a store of its answers, and the command line, for tests of training."""

from __future__ import annotations

import json
from pathlib import Path

from outpace.cli import run

from tiny import write_checkpoint

WORDS = ("fox", "dog", "sun", "add", "range", "hello", "fine", "number", "quick", "lazy")


def tiny_target(folder: Path) -> Path:
    """Four layers, so that three can be tapped; one thread makes it quick."""
    return write_checkpoint(folder, num_hidden_layers=4, max_position_embeddings=256)


def write_prompts(file: Path, count: int = 60) -> Path:
    lines = [
        {"kind": ("chat", "code")[i % 2], "prompt": f"Say {WORDS[i % len(WORDS)]} {i} times."}
        for i in range(count)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return file


def captured(tmp: Path, *more: str, name: str = "store") -> tuple[Path, Path]:
    """A target and a store of its answers, made by the command."""
    target = tmp / "target"
    if not target.exists():
        tiny_target(target)
    prompts = write_prompts(tmp / "prompts.jsonl")
    line = f"train capture {prompts} -o {tmp / name} --model {target} --quantization none"
    limits = "--max-tokens 60 --max-length 200 --batch 8 --threads 1"
    assert run([*line.split(), *limits.split(), *more]) == 0
    return target, tmp / name
