from __future__ import annotations

import pytest

from outpace.control.automatic import AutomaticController
from outpace.control.controller import Candidate, Outcome, StepRecord
from outpace.control.cost import CostTable
from outpace.control.weighed import Chances, Weighed


@pytest.mark.parametrize(("tokens", "drafts"), [(0, 0), (3, 0), (4, 1), (24, 6), (999, 6)])
def test_chances_hold_for_the_more_drafts_the_more_they_rest_on(tokens: int, drafts: int) -> None:
    weighed, chances = Weighed(), [Chances()]
    assert weighed.keep("these", chances, tokens) is chances
    for _ in range(drafts):
        weighed.drafted()
        assert weighed.of("these") is chances
    weighed.drafted()
    assert weighed.of("these") is None


def test_without_new_evidence_chances_hold_for_some_steps() -> None:
    weighed, chances = Weighed(), [Chances()]
    weighed.keep("these", chances, 0)
    held = 0
    while weighed.of("these") is chances:
        held += 1
    assert held == weighed.steps_held - 1 == 16


def test_chances_are_those_of_the_same_sequences_only() -> None:
    weighed = Weighed()
    weighed.keep("these", [Chances()], 999)
    assert weighed.of("others") is None
    weighed.drop()
    assert weighed.of("these") is None


@pytest.mark.parametrize(("draft", "most"), [(None, 13), (CostTable({1: 1e-4, 16: 2e-4}), 40)])
def test_a_lookup_is_weighed_now_and_then_and_a_draft_model_in_each_step(
    draft: CostTable | None, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = AutomaticController(
        CostTable({1: 0.01, 16: 0.011}), {"drafter": draft} if draft else {}
    )
    weighed = []
    chances = controller._chances

    def counted(*arguments: object) -> list[Chances]:
        weighed.append(arguments)
        return chances(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(controller, "_chances", counted)
    for step in range(40):
        [budget] = controller.budgets([Candidate(0, "drafter", 999 - step, None, 2 + 2 * step)])
        k = budget.tokens
        outcome = Outcome(0, "drafter", k, min(k, 1), k > 1, k, 1 + min(k, 1), 2 + 2 * step)
        controller.record(StepRecord(1 + k, 0.01, {"drafter": 1e-4}, (outcome,), 1e-4))
    assert len(weighed) <= most
    assert len(weighed) == 40 or draft is None
