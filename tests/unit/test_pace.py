from __future__ import annotations

from collections import Counter

import pytest

from outpace.spec.pace import Pace, bucket, middle, quantile


@pytest.mark.parametrize("seconds", [1e-9, 3e-4, 0.0123, 1.0, 37.5])
def test_a_time_is_within_half_a_bucket_of_its_middle(seconds: float) -> None:
    # The middle is that of the logarithms: a bucket is 2^(1/8) wide.
    ratio = middle(bucket(seconds)) / seconds
    assert 2 ** (-1 / 16) - 1e-9 <= ratio <= 2 ** (1 / 16) + 1e-9


def test_no_time_at_all_has_a_bucket_too() -> None:
    assert bucket(0.0) == bucket(1e-9)


def test_quantiles_count_from_the_small_end() -> None:
    times = Counter({1: 90, 5: 9, 9: 1})
    assert quantile(times, 0.5) == middle(1)
    assert quantile(times, 0.9) == middle(1)
    assert quantile(times, 0.91) == middle(5)
    assert quantile(times, 1.0) == middle(9)
    assert quantile({}, 0.5) is None


def test_a_step_without_tokens_is_no_pace() -> None:
    pace = Pace()
    pace.add(1.0, 0, 1, clean=False)
    assert pace == Pace()


def test_a_step_counts_once_and_its_tokens_share_its_time() -> None:
    pace = Pace()
    pace.add(0.4, 4, sharing=3, clean=True)
    pace.add(0.4, 1, sharing=2, clean=False)
    assert pace.steps == {bucket(0.4): 2}
    assert pace.tokens == {bucket(0.1): 4, bucket(0.4): 1}
    assert (pace.clean_seconds, pace.clean_steps, pace.clean_tokens, pace.sharing) == (0.4, 1, 4, 3)
