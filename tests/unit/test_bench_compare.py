"""The verdict on two runs: what it finds, what it must not find, what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from outpace.bench.compare import FASTER, NONE, SLOWER, Verdict, compare
from outpace.bench.record import Record
from outpace.bench.result import Result, ResultError

from bench_records import record, result, run


def verdicts(first: Result, second: Result, **options: Any) -> dict[tuple[str, str], Verdict]:
    return {(v.policy, v.task): v for v in compare(first, second, **options)}


def test_a_run_against_itself_shows_no_difference() -> None:
    one = result(run(2.0))
    assert {v.verdict for v in compare(one, one)} == {NONE}
    assert all(v.ratio.value == 1 for v in compare(one, one))


def test_a_gain_and_a_loss_are_found() -> None:
    found = verdicts(result(run(2.0)), result(run(2.5)))
    assert found["ngram:k=4", "all"].verdict == FASTER
    assert found["ngram:k=4", "all"].ratio.value == pytest.approx(1.25)
    assert found["off", "all"].verdict == NONE
    back = verdicts(result(run(2.5)), result(run(2.0)))
    assert back["ngram:k=4", "all"].verdict == SLOWER
    assert back["ngram:k=4", "code"].verdict == SLOWER


def test_a_difference_within_the_margin_is_none() -> None:
    small = result(run(2.0)), result(run(2.04))
    assert verdicts(*small)["ngram:k=4", "all"].verdict == NONE
    assert verdicts(*small, margin=1.01)["ngram:k=4", "all"].verdict == FASTER


def test_a_machine_that_drifts_widens_the_margin() -> None:
    steady, drifting = result(run(2.0)), result(run(2.4, drift=0.15))
    found = verdicts(steady, drifting)["ngram:k=4", "all"]
    assert found.margin == pytest.approx(1.15**2)
    assert found.verdict == NONE


def noisy(generator: np.random.Generator, factor: float) -> list[Record]:
    """20 prompts, 3 repeats, each time off by 5 % either way."""
    return [
        record(f"qa-{i}", "off", (1 + i / 10) * factor * generator.normal(1, 0.05), repeat=r)
        for r in range(3)
        for i in range(20)
    ]


def test_noise_alone_is_rarely_called_a_difference_and_a_real_one_is_found() -> None:
    """100 pairs of equal runs, and 100 in which the second takes 15 % longer.

    With the margin the chance of a false alarm is far below 5 %: at most 5 of 100 are allowed.
    The control, a loss of 15 %, must be found in 95 of 100 at least.
    """
    generator = np.random.default_rng(3)
    alarms = found = 0
    for _ in range(100):
        first = result(noisy(generator, 1.0))
        equal, slower = result(noisy(generator, 1.0)), result(noisy(generator, 1.15))
        alarms += verdicts(first, equal)["off", "all"].verdict != NONE
        found += verdicts(first, slower)["off", "all"].verdict == SLOWER
    assert alarms <= 5
    assert found >= 95


def test_prompts_with_other_answers_are_left_out_and_counted() -> None:
    first = result(run(2.0))
    changed = [
        replace(r, answer_digest="other", total_seconds=99.0) if r.prompt == "code-1" else r
        for r in first.records
    ]
    found = verdicts(first, result(changed))["off", "code"]
    assert (found.ratio.value, found.ratio.prompts, found.other_answers) == (1.0, 2, 1)
    everything = [replace(r, answer_digest="other") for r in first.records]
    with pytest.raises(ResultError, match="no prompt got the same answer"):
        compare(first, result(everything))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"target": {"model": "other"}}, "the model demo, the second other"),
        ({"target": {"kind": "server"}}, "the kind local, the second server"),
        ({"settings": {"max_tokens": 5}}, "max tokens is 11 in the first run and 5"),
        ({"settings": {"workload_fingerprint": "x"}}, "workload fingerprint is abc"),
        ({"machine": {"processor": "Loom 1"}}, "on Abacus 9, the second on Loom 1"),
    ],
)
def test_runs_of_different_things_are_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ResultError, match=f"^not comparable: .*{reason}"):
        compare(result(run(2.0)), result(run(2.0), **changes))


def test_machines_can_be_compared_if_that_is_meant() -> None:
    other = result(run(2.0), machine={"processor": "Loom 1"})
    assert compare(result(run(2.0)), other, across_machines=True)


def test_nothing_in_common_and_nothing_measured_are_refused() -> None:
    ngram = [r for r in run(2.0) if r.policy != "off"]
    plain = [r for r in run(2.0) if r.policy == "off"]
    with pytest.raises(ResultError, match="no policy and arrival in common"):
        compare(result(ngram), result(plain))
    with pytest.raises(ResultError, match="has measured nothing"):
        compare(result(plain), result([]))
