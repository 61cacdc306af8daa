"""What a grammar costs a step: times of steps and masks with and without one, by drafter.

    python benchmarks/grammar_steps.py [--model demo] [--tokens 96] [--threads 1]

Prints, for each drafter, the median and the 99th percentile of a step's seconds for a request
without a grammar, with a schema, and with a schema written compactly; the time of a mask, of a
copy of the state and of looking for forced tokens; and the first grammar's preparation.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from time import perf_counter

import numpy as np

from outpace import LLM, Grammar, SamplingParams
from outpace.request import Request

SCHEMA = {
    "type": "object",
    "properties": {
        "people": {
            "type": "array",
            "minItems": 3,
            "maxItems": 3,
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "maxLength": 24},
                    "profession": {"type": "string", "maxLength": 24},
                    "age": {"type": "integer", "minimum": 0, "maximum": 120},
                    "city": {"enum": ["Oslo", "Bergen", "Trondheim", "Stavanger"]},
                },
                "required": ["name", "profession", "age", "city"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["people"],
    "additionalProperties": False,
}
QUESTION = "Invent three people who live in Norway, as JSON."


def steps(llm: LLM, params: SamplingParams, drafter: str) -> tuple[list[float], int]:
    """Seconds of each step after the prompt, and the number of tokens."""
    prompt = tuple(llm.tokenizer.encode_chat([{"role": "user", "content": QUESTION}]))
    request = Request("r", prompt, params, drafter=drafter)
    [sequence] = llm.engine.add(request)
    llm.engine.step()
    times = []
    while llm.engine.has_work:
        began = perf_counter()
        llm.engine.step()
        times.append(perf_counter() - began)
    return times, len(sequence.output.token_ids)


def shown(times: list[float]) -> str:
    middle, late = np.percentile(times, [50, 99]) * 1e3
    return f"{middle:8.2f} {late:8.2f}"


def mean_time(work: Callable[[], object], repeats: int = 200) -> float:
    began = perf_counter()
    for _ in range(repeats):
        work()
    return (perf_counter() - began) / repeats


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="demo")
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("-k", type=int, default=4)
    given = parser.parse_args()
    llm = LLM(given.model, "auto", num_speculative_tokens=given.k, threads=given.threads)
    free = SamplingParams(max_tokens=given.tokens, ignore_eos=True)
    kinds = {
        "none": free,
        "schema": SamplingParams(max_tokens=given.tokens, grammar=Grammar.json_schema(SCHEMA)),
        "compact": SamplingParams(
            max_tokens=given.tokens, grammar=Grammar.json_schema(SCHEMA, compact=True)
        ),
    }
    began = perf_counter()
    llm.engine.admission.check(Request("first", (1,), kinds["schema"]))
    print(f"first grammar, vocabulary included: {perf_counter() - began:.2f} s")
    began = perf_counter()
    llm.engine.admission.check(Request("second", (1,), kinds["compact"]))
    print(f"second grammar: {(perf_counter() - began) * 1e3:.1f} ms")
    print(f"{'drafter':>10} {'grammar':>8} {'ms: p50':>8} {'p99':>8} {'steps':>6} {'tokens':>7}")
    for drafter in ("none", "ngram", "grammar", "auto"):
        for name, params in kinds.items():
            steps(llm, params, drafter)  # warm: caches of the library and of the kernels
            times, tokens = steps(llm, params, drafter)
            print(f"{drafter:>10} {name:>8} {shown(times)} {len(times):6} {tokens:7}")
    [sequence] = llm.engine.add(Request("r", (1,), kinds["compact"]))
    matcher = sequence.history.matcher
    assert matcher is not None
    state = matcher._matcher
    print(f"mask {mean_time(state.compute_bitmask) * 1e6:.0f} µs, "
          f"copy {mean_time(matcher.copy) * 1e6:.0f} µs, "
          f"forced tokens {mean_time(matcher.forced) * 1e6:.0f} µs")  # fmt: skip
    llm.engine.abort("r")


if __name__ == "__main__":
    main()
