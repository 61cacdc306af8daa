"""Whether a new draft is offered: on made-up pairs, and that a capture is its owner's alone."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from outpace.align.decide import ALL, Pair, Rule, decide
from outpace.align.evaluate import EvaluationError, Ran, is_held_out, pairs_of
from outpace.errors import InvalidValueError
from outpace.record.bounded import Bounds, RecordError
from outpace.record.capture import Capture, Captured, delete_capture, load_capture, open_capture
from outpace.request import Request, SamplingParams


def pairs(gain: float, count: int = 40, kind: str = "code", seed: int = 0) -> list[Pair]:
    """Prompts of different lengths; the new draft needs ``gain`` times fewer steps, and noise."""
    random = np.random.default_rng(seed)
    made = []
    for tokens in random.integers(40, 200, count):
        old = int(tokens / random.uniform(1.5, 3.5))
        made.append(Pair(kind, int(tokens), old, max(1, round(old / gain + random.normal(0, 2)))))
    return made


def test_a_better_draft_is_offered_and_a_worse_one_is_not() -> None:
    better = decide(pairs(1.15))
    assert better.offered
    assert better.types[0].request_type == ALL
    assert better.types[0].low is not None
    assert better.types[0].low > 1
    assert "better with confidence" in better.reason
    assert not decide(pairs(0.9)).offered
    assert not decide(pairs(1.0)).offered
    assert not decide([replace(pair, new_steps=pair.old_steps) for pair in pairs(1.0)]).offered


def test_a_gain_for_most_does_not_hide_a_loss_for_some() -> None:
    mixed = [*pairs(1.3, 60), *pairs(0.8, 25, "chat", seed=1)]
    verdict = decide(mixed)
    assert verdict.types[0].low is not None
    assert verdict.types[0].low > 1
    assert not verdict.offered
    assert "fewer for chat" in verdict.reason
    # A type with few prompts has no vote against it.
    assert decide([*pairs(1.3, 60), *pairs(0.8, 5, "chat", seed=1)]).offered


def test_few_prompts_decide_nothing() -> None:
    assert "too few" in decide(pairs(1.5, 10)).reason
    assert decide(pairs(1.5, 10), Rule(prompts=10)).offered
    assert not decide(pairs(1.5, 1)).offered
    assert "no prompts" in decide([]).reason


def test_the_gain_that_is_asked_for() -> None:
    assert decide(pairs(1.15), Rule(gain=0.05)).offered
    verdict = decide(pairs(1.15), Rule(gain=0.5))
    assert not verdict.offered
    assert "by more than 50 %" in verdict.reason


def test_lengths_are_those_of_the_pairs() -> None:
    verdict = decide([Pair("a", 30, 10, 5), Pair("b", 10, 10, 5)], Rule(prompts=2))
    whole, first, _ = verdict.types
    assert (whole.old, whole.new, whole.ratio) == (2.0, 4.0, 2.0)
    assert (first.request_type, first.prompts, first.low) == ("a", 1, None)


def test_an_equal_draft_is_seldom_offered() -> None:
    """At 95 % at most one equal draft in twenty; of 200, 22 or more would be beyond p = .001."""
    offered = sum(decide(pairs(1.0, 40, seed=seed)).offered for seed in range(200))
    assert offered <= 21


@pytest.mark.parametrize("changes", [{"confidence": 1.0}, {"prompts": 1}, {"gain": -1}])
def test_rules_out_of_range_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(InvalidValueError, match=next(iter(changes))):
        Rule(**changes)  # type: ignore[arg-type]


def captured(number: int, kind: str = "code") -> Captured:
    return Captured(float(number), kind, "demo", (1, 2, number), (3, 4), {"temperature": 0.0})


def test_about_one_prompt_in_five_is_held_out_and_always_the_same() -> None:
    made = [captured(i) for i in range(1000)]
    apart = [one.prompt for one in made if is_held_out(one)]
    assert 150 < len(apart) < 250
    again = [replace(one, request_type="chat", answer=(9,), arrived=0.0) for one in made]
    assert [one.prompt for one in again if is_held_out(one)] == apart


def test_drafters_that_change_tokens_are_not_compared() -> None:
    held, old = [captured(0)], [Ran((3, 4), 2)]
    assert pairs_of(held, old, [Ran((3, 4), 1)]) == [Pair("code", 2, 2, 1)]
    with pytest.raises(EvaluationError, match="outpace prove"):
        pairs_of(held, old, [Ran((3, 5), 1)])
    # Where a near-tie may fall to either side, such a prompt says nothing.
    assert pairs_of(held, old, [Ran((3, 5), 1)], exact=False) == []


def test_a_capture_is_bounded_private_and_deletable(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    capture = Capture(path, Bounds(3, 10**6))
    params = SamplingParams(temperature=0.7, seed=5, top_p=0.9)
    for number in range(5):
        request = Request(str(number), (1, 2, number), params, request_type="code")
        assert capture.add_request(request, [7, number], "demo")
    capture.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    held = load_capture(path)
    assert [one.prompt[2] for one in held] == [2, 3, 4]
    assert held[0].answer == (7, 2)
    assert held[0].sampling == {
        "temperature": 0.7, "top_p": 0.9, "top_k": 0, "min_p": 0.0, "seed": 5
    }  # fmt: skip
    assert delete_capture(path) > 0
    assert not path.exists()
    with pytest.raises(RecordError, match="no such file"):
        delete_capture(path)


def test_a_record_is_no_capture(tmp_path: Path) -> None:
    from outpace.record.recorder import Recorder

    Recorder(tmp_path / "a.db").close()
    for do in (load_capture, delete_capture, Capture):
        with pytest.raises(RecordError, match="something else"):
            do(tmp_path / "a.db")
    with pytest.raises(InvalidValueError, match="capture"):
        open_capture("")
    assert open_capture(None) is None
