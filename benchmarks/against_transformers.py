"""Greedy tokens of Outpace beside those of transformers' ``generate``, in fp32.

    python benchmarks/against_transformers.py --model demo --prompts prompts.jsonl --count 20

The file has one JSON object a line, in the layout of Spec-Bench (``category``, ``turns``); the
prompts are taken evenly from all categories. Exits with 1 if any token differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch
from rich.progress import track
from transformers import AutoModelForCausalLM

from outpace import LLM, SamplingParams
from outpace.model.source import resolve


def pick(file: Path, count: int, longest: int) -> list[tuple[str, str]]:
    """``count`` (category, prompt) pairs, category by category in turn."""
    by_category: dict[str, list[str]] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if len(entry["turns"][0]) <= longest:
            by_category.setdefault(entry["category"], []).append(entry["turns"][0])
    picked = []
    for index in range(count):
        names = [name for name, prompts in by_category.items() if len(prompts) > index]
        picked += [(name, by_category[name][index]) for name in names]
    return picked[:count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="demo")
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--longest", type=int, default=4000, help="characters of a prompt")
    args = parser.parse_args()
    llm = LLM(args.model, "auto", dtype="float32")
    model = AutoModelForCausalLM.from_pretrained(resolve(args.model), dtype=torch.float32)
    different = 0
    for category, text in track(pick(args.prompts, args.count, args.longest)):
        prompt = llm.tokenizer.encode_chat([{"role": "user", "content": text}])
        [found] = llm.generate([prompt], SamplingParams(max_tokens=args.tokens))
        with torch.inference_mode():
            whole = model.generate(
                torch.tensor([prompt]),
                attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                do_sample=False,
                max_new_tokens=args.tokens,
            )
        expected = whole[0, len(prompt) :].tolist()
        same = list(found.token_ids) == expected
        different += not same
        record = found.speculative
        print(
            f"{category:16} {len(prompt):5} prompt tokens  {len(expected):3} tokens in "
            f"{record.target_steps:3} steps  {'identical' if same else 'DIFFERENT'}"
        )
    print(f"{args.count - different} of {args.count} identical")
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
