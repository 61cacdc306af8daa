"""Policies, arrivals, and the order in which they run."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from outpace.bench.arrival import order, parse_arrival, parse_arrivals, rounds
from outpace.bench.local import drafters_to_load
from outpace.bench.policy import parse_policies, parse_policy
from outpace.bench.workload import Entry
from outpace.config import (
    AUTO_DRAFTER,
    FirstOfConfig,
    ModelDraftConfig,
    NgramConfig,
    NoDrafter,
    PredictionConfig,
)
from outpace.errors import InvalidValueError

ENTRIES = [Entry(f"e{i}", "qa", (("user", str(i)),)) for i in range(5)]


@pytest.mark.parametrize(
    ("text", "name", "k"),
    [
        ("ngram:k=4", "ngram:k=4", 4),
        ("ngram", "ngram:k=auto", "auto"),
        ("auto:k=auto", "auto:k=auto", "auto"),
        ("model:/a:b/c:k=3", "model:/a:b/c:k=3", 3),
        ("ngram+model:x:k=0", "ngram+model:x:k=0", 0),
    ],
)
def test_policies_are_read(text: str, name: str, k: int | str) -> None:
    policy = parse_policy(text)
    assert (policy.name, policy.k, policy.plain) == (name, k, False)


def test_off_is_plain() -> None:
    policy = parse_policy("off")
    assert (policy.plain, policy.drafter, policy.k) == (True, NoDrafter(), 0)


def test_the_path_of_a_draft_model_may_hold_anything() -> None:
    assert parse_policy("model:/a:b/c=d:k=3").drafter == ModelDraftConfig("/a:b/c=d")


@pytest.mark.parametrize("text", ["off:k=4", "none", "", ":k=3", "ngram:k=x", "ngram:k=65", "gram"])
def test_what_is_no_policy_is_refused(text: str) -> None:
    with pytest.raises(InvalidValueError):
        parse_policy(text)


def test_plain_decoding_is_always_there_and_nothing_twice() -> None:
    assert [p.name for p in parse_policies(["ngram:k=2"])] == ["off", "ngram:k=2"]
    assert [p.name for p in parse_policies(["ngram:k=2", "off"])] == ["ngram:k=2", "off"]
    with pytest.raises(InvalidValueError, match="there twice"):
        parse_policies(["ngram", "ngram:k=auto"])


def test_only_drafters_with_something_of_their_own_need_engines() -> None:
    plain = parse_policies(["ngram:k=2", "prediction:k=3", "auto:k=2"])
    assert drafters_to_load(plain) == [NoDrafter()]
    routed = parse_policies(["ngram:k=2", "auto", "model:a"])
    assert drafters_to_load(routed) == [AUTO_DRAFTER, ModelDraftConfig("a")]
    several = parse_policies(["model:a:k=2", "model:a:k=auto", "model:b", "ngram+model:a", "ngram"])
    assert drafters_to_load(several) == [
        ModelDraftConfig("a"),
        ModelDraftConfig("b"),
        FirstOfConfig((NgramConfig(), ModelDraftConfig("a"))),
    ]


def test_a_prediction_with_a_text_does_not_hide_the_one_without(tmp_path: Path) -> None:
    (tmp_path / "expected.txt").write_text("hello", "utf-8")
    policies = parse_policies(["prediction", f"prediction:{tmp_path}/expected.txt"])
    assert drafters_to_load(policies) == [NoDrafter(), PredictionConfig("hello")]


@pytest.mark.parametrize(
    "text", ["two", "at-once", "at-once:0", "at-once:x", "at-once:1.5", "poisson:0", "poisson:nan"]
)
def test_what_is_no_arrival_is_refused(text: str) -> None:
    with pytest.raises(InvalidValueError):
        parse_arrival(text)


def test_arrivals_are_read() -> None:
    found = parse_arrivals(["one", "at-once:1", "at-once:4", "poisson:0.50"])
    assert [(a.name, a.at_once) for a in found] == [
        ("one", 1),
        ("at-once:4", 4),
        ("poisson:0.5", None),
    ]


def test_groups_at_once_are_all_of_one_size() -> None:
    groups = parse_arrival("at-once:3").groups(ENTRIES, 0)
    assert [[a.entry.id for a in group] for group in groups] == [
        ["e0", "e1", "e2"],
        ["e3", "e4", "e0"],
    ]
    [more] = parse_arrival("at-once:7").groups(ENTRIES, 0)[:1]
    assert len(more) == 7


def test_poisson_times_depend_on_the_seed_alone_and_have_the_rate() -> None:
    arrival = parse_arrival("poisson:4")
    [one], [same], [other] = (arrival.groups(ENTRIES * 400, seed) for seed in (1, 1, 2))
    assert one == same
    assert one != other
    times = [asked.due for asked in one]
    assert times[0] == 0
    assert all(a < b for a, b in pairwise(times))
    # 2000 waits have a mean of 1/4 with a standard error of 1/4/sqrt(2000): four of them allowed.
    assert times[-1] / len(times) == pytest.approx(0.25, abs=4 * 0.25 / 2000**0.5)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_every_policy_stands_equally_often_at_every_place_and_in_both_directions(
    count: int,
) -> None:
    orders = [order(count, turn) for turn in range(2 * count)]
    for place in range(count):
        assert Counter(one[place] for one in orders) == dict.fromkeys(range(count), 2)
    followers = Counter(pair for one in orders for pair in pairwise(one))
    assert all(followers[a, b] == followers[b, a] for a, b in followers)


def test_rounds_measure_everything_once_before_anything_twice() -> None:
    arrivals = parse_arrivals(["one", "at-once:5"])
    plan = list(rounds(ENTRIES, arrivals, 2, repeats=2, seed=0))
    assert len(plan) == 2 * (5 * 2 + 1 * 2)
    assert [one.repeat for one in plan] == sorted(one.repeat for one in plan)
    assert {(one.arrival.name, one.policy) for one in plan[:12]} == {
        ("one", 0),
        ("one", 1),
        ("at-once:5", 0),
        ("at-once:5", 1),
    }
    for first, second in zip(plan[::2], plan[1::2], strict=True):
        assert (first.asked, first.arrival) == (second.asked, second.arrival)
        assert {first.policy, second.policy} == {0, 1}
