"""The automatic k against every fixed one, in simulated requests on invented machines.

Times are simulated: nothing here depends on how fast the test runs. The random numbers are
seeded, so every figure is the same on every run. The same guesses are right for every
controller, which makes a few requests enough for a comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from outpace.control.allocation import allocate
from outpace.control.automatic import AutomaticController
from outpace.control.choice import Contender, Costs, Others
from outpace.control.controller import (
    Candidate,
    Controller,
    FixedController,
    Outcome,
    StepRecord,
)
from outpace.control.cost import CostTable
from outpace.control.draft_cost import DraftCost
from outpace.control.line import OnlineLine
from outpace.control.pacing import Pacing

TOKENS = 300  # plain decoding takes as many steps
SEEDS = range(10)
Profile = Callable[[int, int], float]  # token of the answer, place in the draft: acceptance

# Milliseconds by rows, in the shapes that kernels have: nearly flat, and stairs of 4 rows.
TARGETS = {
    "bf16": {1: 60, 2: 61, 4: 64, 8: 72, 16: 90, 32: 130},
    "int8": {1: 48, 2: 49, 4: 51.5, 5: 96, 8: 97, 9: 150, 12: 152, 16: 163, 32: 320},
    "int4": {1: 24, 2: 27, 4: 37, 5: 68, 8: 71, 9: 100, 12: 104, 16: 138, 32: 280},
    "no gain": {1: 20, 2: 40, 32: 640},
}
DRAFTS = {"lookup": None, "cheap model": {1: 6, 32: 12}, "dear model": {1: 18, 32: 30}}
PROFILES: dict[str, Profile] = {
    "0": lambda token, place: 0.0,
    "0.5": lambda token, place: 0.5,
    "0.9": lambda token, place: 0.9,
    "0, then 0.9": lambda token, place: 0.0 if token < TOKENS / 2 else 0.9,
    "0.9, then 0": lambda token, place: 0.9 if token < TOKENS / 2 else 0.0,
    "falling by place": lambda token, place: max(0.9 - 0.15 * place, 0.1),
}


def table(milliseconds: dict[int, float] | None) -> CostTable | None:
    return milliseconds and CostTable({rows: ms / 1e3 for rows, ms in milliseconds.items()})


@dataclass
class Machine:
    """What steps cost: the truth, of which a controller gets a copy to start from."""

    target: dict[int, float]
    draft: dict[int, float] | None

    def automatic(self) -> AutomaticController:
        drafts = {"drafter": table(self.draft)} if self.draft else {}
        return AutomaticController(table(self.target), drafts)  # type: ignore[arg-type]

    def play(
        self, controller: Controller, profile: Profile, seed: int, lie: bool = False
    ) -> tuple[float, list[int]]:
        """Seconds for a request, and the k of each step."""
        random = np.random.default_rng(seed)
        luck, jitter = random.random(TOKENS + 64), np.abs(random.standard_normal(3 * TOKENS))
        target, draft = table(self.target), table(self.draft)
        assert target is not None
        done, seconds, behind, lengths = 0, 0.0, 2, []
        pacing = Pacing(controller)
        while done < TOKENS:
            candidate = Candidate(seed, "drafter", TOKENS - done - 1, None, 2 + done)
            [budget], _ = pacing.budgets([seed], [candidate.room], lambda one=candidate: [one])  # type: ignore[misc]
            k, accepted = budget.tokens, 0
            while accepted < k and luck[done + accepted] < profile(done + accepted, accepted):
                accepted += 1
            if lie:  # right when little is asked for, wrong when it is trusted
                accepted = k if k == 1 else 0
            drafting = 0.0001 if k else 0.0
            if draft is not None and k:
                drafting = draft(min(behind, 3)) + (k - 1) * draft(1)
            times = [target(1 + k), drafting, 0.0008 + 0.0001 * k]
            noise = jitter[3 * len(lengths) : 3 * len(lengths) + 3]
            verify, drafting, rest = (1 + 0.02 * noise) * times
            seconds += verify + drafting + rest
            outcome = Outcome(seed, "drafter", k, accepted, accepted < k, k, accepted + 1, 2 + done)
            pacing.record(StepRecord(1 + k, verify, {"drafter": drafting}, (outcome,), rest))
            behind = behind + 1 if k == 0 else 1 + (accepted == k)
            done += accepted + 1
            lengths.append(k)
        pacing.forget(seed)
        return seconds, lengths

    def fixed(self, k: int, profile: Profile) -> float:
        return sum(self.play(FixedController(k), profile, seed)[0] for seed in SEEDS)


def regret(machine: Machine, profile: Profile) -> tuple[float, float]:
    """How much longer than with the best fixed k, and than plain; after a first request."""
    fixed = [machine.fixed(k, profile) for k in range(9)]
    controller = machine.automatic()
    machine.play(controller, profile, seed=1000)
    automatic = sum(machine.play(controller, profile, seed)[0] for seed in SEEDS)
    return automatic / min(fixed) - 1, automatic / fixed[0] - 1


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("target", TARGETS)
def test_never_much_behind_the_best_fixed_k(target: str, draft: str, profile: str) -> None:
    against_best, against_plain = regret(Machine(TARGETS[target], DRAFTS[draft]), PROFILES[profile])
    assert against_best <= 0.03
    assert against_plain <= 0.03


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("target", TARGETS)
def test_a_first_request_with_useless_drafts_costs_little(target: str, draft: str) -> None:
    machine = Machine(TARGETS[target], DRAFTS[draft])
    plain = machine.fixed(0, PROFILES["0"])
    cold = sum(machine.play(machine.automatic(), PROFILES["0"], seed)[0] for seed in SEEDS)
    assert cold / plain - 1 <= 0.03


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("target", TARGETS)
def test_a_lying_draft_costs_little(target: str, draft: str) -> None:
    machine = Machine(TARGETS[target], DRAFTS[draft])
    plain = machine.fixed(0, PROFILES["0"])
    lied = 0.0
    controller = machine.automatic()
    for seed in SEEDS:
        lied += machine.play(controller, PROFILES["0"], seed, lie=True)[0]
    assert lied / plain - 1 <= 0.03


def test_the_check_would_see_a_bad_choice() -> None:
    """The control: a k that is fixed at 8 is far behind where drafts are useless."""
    machine = Machine(TARGETS["int4"], DRAFTS["cheap model"])
    assert machine.fixed(8, PROFILES["0"]) > 1.5 * machine.fixed(0, PROFILES["0"])


def test_the_stairs_of_a_kernel_are_used_to_their_edge() -> None:
    machine = Machine(TARGETS["int8"], None)
    controller = machine.automatic()
    _, lengths = machine.play(controller, lambda token, place: 0.8, seed=3)
    assert max(set(lengths), key=lengths.count) == 3  # 4 rows cost what 2 do


def contender(reach: Sequence[float], context: int = 0) -> Contender:
    return Contender("drafter", reach, 1.0, 1, context, 100)


def costs(target: dict[int, float]) -> Costs:
    return Costs(CostTable(target), OnlineLine(), {"drafter": DraftCost()})


def choose(
    contenders: Sequence[Contender], steps: Costs, others: Others | None = None
) -> list[int]:
    """The lengths that pay, by more than a hundredth."""
    best = allocate(contenders, steps, others)
    return best.lengths if best.ratio > 1.01 else [0] * len(contenders)


def test_rows_go_where_they_buy_most() -> None:
    """Four rows cost what one does, a fifth as much again: two sequences share three guesses."""
    steps = costs({1: 1.0, 4: 1.0, 5: 2.0, 64: 12.8})
    sure, unsure = contender([0.9, 0.8, 0.7, 0.6]), contender([0.3, 0.1])
    assert choose([sure, unsure], steps) == [2, 0]
    assert choose([unsure, sure], steps) == [0, 2]
    assert choose([sure, sure], steps) == [1, 1]


def test_under_load_nothing_is_drafted() -> None:
    steps = costs({1: 1.0, 16: 1.1, 32: 2.2, 64: 4.4})
    assert choose([contender([0.6, 0.36])], steps)[0] > 0
    assert choose([contender([0.6, 0.36])] * 16, steps) == [0] * 16


def test_the_rows_of_others_count() -> None:
    steps = costs({1: 1.0, 4: 1.0, 5: 2.0, 64: 12.8})
    assert choose([contender([0.7])], steps, Others(rows=1, sequences=1)) == [1]
    assert choose([contender([0.7])], steps, Others(rows=3, sequences=3)) == [0]


def test_catching_up_with_a_long_prompt_for_a_short_answer_does_not_pay() -> None:
    drafts = {"drafter": DraftCost(CostTable({1: 0.1, 2: 0.11, 1000: 20.0}))}
    steps = Costs(CostTable({1: 1.0, 8: 1.1}), OnlineLine(), drafts)
    few = Contender("drafter", [0.8, 0.6], 1.0, 1000, 1000, 10)
    many = Contender("drafter", [0.8, 0.6], 1.0, 1000, 1000, 256)
    assert choose([few], steps) == [0]
    assert choose([many], steps)[0] > 0
