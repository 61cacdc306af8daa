"""How often `outpace prove` cries wolf, and how often it overlooks: counted over many seeds.

    python benchmarks/prove_false_alarms.py              # synthetic distributions, seconds
    python benchmarks/prove_false_alarms.py --model demo # the engine itself, some minutes

A right sampler is tested with a high nominal rate, so that there is something to count; the
measured rate must agree with it. The same tests are then made of a sampler that is wrong by the
distance which is found with a stated power.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from rich.console import Console
from rich.table import Table

from outpace.prove.chi_square import least_deviation
from outpace.prove.fit import CountTest, compare, fit
from outpace.spec.statistics import wilson_interval

DEVIATION = 0.1


def rate(name: str, nominal: float, alarms: list[bool], power: bool = False) -> dict[str, object]:
    """One line: false alarms must not be more than stated, what is found not less."""
    low, high = wilson_interval(sum(alarms), len(alarms))
    return {
        "what": name,
        "nominal": nominal,
        "seeds": len(alarms),
        "alarms": sum(alarms),
        "measured": sum(alarms) / len(alarms),
        "interval": [low, high],
        "agrees": high >= nominal if power else low <= nominal,
    }


def synthetic(seeds: range, alpha: float, draws: int) -> list[dict[str, object]]:
    """Skewed random distributions of 256 outcomes, as continuations of four tokens have them."""

    def sample(random: np.random.Generator, probs: np.ndarray, n: int) -> Counter[int]:
        return Counter({i: int(c) for i, c in enumerate(random.multinomial(n, probs)) if c})

    def right(seed: int) -> CountTest:
        random = np.random.default_rng(seed)
        probs = random.dirichlet(np.full(256, 0.3))
        return fit(sample(random, probs, draws), dict(enumerate(probs)), alpha, DEVIATION)

    def two_samples(seed: int) -> CountTest:
        random = np.random.default_rng(seed)
        probs = random.dirichlet(np.full(256, 0.3))
        pair = sample(random, probs, draws), sample(random, probs, draws)
        return compare(*pair, alpha, DEVIATION)

    def wrong(seed: int) -> CountTest:
        """Spread in proportion to p, which is hardest to see, and found in 80 of 100."""
        random = np.random.default_rng(seed)
        probs = np.full(64, 1 / 64)
        least = least_deviation(63, alpha, draws, wanted=0.8)
        shifted = probs * (1 + 2 * least * np.where(np.arange(64) % 2, 1, -1))
        return fit(sample(random, shifted, draws), dict(enumerate(probs)), alpha, DEVIATION)

    def count(name: str, nominal: float, test: Callable[[int], CountTest]) -> dict[str, object]:
        alarms = [test(seed).rejected for seed in seeds]
        return rate(name, nominal, alarms, power=test is wrong)

    return [
        count("false alarms, against the exact distribution", alpha, right),
        count("false alarms, two samples", alpha, two_samples),
        count("found, at a power of 0.8", 0.8, wrong),
    ]


def with_a_model(model: str, seeds: range, alpha: float, draws: int) -> list[dict[str, object]]:
    """The engine's own draws: rejection with a probe that drafts, right and biased."""
    from outpace import LLM
    from outpace.prove.distribution import USUAL, Distribution, Plan
    from outpace.prove.prompts import DISTRIBUTION_PROMPT
    from outpace.prove.workbench import Workbench

    llm = LLM(model, "ngram")
    bench = Workbench(llm)
    prompt = tuple(llm.tokenizer.encode(DISTRIBUTION_PROMPT))
    plan = Plan(draws=draws, false_alarm=2 * alpha, deviation=DEVIATION)
    whole: dict[str, list[bool]] = {"one position": [], "continuations": [], "control": []}
    distribution = Distribution(bench, prompt, USUAL, plan)
    powers = []
    for seed in seeds:
        distribution.plan = replace(plan, seed=seed)
        check = distribution.check("probe tree" if seed % 2 else "probe chain", alpha)
        whole["one position"].append(check.figures["one_position"]["rejected"])
        whole["continuations"].append(check.figures["continuations"]["rejected"])
        whole["control"].append(check.figures["control_caught"])
        powers.append(check.figures["continuations"]["power"])
    return [
        rate("false alarms of the engine, one position", alpha, whole["one position"]),
        rate("false alarms of the engine, continuations", alpha, whole["continuations"]),
        rate("biased verifier caught, against the power", min(powers), whole["control"], True),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="draw from this model's engine instead")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--alpha", type=float, default=0.05)
    parser.add_argument("--draws", type=int, default=1024)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    if args.model is None:
        rows = synthetic(seeds, args.alpha, args.draws)
    else:
        rows = with_a_model(args.model, seeds, args.alpha, args.draws)
    if args.json:
        print(json.dumps(rows, indent=1))
        return
    table = Table("what", "nominal", "measured", "95 % interval", "of seeds", "agrees")
    for row in rows:
        low, high = row["interval"]
        table.add_row(
            row["what"],
            f"{row['nominal']:.3f}",
            f"{row['measured']:.3f}",
            f"{low:.3f} to {high:.3f}",
            f"{row['alarms']} of {row['seeds']}",
            "yes" if row["agrees"] else "NO",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
