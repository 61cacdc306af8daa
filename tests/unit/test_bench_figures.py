"""Figures from chosen times: each is checked against a value computed by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from outpace.bench.figures import figures, prompt_speedups, repeat_spread, tokens_per_second
from outpace.bench.intervals import Times, time_ratio
from outpace.bench.predict import predicted_speedup
from outpace.bench.record import Record, digest, first_difference

from bench_records import record, run, speculation

COSTS = {1: 1.0, 2: 1.0, 3: 1.2, 4: 1.2, 6: 1.5}


def rows(records: list[Record]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["policy"], row["task"]): row for row in figures(records, COSTS)}


def test_a_ratio_takes_medians_of_repeats_and_sums_of_prompts() -> None:
    before = {"a": [1.0, 9.0, 2.0], "b": [4.0], "c": [100.0]}
    after = {"a": [1.0, 1.0, 1.0], "b": [2.0], "d": [100.0]}
    ratio = time_ratio(before, after)
    assert ratio is not None
    assert (ratio.value, ratio.prompts) == (2.0, 2)


def test_nothing_in_common_gives_no_ratio_and_one_prompt_no_interval() -> None:
    assert time_ratio({"a": [1.0]}, {"b": [1.0]}) is None
    ratio = time_ratio({"a": [3.0]}, {"a": [2.0]})
    assert ratio is not None
    assert (ratio.value, ratio.low, ratio.high) == (1.5, None, None)


def test_the_interval_covers_the_truth_as_often_as_it_says_and_shrinks_with_prompts() -> None:
    """200 runs of 40 prompts whose ratios scatter around 1.5.

    A 95 % interval misses 10 of 200 on average; a percentile bootstrap of 40 is a little too
    narrow, so 25 misses are allowed. With a true coverage of 95 % more than 25 happen once in
    100 000 cases; an interval of 80 % coverage would be caught with a probability of 99.7 %.
    """
    generator = np.random.default_rng(5)
    missed, widths, widths_of_ten = 0, [], []
    for _ in range(200):
        seconds = generator.uniform(1, 2, 40)
        first, second = generator.normal(1, 0.1, (2, 40))
        before = {i: [1.5 * seconds[i] * first[i]] for i in range(40)}
        after = {i: [seconds[i] * second[i]] for i in range(40)}
        low, high = interval(before, after)
        missed += not low <= 1.5 <= high
        widths.append(high - low)
        low, high = interval({i: before[i] for i in range(10)}, after)
        widths_of_ten.append(high - low)
    assert missed <= 25
    assert np.mean(widths_of_ten) > 1.5 * np.mean(widths)


def interval(before: Times, after: Times) -> tuple[float, float]:
    ratio = time_ratio(before, after)
    assert ratio is not None
    assert ratio.low is not None
    assert ratio.high is not None
    return ratio.low, ratio.high


def test_a_prediction_by_hand() -> None:
    """The prompt's step, one without a draft, four with two tokens; a = 6/8."""
    told = speculation(target_steps=6, draft_seconds=0.5)
    tokens = 4 * (1 + 0.75 + 0.75**2) + 1
    seconds = 4 * 1.2 + 1 * 1.0 + 0.5
    assert predicted_speedup([told], COSTS, 1) == pytest.approx(tokens / seconds)


def test_a_prediction_for_two_at_once_counts_the_rows_of_both() -> None:
    told = speculation(target_steps=6, draft_seconds=0.0)
    tokens = 4 * (1 + 0.75 + 0.75**2) + 1
    assert predicted_speedup([told], COSTS, 2) == pytest.approx(tokens / (4 * 1.5 + 1))


def test_drafting_before_the_first_token_is_no_part_of_the_prediction() -> None:
    """The first token came 0.3 s later than with plain decoding: 0.3 of 0.5 s were before it."""
    late = record("qa-1", "model:x:k=2", first_token_seconds=0.5,
                  speculation=speculation(target_steps=6, draft_seconds=0.5))  # fmt: skip
    row = rows([record("qa-1", first_token_seconds=0.2), late])["model:x:k=2", "qa"]
    after = speculation(target_steps=6, draft_seconds=0.2)
    assert row["predicted_decode_speedup"] == pytest.approx(predicted_speedup([after], COSTS, 1))
    assert row["draft_seconds"] == 0.5


@pytest.mark.parametrize(
    ("told", "costs"),
    [
        (speculation(accepted=0, rejections=0), COSTS),
        (speculation(draft_seconds=None), COSTS),
        (speculation(), {}),
    ],
)
def test_no_prediction_without_what_it_needs(told: Any, costs: dict[int, float]) -> None:
    assert predicted_speedup([told], costs, 1) is None


def test_speedups_by_task_and_over_all() -> None:
    found = rows(run(2.0))
    assert list(found) == [
        ("off", "chat"),
        ("ngram:k=4", "chat"),
        ("off", "code"),
        ("ngram:k=4", "code"),
        ("off", "all"),
        ("ngram:k=4", "all"),
    ]
    for task in ("chat", "code", "all"):
        row = found["ngram:k=4", task]
        assert row["speedup"]["value"] == pytest.approx(2)
        assert row["decode_speedup"]["value"] == pytest.approx(2)
        assert found["off", task]["speedup"] is None
    assert found["ngram:k=4", "all"]["prompts"] == 6
    assert found["ngram:k=4", "all"]["requests"] == 18


def test_the_figures_of_acceptance() -> None:
    row = rows([record("qa-1"), record("qa-1", "ngram:k=2", 0.5)])["ngram:k=2", "qa"]
    assert row["alpha"] == 6 / 8
    assert row["alpha_low"] < 6 / 8 < row["alpha_high"]
    assert row["draft_acceptance_rate"] == 6 / 8
    assert row["acceptance_length"] == 11 / 5
    assert row["accepted_share_per_position"] == [1.0, 0.5]
    assert (row["draft_seconds"], row["verify_seconds"], row["rest_seconds"]) == (0.1, 0.7, 0.2)


def test_other_tokens_are_counted_and_left_out_of_ratios() -> None:
    records = [
        record("qa-1", "off", 4.0),
        record("qa-2", "off", 4.0),
        record("qa-1", "ngram:k=4", 2.0),
        record("qa-2", "ngram:k=4", 0.1, identical=False),
    ]
    row = rows(records)["ngram:k=4", "all"]
    assert row["requests_with_other_tokens"] == 1
    assert row["speedup"]["value"] == 2
    assert row["speedup"]["prompts"] == 1
    assert prompt_speedups(records)["one", "ngram:k=4"] == {"qa-1": 2.0}


def test_without_a_plain_run_there_is_no_ratio() -> None:
    row = rows([record("qa-1", "server", 1.0, identical=None, tokens=None)])["server", "all"]
    assert row["speedup"] is None
    assert row["tokens"] is None
    assert row["tokens_per_second"] is None
    assert row["seconds_per_token_median"] is None


def test_an_answer_of_one_token_has_no_time_after_the_first() -> None:
    records = [record("qa-1", tokens=1), record("qa-1", "ngram:k=4", 0.5, tokens=1)]
    row = rows(records)["ngram:k=4", "all"]
    assert row["decode_speedup"] is None
    assert row["speedup"]["value"] == 2


def test_throughput_counts_the_time_in_which_anything_ran() -> None:
    together = [
        record("qa-1", "off", 2.0, arrival="at-once:2"),
        record("qa-2", "off", 4.0, arrival="at-once:2"),
        record("qa-3", "off", 1.0, arrival="at-once:2", group=1, due_seconds=0.5),
    ]
    assert tokens_per_second(together) == pytest.approx(33 / 5.5)


def test_the_spread_of_repeats() -> None:
    assert repeat_spread(run(2.0, repeats=1)) is None
    drifting = [r for r in run(2.0, repeats=3, drift=0.1) if r.policy == "off"]
    assert repeat_spread(drifting) == pytest.approx(1.21)
    # What the last repeat did not reach counts in none.
    assert repeat_spread(drifting[:-2]) == pytest.approx(1.21)


def test_records_survive_their_plain_form() -> None:
    for one in run(2.0, prompts=1, repeats=1):
        assert Record.from_dict(one.as_dict()) == one
    with pytest.raises(ValueError, match="not whole"):
        Record.from_dict({"prompt": "x"})


def test_where_answers_part() -> None:
    assert first_difference((1, 2, 3), (1, 2, 3)) is None
    assert first_difference((1, 2, 3), (1, 5, 3)) == 1
    assert first_difference((1, 2), (1, 2, 3)) == 2
    assert first_difference("abc", "abd") == 2
    assert digest((1, 23)) != digest((12, 3))
