"""Figures and findings of made-up rows; every number can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outpace.control.drift import Alarm
from outpace.health.advice import advice
from outpace.health.calibration import calibration
from outpace.health.findings import NOTE, WARNING, find, fingerprint_mismatch
from outpace.health.groups import by_drafter, by_type, by_type_and_drafter, plain_factor, whole
from outpace.health.history import acceptance_over_time, find_drift, guesses_of
from outpace.health.intervals import quantile_of, share
from outpace.health.load import by_load, level_of
from outpace.record.row import DraftCounts, Row
from outpace.spec.statistics import wilson_interval

from record_rows import PLAIN, counts, row, undrafted


def names(rows: list[Row], alarms: tuple[Alarm, ...] = ()) -> dict[str, str]:
    return {one.name: one.severity for one in find(rows, alarms)}


def test_shares_of_independent_guesses_have_wilsons_interval() -> None:
    seen = share([(3, 5), (4, 5)])
    assert (seen.right, seen.tried, seen.value) == (7, 10, 0.7)
    assert (seen.low, seen.high) == pytest.approx(wilson_interval(7, 10))
    nothing = share([(0, 0)])
    assert (nothing.value, nothing.low, nothing.high) == (None, 0.0, 1.0)
    assert not nothing.below(seen)


def test_shares_of_alike_guesses_have_wider_intervals() -> None:
    """Requests that are all right or all wrong say as much as one guess each."""
    alike = share([(10, 10), (0, 10)] * 10)
    assert (alike.low, alike.high) == pytest.approx(wilson_interval(10, 20), abs=0.01)
    equal = share([(5, 10)] * 20)
    assert (equal.low, equal.high) == pytest.approx(wilson_interval(100, 200))


def test_quantiles_lie_between_neighbours() -> None:
    assert quantile_of([], 0.5) is None
    assert quantile_of([3.0], 0.9) == 3.0
    assert quantile_of([1.0, 2.0, 4.0], 0.75) == 3.0


def test_a_request_with_two_drafters_is_one() -> None:
    two = replace(row(0), drafts=(counts(), counts(drafter="suffix")))
    [kind] = by_type([two, row(1)])
    assert (kind.requests, len(kind.parts), kind.as_plain()["requests"]) == (2, 3, 2)
    assert "2 requests came" in advice([two, row(1)])[0]


def test_groups_add_up() -> None:
    rows = [row(0), row(1), row(2, request_type="chat"), row(3, undrafted(), speedup=1.0)]
    groups = {(g.request_type, g.drafter): g for g in by_type_and_drafter(rows)}
    assert list(groups) == [("code", "ngram"), ("code", "none"), ("chat", "ngram")]
    code = groups["code", "ngram"].as_plain()
    # Each: 10 steps, 8 drafts of 2; 6 and 4 accepted, 2 and 2 rejected.
    assert (code["requests"], code["target_steps"], code["tokens"]) == (2, 20, 40)
    assert (code["drafted"], code["accepted"], code["rejections"]) == (32, 20, 8)
    assert code["alpha"]["value"] == 20 / 28
    assert code["draft_acceptance_rate"] == 20 / 32
    assert code["acceptance_length"] == 2.0
    assert [one["value"] for one in code["positions"]] == [12 / 16, 8 / 12]
    assert code["speedup"] == pytest.approx(2.0)
    assert code["plain_seconds"] == pytest.approx(40 * PLAIN)
    assert code["reasons"] == {"ngram had nothing to propose": 4}
    plain = groups["code", "none"].as_plain()
    assert (plain["alpha"]["value"], plain["speedup"]) == (None, None)
    assert (plain["plain_requests"], plain["plain_over_table"]) == (1, pytest.approx(1.0))
    assert [(g.request_type, len(g.parts)) for g in by_type(rows)] == [("code", 3), ("chat", 1)]
    assert [(g.drafter, len(g.parts)) for g in by_drafter(rows)] == [("ngram", 3), ("none", 1)]
    assert whole(rows).as_plain()["tokens"] == 80
    assert whole([]).as_plain()["speedup"] is None


def test_a_fixed_k_is_part_of_the_drafters_name() -> None:
    rows = [row(0), row(1, features={"num_speculative_tokens": 4})]
    assert [g.drafter for g in by_drafter(rows)] == ["ngram", "ngram:k=4"]


def test_the_time_of_a_request_with_two_drafters_counts_once() -> None:
    both = (counts(drafter="ngram"), counts(drafter="model"))
    rows = [row(0, drafts=both)]
    assert [len(g.speedups) for g in by_drafter(rows)] == [1, 0]
    assert [g.drafter for g in by_drafter(rows)] == ["model", "ngram"]
    assert len(whole(rows).speedups) == 1


def test_slower_requests_are_counted() -> None:
    rows = [row(i, speedup=speed) for i, speed in enumerate([0.5, 0.97, 1.0, 2.0])]
    figures = whole(rows).as_plain()
    assert (figures["slower_share"], figures["slower_by_5_percent_share"]) == (0.5, 0.25)
    assert figures["speedup_p50"] == pytest.approx(0.985)


@pytest.mark.parametrize(
    "draft",
    [
        undrafted(),
        undrafted("ngram", reason="disabled by the request"),
        replace(undrafted("ngram"), asked=40),
        replace(undrafted("model"), asked=40),
    ],
)
def test_a_request_that_drafted_nothing_is_plain_and_never_slower(draft: DraftCounts) -> None:
    """However long it took beside the cost table, alone and among others."""
    plain = [row(i, draft, speedup=0.5) for i in range(30)]
    alone = whole(plain).as_plain()
    assert (alone["speedup"], alone["speedup_requests"], alone["slower_share"]) == (None, 0, None)
    assert (alone["slower_by_5_percent_share"], alone["plain_requests"]) == (None, 30)
    assert not {"time-lost", "slow-tail"} & set(names(plain))
    assert "Nothing was drafted: all of it is plain decoding" in advice(plain)[0]
    beside = whole([*plain, *(row(i, speedup=2.0) for i in range(3)), row(9, speedup=0.5)])
    figures = beside.as_plain()
    assert (figures["speedup_requests"], figures["slower_share"]) == (4, 0.25)
    assert figures["speedup_p50"] == pytest.approx(2.0)
    assert figures["speedup"] == pytest.approx(4 / (3 / 2 + 1 / 0.5))


def test_only_requests_for_which_nobody_was_asked_tell_of_the_table() -> None:
    asked = [row(i, replace(undrafted("model"), asked=40), speedup=0.5) for i in range(20)]
    assert whole(asked).plain_over_table is None
    assert plain_factor(asked) == 1.0
    assert whole([*asked, row(20, undrafted(), speedup=0.8)]).plain_over_table == pytest.approx(
        1.25
    )


def test_aborted_requests_are_not_slower() -> None:
    """The same rows, ended by themselves, are."""
    slow = [row(i, speedup=0.5) for i in range(30)]
    assert whole(slow).as_plain()["slower_share"] == 1.0
    assert names(slow) == {"time-lost": WARNING}
    left = [replace(one, finish_reason="abort") for one in slow]
    assert whole(left).speedups == []
    assert whole(left).as_plain()["slower_share"] is None
    assert find(left) == []
    assert "no request that drafted came to its end" in advice(left)[0]
    gone = [row(i, undrafted(), speedup=0.5, finish_reason="abort") for i in range(30)]
    assert plain_factor(gone) == 1.0


def test_a_request_that_drafted_at_first_is_not_plain() -> None:
    both = (counts(), undrafted())
    [figures] = [group.as_plain() for group in by_type([row(0, drafts=both, speedup=0.8)])]
    assert (figures["plain_requests"], figures["slower_share"]) == (0, 1.0)


@pytest.mark.parametrize(
    ("load", "level"),
    [(0.2, (1, 1)), (1.4, (1, 1)), (2, (2, 2)), (3, (3, 4)), (4.4, (3, 4)), (5, (5, 8)),
     (33, (33, 64))],
)  # fmt: skip
def test_loads_have_levels_that_double(load: float, level: tuple[int, int]) -> None:
    assert level_of(load) == level


def test_requests_are_put_by_their_load() -> None:
    rows = [row(0, load=1), row(1, load=4), row(2, load=3), row(3, DraftCounts("none", 0, 0))]
    assert [(level, len(g.parts)) for level, g in by_load(rows)] == [((1, 1), 1), ((3, 4), 2)]


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    rows = [row(i, load=1 + i % 4) for i in range(60)]
    assert find(rows) == []
    assert find([]) == []


def test_a_drafter_that_was_asked_and_never_drafted() -> None:
    idle = undrafted("model", 30, "the draft model proposed nothing")
    rows = [row(i, replace(idle, asked=120), speedup=1.0) for i in range(10)]
    [finding] = find(rows)
    assert (finding.name, finding.severity, finding.subject) == ("never-engages", WARNING, "model")
    assert "300 steps of 10 requests" in finding.text
    assert "proposed nothing (300 steps)" in finding.text
    never_asked = [row(i, idle, speedup=1.0) for i in range(10)]
    assert names(never_asked) == {"never-engages": NOTE}
    assert find([row(i, undrafted(), speedup=1.0) for i in range(50)]) == []  # plain on purpose
    assert find(rows[:3]) == []  # too few


def test_an_acceptance_length_of_exactly_one() -> None:
    wrong = counts(accepted_at=(0, 0), rejected_at=(8, 0))
    rows = [row(i, wrong, speedup=0.7) for i in range(20)]
    found = find(rows)
    assert {one.name for one in found} == {"nothing-accepted", "time-lost"}
    assert "exactly 1.00" in found[0].text
    once = [*rows, row(20)]
    assert "nothing-accepted" not in names(once)


def test_acceptance_that_falls_off_with_position() -> None:
    steep = counts(accepted_at=(90, 20), rejected_at=(10, 70), steps=110)
    [finding] = find([row(i, steep) for i in range(12)])
    assert (finding.name, finding.evidence["position"]) == ("falls-with-position", 2)
    assert "num_speculative_tokens = 1" in finding.advice


def test_acceptance_that_falls_with_load() -> None:
    good = counts(accepted_at=(80,), rejected_at=(20,), steps=100)
    bad = counts(accepted_at=(50,), rejected_at=(50,), steps=100)
    rows = [row(i, good, load=1) for i in range(10)]
    assert find([*rows, *(row(i, good, load=8) for i in range(10))]) == []
    [finding] = find([*rows, *(row(i, bad, load=8) for i in range(10))])
    assert finding.name == "falls-with-load"
    assert "80 %" in finding.text
    assert "5 to 8 requests" in finding.text
    # Other types under load are not the same thing.
    assert find([*rows, *(row(i, bad, load=8, request_type="chat") for i in range(10))]) == []


def test_a_context_that_is_too_short_for_the_draft() -> None:
    reason = "the draft model's context of 2048 tokens is exceeded"
    rows = [row(i, counts(drafter="model", reasons={reason: 3})) for i in range(10)]
    assert names(rows) == {"draft-context-exceeded": WARNING}


def test_time_that_is_lost_and_a_tail_that_is_slow() -> None:
    slow = [row(i, speedup=0.9, request_type=kind) for kind in ("code", "chat") for i in range(12)]
    [finding] = find(slow)
    assert (finding.name, finding.severity, finding.subject) == ("time-lost", WARNING, "ngram")
    assert "chat (2.7 s instead of 2.4 s), code (2.7 s instead of 2.4 s)" in finding.text
    assert set(finding.evidence) == {"code", "chat"}
    mixed = [row(i, speedup=3.0 if i % 2 else 0.8) for i in range(40)]
    [tail] = find(mixed)
    assert (tail.name, tail.severity) == ("slow-tail", NOTE)
    assert "20 of 40 of code" in tail.text


def test_plain_requests_correct_the_cost_table() -> None:
    """Everything took 1.25 times as long: the machine was busy, and drafts lose nothing."""
    plain = [row(i, undrafted(), speedup=0.8) for i in range(12)]
    drafted = [row(i, speedup=0.9) for i in range(12)]
    assert plain_factor([*plain, *drafted]) == pytest.approx(1.25)
    assert names([*plain, *drafted]) == {"cost-table-off": NOTE}
    assert plain_factor(plain[:9]) == 1.0
    # By the table 2.4 s in 2.67 s; plain decoding would have taken 3 s here.
    assert "1.12 times as fast" in advice([*plain, *drafted])[0]
    really = [row(i, speedup=0.7) for i in range(12)]
    assert names([*plain, *really]) == {"time-lost": WARNING, "cost-table-off": NOTE}


def test_preemptions() -> None:
    rows = [row(i, preemptions=2 * (i < 3)) for i in range(20)]
    [finding] = find(rows)
    assert (finding.name, finding.evidence) == ("preempted", {"requests": 3, "of": 20, "times": 6})


def test_alarms_become_findings_once_each() -> None:
    drift = Alarm("acceptance", 900, "code", "model", None, 0.8, 0.7, 40, 1.5)
    mix = Alarm("mix", 950, "chat", "", None, 0.1, 0.5, 0, 2.0)
    found = find([], (drift, replace(drift, at=990), mix))
    assert [(one.name, one.severity) for one in found] == [("drift", WARNING), ("mix-shift", NOTE)]
    assert "request 990" in found[0].text


def test_a_fingerprint_that_differs_is_named() -> None:
    finding = fingerprint_mismatch("eagle", "a" * 64, "b" * 64)
    assert f"{'a' * 16}, this one has {'b' * 16}" in finding.text
    assert finding.as_plain()["name"] == "fingerprint-mismatch"


def test_advice_is_in_sentences() -> None:
    assert advice([]) == ["The record is empty: nothing can be said yet."]
    fast = [row(i, counts(drafter="model"), speedup=2.5) for i in range(10)]
    slow = [row(i, speedup=1.5) for i in range(10)]
    lossy = [row(i, speedup=0.9, request_type="chat") for i in range(10)]
    text = " ".join(advice([*fast, *slow, *lossy]))
    assert text.startswith("30 requests came out at 2.00 tokens a target step")
    assert "10 of 30 were slower" in text
    assert "For code, model is best at 2.50 times plain decoding, before ngram at 1.50." in text
    assert "For chat, nothing pays here" in text
    untimed = replace(row(), times=replace(row().times, plain_seconds=None))
    assert "no cost table" in advice([untimed])[0]


def test_forecasts_use_earlier_requests_alone() -> None:
    first, second = counts((8,), (2,)), counts((0,), (10,))
    found = calibration([row(0, first), row(1, second)])
    # First .5 from nothing; then 8 of 10 on the drafter's (8 + 2) / (10 + 4), worth 20 guesses.
    later = (8 + 20 * (10 / 14)) / 30
    assert found.brier == pytest.approx((10 * 0.25 + 10 * later**2) / 20)
    assert found.base_brier == pytest.approx(0.4 * 0.6)
    assert [point[0] for point in found.curve] == pytest.approx([0.5, later])
    assert found.cells == ()  # too few guesses
    assert calibration([]).brier is None


def test_a_steady_record_is_forecast_within_its_intervals() -> None:
    rows = [row(i, counts((80, 60), (20, 20), steps=100)) for i in range(20)]
    found = calibration(rows)
    assert [key for key, *_ in found.cells] == [("code", "ngram", 1), ("code", "ngram", 2)]
    assert found.held == 2
    assert found.as_plain()["cells_within_interval"] == 2


def test_a_record_is_searched_for_drift_in_its_order() -> None:
    good = counts((26, 20), (4, 6), steps=30)
    bad = counts((18, 10), (12, 8), steps=30)
    rows = [row(i, good) for i in range(300)] + [row(i, bad) for i in range(100)]
    alarms = find_drift(rows).alarms
    assert 300 < alarms[0].at <= 340
    assert find_drift(rows[:300]).alarms == ()
    assert guesses_of(row(0, undrafted())) == []
    line = acceptance_over_time(rows)["code"]
    assert line[0][1].value == pytest.approx(46 / 56)
    assert line[-1][0] == 400
    assert line[-1][1].value == pytest.approx(28 / 48)


def test_every_part_of_a_request_is_watched_but_its_type_counted_once() -> None:
    rows = [row(i, drafts=(counts(drafter="a"), counts(drafter="b"))) for i in range(5)]
    status = find_drift(rows).status
    assert {(one["drafter"], one["position"], one["learned"]) for one in status} == {
        ("a", 1, 5), ("a", 2, 5), ("b", 1, 5), ("b", 2, 5)
    }  # fmt: skip
