"""Drift alarms on made-up requests with fixed seeds: soon after a change, and not for nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from drift_simulation import Traffic, alarms, delays
from outpace.control.drift import (
    ACCEPTANCE,
    EVERY_TYPE,
    MIX,
    DriftSettings,
    DriftWatch,
    Guesses,
)
from outpace.control.evidence import Baseline, Bets
from outpace.control.mix import MixTest
from outpace.errors import InvalidValueError

USUAL, SETTINGS = Traffic(), DriftSettings()


@pytest.mark.parametrize("only", [None, "code"])
def test_a_fall_of_a_tenth_is_found_within_300_requests(only: str | None) -> None:
    # Fixed seeds; of twenty the slowest took 72 and 190 requests (docs/drift.md).
    found = delays(USUAL.lowered(0.1, only), runs=3, before=2000, after=400, settings=SETTINGS)
    assert all(delay is not None and delay <= 300 for delay in found), found


def test_nothing_is_found_where_nothing_changes() -> None:
    came = alarms(USUAL, 10_000, USUAL, 0, seed=7, settings=SETTINGS)
    assert len(came) <= 1


def test_a_shift_of_the_mix_is_told_apart() -> None:
    other = replace(USUAL, shares=(0.05, 0.7, 0.05, 0.05, 0.15))
    came = alarms(USUAL, 2000, other, 2000, seed=3, settings=SETTINGS)
    assert {one.kind for one in came} == {MIX}
    assert came[0].at > 2000
    assert (came[0].request_type, came[0].now > came[0].before) == ("chat", True)
    assert "that is no drift" in came[0].text


def test_the_same_shift_is_an_alarm_where_types_are_not_told_apart() -> None:
    """The negative control: without types the shift looks like drift."""
    other = replace(USUAL, shares=(0.05, 0.7, 0.05, 0.05, 0.15))
    random, watch, came = np.random.default_rng(3), DriftWatch(SETTINGS), []
    for stage in (USUAL, other):
        for guesses in stage.requests(2000, random):
            came += watch.add(replace(guesses, request_type="any"))
    assert ACCEPTANCE in {one.kind for one in came}


def test_shorter_drafts_alone_are_no_drift() -> None:
    for then in (replace(USUAL, k=2), replace(USUAL, k=6)):
        came = alarms(USUAL, 2000, then, 2000, seed=5, settings=SETTINGS)
        assert [one for one in came if one.kind == ACCEPTANCE] == []


def test_a_fall_at_a_late_position_is_named_as_such() -> None:
    random, watch = np.random.default_rng(0), DriftWatch()
    came = []
    for number in range(1200):
        late = 0.9 if number < 800 else 0.5
        first = int(random.binomial(30, 0.8))
        second = int(random.binomial(first, late))
        came += watch.add(Guesses("code", "draft", (30, first), (first, second)))
    acceptance = [one for one in came if one.kind == ACCEPTANCE]
    assert min(one.at for one in acceptance) > 800
    assert 1 not in {one.position for one in acceptance}
    [at_two] = {one.position for one in acceptance if one.position is not None}
    assert at_two == 2
    alarm = next(one for one in acceptance if one.position == 2)
    assert alarm.before == pytest.approx(0.9, abs=0.02)  # the baseline is estimated
    assert alarm.now < 0.75
    assert abs(alarm.at - alarm.requests - 800) <= 20
    assert "at draft position 2 " in alarm.text
    assert alarm.as_plain()["text"] == alarm.text


def test_a_rise_is_no_alarm() -> None:
    came = alarms(USUAL, 1500, USUAL.lowered(-0.08), 1500, seed=1, settings=SETTINGS)
    assert [one for one in came if one.kind == ACCEPTANCE] == []


def test_types_share_their_evidence() -> None:
    """A fall in all types shows over all together before any one of them is sure."""
    came = alarms(USUAL, 2000, USUAL.lowered(0.1), 300, seed=2, settings=SETTINGS)
    first = next(one for one in came if one.kind == ACCEPTANCE)
    assert (first.request_type, first.position) == (EVERY_TYPE, None)


def test_status_says_what_is_learned_and_what_is_known() -> None:
    watch = DriftWatch(DriftSettings(learn=20))
    for _ in range(10):
        watch.add(Guesses("code", "draft", (10, 6), (6, 3)))
    first = watch.status()[0]
    assert (first["type"], first["position"], first["learned"]) == ("code", 1, 10)
    assert first["usual"] == pytest.approx(0.6)
    assert first["evidence"] is None
    for _ in range(20):
        watch.add(Guesses("code", "draft", (10, 6), (6, 3)))
    assert all(0 <= row["evidence"] < 1 for row in watch.status())


def test_late_positions_are_taken_together_and_nothing_tried_is_nothing_learned() -> None:
    watch = DriftWatch()
    watch.add(Guesses("code", "draft", (12, 10, 9, 8, 7, 6, 5, 4, 2), (10, 9, 8, 7, 6, 5, 4, 2, 0)))
    watch.add(Guesses("code", "draft", (0, 0), (0, 0)))
    learned = {row["position"]: row["learned"] for row in watch.status()}
    assert learned == dict.fromkeys(range(1, 9), 1)
    assert watch.status()[7]["usual"] == pytest.approx(2 / 6)
    assert watch.requests == 2


def test_kinds_without_end_do_not_fill_the_memory() -> None:
    watch = DriftWatch()
    for number in range(500):
        watch.add(Guesses(f"type-{number}", "draft", (1,), (1,)))
    assert len(watch.status()) <= 64 * 8


@pytest.mark.parametrize("changes", [{"learn": 3}, {"requests_between_false_alarms": "many"}])
def test_settings_out_of_range_are_refused(changes: dict[str, int]) -> None:
    with pytest.raises(InvalidValueError, match=next(iter(changes))):
        DriftSettings(**changes)


class PeekingBets(Bets):
    """A broken twin that puts its money on what it has just seen."""

    def add(self, z: float, weight: float, worst: float) -> None:
        super().add(abs(z), weight, worst)


@pytest.mark.parametrize(("kind", "holds"), [(Bets, True), (PeekingBets, False)])
def test_false_alarms_are_as_rare_as_promised(kind: type[Bets], holds: bool) -> None:
    """Of 400 streams of 200 requests, at most 200 / 2000 may reach 2000 while nothing changes.

    Requests differ among each other, which single guesses would be misled by. A twin that is
    wrong in every stream fails for certain; one that doubles the rate with a power of .99.
    """
    random = np.random.default_rng(11)
    reached = 0
    for _ in range(400):
        bets = kind()
        own = random.beta(6, 3, 200)  # mean 2/3
        right = random.binomial(20, own) / 20
        for share in right:
            bets.add(2 / 3 - share, 1.0, 1 / 3)
            if bets.level >= 2000:
                reached += 1
                break
    assert (reached / 400 <= 0.1) is holds


def test_bets_stay_above_nothing() -> None:
    bets = Bets()
    for _ in range(1000):
        bets.add(-0.5, 1.0, 0.5)
    assert min(bets.statistics) > 0
    assert bets.span == 0


def test_a_baseline_is_a_weighted_mean_with_an_error() -> None:
    baseline = Baseline()
    assert (baseline.mean, baseline.error) == (0.0, 1.0)
    for share in (0.5, 0.7, 0.9):
        baseline.add(share, 1.0)
    assert baseline.mean == pytest.approx(0.7)
    # Standard deviation .2 over the root of three; no tolerance but that of floats.
    assert baseline.error == pytest.approx(0.2 / 3**0.5)


def test_the_mix_test_meets_types_that_were_not_there() -> None:
    mix = MixTest(learn=50)
    for number in range(50):
        mix.add("code" if number % 2 else "chat")
    assert mix.level == 0
    for _ in range(30):
        mix.add("tools")
    assert mix.level > 10_000
    assert mix.changes()[0][0] == "tools"
    mix.relearn()
    assert (mix.level, mix.changes()) == (0.0, [])
