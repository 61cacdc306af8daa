"""Drafters with several sources: each is counted, limited and tried by itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from outpace.control.automatic import AutomaticController
from outpace.control.controller import (
    Budget,
    Candidate,
    Controller,
    FixedController,
    Outcome,
    StepRecord,
)
from outpace.control.cost import CostTable

TOKENS = 400
SEEDS = range(6)
TARGET = CostTable({1: 0.060, 2: 0.061, 4: 0.064, 8: 0.072, 16: 0.090})
MODEL = CostTable({1: 0.007, 4: 0.008})


@dataclass(frozen=True)
class World:
    """How often each source has a draft, and how often its guesses are right."""

    lookup_found: float
    lookup: float
    model: float

    def play(self, controller: Controller, seed: int, sources: tuple[str, ...]) -> float:
        """Seconds for an answer. The same luck for every controller."""
        random = np.random.default_rng(seed)
        finds, luck = random.random(TOKENS + 20), random.random((2, TOKENS + 20))
        done, seconds = 0, 0.0
        while done < TOKENS:
            candidate = Candidate(seed, "both", TOKENS - done - 1, None, 100 + done, sources)
            [budget] = controller.budgets([candidate])
            made, k, drafting = self._draft(budget, sources, finds[done])
            right, accepted = {"lookup": self.lookup, "model": self.model}.get(made, 0.0), 0
            row = luck[0 if made == "lookup" else 1]
            while accepted < k and row[done + accepted] < right:
                accepted += 1
            verify, rest = TARGET(1 + k), 0.001
            seconds += verify + drafting + rest
            outcome = Outcome(
                seed,
                "both",
                drafted=k,
                accepted=accepted,
                rejected=accepted < k,
                asked=budget.tokens,
                emitted=accepted + 1,
                context=100 + done,
                source=made,
            )
            by_source = {made: drafting} if made else {}
            controller.record(StepRecord(1 + k, verify, by_source, (outcome,), rest))
            done += accepted + 1
        controller.forget(seed)
        return seconds

    def _draft(
        self, budget: Budget, sources: tuple[str, ...], luck: float
    ) -> tuple[str, int, float]:
        for source in sources:
            k = budget.by_source.get(source, budget.tokens)
            if k and (source == "model" or luck < self.lookup_found):
                return source, k, 1e-4 if source == "lookup" else k * MODEL(1)
        return "", 0, 0.0

    def automatic(self, sources: tuple[str, ...]) -> float:
        controller = AutomaticController(TARGET, {"model": MODEL})
        self.play(controller, 1000, sources)
        return sum(self.play(controller, seed, sources) for seed in SEEDS)

    def fixed(self, sources: tuple[str, ...]) -> float:
        return min(
            sum(self.play(FixedController(k), seed, sources) for seed in SEEDS) for k in range(9)
        )


BOTH, LOOKUP, MODEL_ONLY = ("lookup", "model"), ("lookup",), ("model",)


@pytest.mark.parametrize(
    "world",
    [
        World(lookup_found=0.3, lookup=0.9, model=0.6),
        World(lookup_found=0.3, lookup=0.1, model=0.8),  # lookup stands in the way
        World(lookup_found=0.9, lookup=0.8, model=0.05),  # the model is useless
        World(lookup_found=0.3, lookup=0.05, model=0.05),
    ],
    ids=["both help", "lookup is wrong", "model is wrong", "nothing helps"],
)
def test_two_sources_are_as_good_as_the_best_way_of_using_them(world: World) -> None:
    best = min(world.fixed(BOTH), world.fixed(LOOKUP), world.fixed(MODEL_ONLY))
    assert world.automatic(BOTH) / best - 1 <= 0.03


def test_the_check_would_see_a_source_that_stands_in_the_way() -> None:
    """The control: asked for the same k, a useless lookup costs much of what the model brings."""
    world = World(lookup_found=0.3, lookup=0.1, model=0.8)
    assert world.fixed(BOTH) > 1.05 * world.fixed(MODEL_ONLY)


def test_acceptance_is_counted_by_the_maker() -> None:
    controller = AutomaticController(TARGET, {"model": MODEL})
    candidate = Candidate(1, "both", 100, None, 50, BOTH)
    for _ in range(80):
        [budget] = controller.budgets([candidate])
        assert set(budget.by_source) == set(BOTH)
        k = budget.by_source["model"]
        outcome = Outcome(1, "both", k, k, False, budget.tokens, k + 1, 50, "model" if k else "")
        by_source = {"model": k * MODEL(1)}
        controller.record(StepRecord(1 + k, TARGET(1 + k), by_source, (outcome,), 0.001))
    [budget] = controller.budgets([candidate])
    assert budget.by_source["model"] >= 8
    # Lookup was asked again and again and never had a draft: nothing is known against its guesses.
    assert controller._state(1).source("lookup").acceptance.tried == []
    assert controller._state(1).source("lookup").acceptance.asked > 10
