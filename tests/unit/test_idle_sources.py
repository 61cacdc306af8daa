"""Who has nothing to say for a request is not asked, and is not held for one who never finds."""

from __future__ import annotations

from outpace.config import NgramConfig, PredictionConfig
from outpace.control.automatic import AutomaticController
from outpace.control.cost import CostTable
from outpace.request import Request, SamplingParams
from outpace.spec.drafters.first_of import FirstOfDrafter
from outpace.spec.drafters.grammar import GrammarDrafter
from outpace.spec.drafters.ngram import NgramDrafter
from outpace.spec.drafters.prediction import PredictionDrafter

from engines import make_engine, make_runner, run, tokens_of

PARAMS = SamplingParams(max_tokens=24, ignore_eos=True)
PROMPT = (5, 6, 7, 8)


def controller() -> AutomaticController:
    return AutomaticController(CostTable({1: 1.0, 16: 1.1}))


def test_requests_without_a_prediction_say_nothing_of_those_with_one() -> None:
    target = make_runner()
    [[answer]] = tokens_of(run(make_engine(target), [Request("plain", PROMPT, PARAMS)]))
    control = controller()
    drafter = PredictionDrafter(PredictionConfig())
    engine = make_engine(target, {"prediction": drafter}, control)
    for i in range(20):
        [[sequence]] = run(engine, [Request(f"without-{i}", PROMPT, PARAMS)])
        assert sequence.counts.drafted == 0
    told = sequence.counts.summary("prediction", "coupled", "").off_reason
    assert "the request brings nothing that prediction follows" in told
    assert control.history.cells() == []
    [[sequence]] = run(engine, [Request("with", PROMPT, PARAMS, prediction=tuple(answer))])
    assert sequence.output.token_ids == answer
    assert sequence.counts.accepted > 12


def test_only_those_that_serve_a_request_are_asked_for_it() -> None:
    control = controller()
    parts = [
        PredictionDrafter(PredictionConfig()),
        GrammarDrafter(),
        NgramDrafter(NgramConfig()),
    ]
    drafter = FirstOfDrafter(parts)
    engine = make_engine(make_runner(), {drafter.name: drafter}, control)
    run(engine, [Request("r", PROMPT * 4, PARAMS)])
    assert {source for _, source in control.history.cells()} == {"ngram"}


def test_a_prediction_of_its_own_serves_every_request() -> None:
    target = make_runner()
    [[answer]] = tokens_of(run(make_engine(target), [Request("plain", PROMPT, PARAMS)]))
    drafter = PredictionDrafter(PredictionConfig(), default=tuple(answer))
    engine = make_engine(target, {"prediction": drafter}, controller())
    [[sequence]] = run(engine, [Request("r", PROMPT, PARAMS)])
    assert sequence.counts.accepted > 12


def test_who_never_had_a_draft_is_tried_again() -> None:
    target = make_runner()
    [[answer]] = tokens_of(run(make_engine(target), [Request("plain", PROMPT, PARAMS)]))
    control = controller()
    for _ in range(5000):
        control.history.asked("other", "prediction", False)
    drafter = PredictionDrafter(PredictionConfig())
    engine = make_engine(target, {"prediction": drafter}, control)
    [[sequence]] = run(engine, [Request("with", PROMPT, PARAMS, prediction=tuple(answer))])
    assert sequence.counts.accepted > 8


def test_one_of_two_of_a_name_that_serves_is_enough() -> None:
    """Beside a prediction with a text of its own, ``auto`` brings one without."""
    target = make_runner()
    [[answer]] = tokens_of(run(make_engine(target), [Request("plain", PROMPT, PARAMS)]))
    own = PredictionDrafter(PredictionConfig(), default=tuple(answer))
    other = FirstOfDrafter([PredictionDrafter(PredictionConfig()), NgramDrafter(NgramConfig())])
    engine = make_engine(target, {"prediction": own, other.name: other}, controller())
    [[sequence]] = run(engine, [Request("r", PROMPT, PARAMS, drafter="prediction")])
    assert sequence.counts.accepted > 12
