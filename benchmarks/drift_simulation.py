"""How soon the drift alarm comes, and how often for nothing, on made-up requests.

Usage: ``python benchmarks/drift_simulation.py [--runs N] [--json]``

Requests of several types come in random order. Each type has a conditional acceptance by draft
position; each request has its own, spread around its type's (guesses of one request are alike, as
on real models). A step drafts ``k`` tokens and is right up to the first wrong one.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from outpace.control.drift import ACCEPTANCE, MIX, Alarm, DriftSettings, DriftWatch, Guesses


@dataclass(frozen=True)
class Traffic:
    """What comes.

    Attributes:
        alphas: conditional acceptance at the first position, by type.
        shares: how often each type comes.
        spread: standard deviation of a request's own acceptance, on the logit scale.
        decay: what each further position takes from acceptance, on the logit scale.
        k: draft tokens a step.
        tokens: of an answer, from .5 to 1.5 times as many.
    """

    alphas: tuple[tuple[str, float], ...] = (
        ("code", 0.8), ("chat", 0.55), ("summary", 0.75), ("edit", 0.9), ("other", 0.65),
    )  # fmt: skip
    shares: tuple[float, ...] = (0.3, 0.3, 0.2, 0.1, 0.1)
    spread: float = 0.5
    decay: float = 0.15
    k: int = 4
    tokens: int = 100

    def lowered(self, by: float, only: str | None = None) -> Traffic:
        """The same with acceptance lowered, of all types or of one."""
        lower = tuple((n, a - by if only in (None, n) else a) for n, a in self.alphas)
        return replace(self, alphas=lower)

    def requests(self, count: int, random: np.random.Generator) -> Iterator[Guesses]:
        """Yield so many requests."""
        for which in random.choice(len(self.alphas), count, p=self.shares):
            name, alpha = self.alphas[which]
            logit = math.log(alpha / (1 - alpha)) + random.normal(0, self.spread)
            curve = 1 / (1 + np.exp(-(logit - self.decay * np.arange(self.k))))
            yield self._guesses(name, curve, random)

    def _guesses(self, name: str, curve: np.ndarray, random: np.random.Generator) -> Guesses:
        wanted = int(self.tokens * random.uniform(0.5, 1.5))
        right = random.random((wanted, self.k)) < curve
        runs = np.cumprod(right, axis=1).sum(axis=1)
        steps = int(np.searchsorted(np.cumsum(runs + 1), wanted)) + 1
        runs = runs[:steps]
        tried = [int((runs >= i).sum()) for i in range(self.k)]
        accepted = [int((runs > i).sum()) for i in range(self.k)]
        return Guesses(name, "draft", tried, accepted)


def alarms(
    traffic: Traffic, before: int, then: Traffic, after: int, seed: int, settings: DriftSettings
) -> list[Alarm]:
    """All alarms of a run in which the traffic changes once."""
    random = np.random.default_rng(seed)
    watch = DriftWatch(settings)
    found: list[Alarm] = []
    for stage, count in ((traffic, before), (then, after)):
        for guesses in stage.requests(count, random):
            found += watch.add(guesses)
    return found


def delays(
    then: Traffic, runs: int, before: int, after: int, settings: DriftSettings
) -> list[int | None]:
    """Requests from the change to the first alarm about acceptance, for each run."""
    found: list[int | None] = []
    for seed in range(runs):
        came = alarms(Traffic(), before, then, after, seed, settings)
        late = [one.at - before for one in came if one.kind == ACCEPTANCE and one.at > before]
        found.append(min(late, default=None))
    return found


def described(values: Sequence[int | None]) -> dict[str, float | int]:
    """Quantiles of delays; runs without an alarm count as infinite."""
    ordered = sorted(math.inf if value is None else value for value in values)
    at = {f"p{s}": ordered[min(len(ordered) - 1, s * len(ordered) // 100)] for s in (50, 90)}
    within = sum(value <= 300 for value in ordered)
    return at | {"largest": ordered[-1], "within_300": within, "runs": len(ordered)}


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="How soon the drift alarm comes, and how often.")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--quiet-requests", type=int, default=10_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    settings = DriftSettings()
    usual = Traffic()
    figures: dict[str, object] = {}
    for name, then in (
        ("alpha -.10, all types", usual.lowered(0.1)),
        ("alpha -.05, all types", usual.lowered(0.05)),
        ("alpha -.10, only code", usual.lowered(0.1, only="code")),
    ):
        figures[name] = described(delays(then, options.runs, 2500, 1500, settings))
    quiet = [
        alarms(usual, options.quiet_requests, usual, 0, seed, settings)
        for seed in range(options.runs)
    ]
    false = [sum(one.kind == ACCEPTANCE for one in came) for came in quiet]
    mixes = [sum(one.kind == MIX for one in came) for came in quiet]
    figures["no change: false alarms a run"] = {
        "requests": options.quiet_requests,
        "acceptance": false,
        "mix": mixes,
    }
    other = replace(usual, shares=(0.05, 0.7, 0.05, 0.05, 0.15))
    shifted = [alarms(usual, 2500, other, 5000, seed, settings) for seed in range(options.runs)]
    figures["pure shift of the mix"] = {
        "alarms about acceptance": [sum(a.kind == ACCEPTANCE for a in one) for one in shifted],
        "first alarm about the mix": described(
            [min((a.at - 2500 for a in one if a.kind == MIX), default=None) for one in shifted]
        ),
    }
    shorter = replace(usual, k=2)
    figures["k 4 -> 2, nothing else"] = {
        "alarms about acceptance": [
            sum(a.kind == ACCEPTANCE for a in alarms(usual, 2500, shorter, 5000, seed, settings))
            for seed in range(options.runs)
        ]
    }
    if options.json:
        print(json.dumps(figures, indent=1))
        return
    for name, value in figures.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()
