"""The cost table: between its points, beyond them, corrected, kept as plain values."""

from __future__ import annotations

import json
import math

import pytest

from outpace.control.cost import AttentionCost, CostTable
from outpace.control.draft_cost import DraftCost, Wanted
from outpace.control.line import OnlineLine


def test_cost_between_beyond_and_corrected() -> None:
    cost = CostTable({1: 1.0, 5: 2.0, 10: 4.0})
    assert [cost(rows) for rows in (1, 3, 5, 10, 20)] == pytest.approx([1.0, 1.5, 2.0, 4.0, 8.0])
    for _ in range(200):
        cost.correct(5, 3.0)
    assert cost(5) == pytest.approx(3.0, rel=0.02)
    before = cost(10)
    cost.correct(10, 1e9)  # an interruption, not a measurement
    assert cost(10) <= before * 1.2


def test_a_warm_up_in_a_bad_moment_is_forgotten() -> None:
    """All points were ten times too dear; only steps of one row are seen afterwards."""
    cost = CostTable({1: 10.0, 8: 12.0, 16: 15.0})
    for _ in range(200):
        cost.correct(1, 1.0)
    assert cost(16) < 2.5


def test_a_single_point_moves_only_so_far_against_the_others() -> None:
    cost = CostTable({1: 1.0, 4: 1.1, 8: 1.2})
    for _ in range(2000):
        cost.correct(1, 1.0)
        cost.correct(4, 1.3)
    assert cost(4) / cost(1) == pytest.approx(1.3, rel=0.05)
    for _ in range(2000):
        cost.correct(1, 1.0)
        cost.correct(8, 100.0)
    assert cost(8) / cost(1) <= 1.2 * 2.0 * 2.0 + 0.01


def test_rows_are_never_dearer_together_than_one_by_one() -> None:
    assert CostTable({1: 1.0, 4: 100.0})(4) == 4.0


def test_more_rows_never_cost_less() -> None:
    cost = CostTable({1: 1.3, 2: 1.0, 4: 1.1})
    assert cost(1) <= cost(2) <= cost(3) <= cost(4)


def test_a_cost_table_needs_a_point() -> None:
    with pytest.raises(ValueError, match="at least one"):
        CostTable({})


def test_context_costs_by_keys_and_by_pairs_of_rows_and_keys() -> None:
    attention = AttentionCost.fitted(512, few=(1, 1512, 0.003), many=(5, 1512, 0.011))
    assert attention.per_pair == pytest.approx(2e-6)
    assert attention.per_key == pytest.approx(1e-6)
    cost = CostTable({1: 1.0, 8: 1.5}, attention)
    assert cost(1, 512) == cost(1) == 1.0
    assert cost(1, 1512) == pytest.approx(1.003)
    assert cost(5, 1512) == pytest.approx(cost(5) + 0.011)


def test_noise_in_long_contexts_does_not_make_prices_negative() -> None:
    attention = AttentionCost.fitted(512, few=(1, 1024, -0.1), many=(4, 1024, -0.2))
    assert (attention.per_key, attention.per_pair) == (0.0, 0.0)


def test_a_table_survives_json() -> None:
    cost = CostTable({1: 0.5, 2: 0.625}, AttentionCost(512, 1e-6, 1e-7), reading=0.125)
    again = CostTable.from_plain(json.loads(json.dumps(cost.as_plain())))
    assert again.points == cost.points
    assert again.attention_cost == cost.attention_cost


@pytest.mark.parametrize(
    "plain",
    [
        None,
        [],
        {},
        {"seconds_by_rows": {}, "attention": {}, "reading": None},
        {"seconds_by_rows": {"1": 1.0}, "attention": {}},
        {"seconds_by_rows": {"1": 1.0}, "attention": {}, "reading": -1.0},
        {"seconds_by_rows": {"1": 1.0}, "attention": {}, "reading": "fast"},
        {"seconds_by_rows": {"one": 1.0}, "attention": {}, "reading": None},
        {"seconds_by_rows": {"1": -1.0}, "attention": {}, "reading": None},
        {"seconds_by_rows": {"1": math.nan}, "attention": {}, "reading": None},
        {"seconds_by_rows": {"0": 1.0}, "attention": {}, "reading": None},
        {"seconds_by_rows": {"1": 1.0}, "attention": {"per_key": "much"}, "reading": None},
        {"seconds_by_rows": {"1": 1.0}, "attention": {"per_pair": -1.0}, "reading": None},
        {"seconds_by_rows": {"1": 1.0}, "attention": {"price": 1.0}, "reading": None},
        {"seconds_by_rows": {"1": 1.0}},
    ],
)
def test_what_is_no_table_is_refused(plain: object) -> None:
    with pytest.raises(ValueError, match=r".+"):
        CostTable.from_plain(plain)


def test_a_draft_models_steps_add_up() -> None:
    cost = DraftCost(CostTable({1: 1.0, 2: 1.5, 4: 2.5}))
    # Two rows to catch up and guess, then two steps of one row.
    assert cost.seconds([Wanted(3, 2, 0)]) == pytest.approx(1.5 + 1.0 + 1.0)
    # Together: 1 + 1 rows, then one step of both, then one of the longer draft.
    assert cost.seconds([Wanted(2, 1, 0), Wanted(3, 1, 0)]) == pytest.approx(1.5 + 1.5 + 1.0)
    for _ in range(100):
        cost.record([Wanted(3, 2, 0)], 7.0)
    assert cost.seconds([Wanted(3, 2, 0)]) == pytest.approx(7.0, rel=0.01)


def test_a_prompt_to_catch_up_with_is_paid_once_and_teaches_nothing() -> None:
    cost = DraftCost(CostTable({1: 1.0, 2: 1.5, 100: 50.0}))
    assert cost.catching_up(100, 0) == pytest.approx(50.0 - 1.5)
    assert cost.catching_up(2, 0) == 0.0
    cost.record([Wanted(1, 100, 0)], 1e6)
    assert cost.seconds([Wanted(1, 1, 0)]) == 1.0


def test_what_lookups_cost_is_observed() -> None:
    cost = DraftCost()
    assert cost.seconds([Wanted(4, 1, 0)]) == 0.0
    for tokens in (1, 4, 2, 8):
        cost.record([Wanted(tokens, 1, 0)], 0.5 + 0.25 * tokens)
    assert cost.seconds([Wanted(6, 1, 0)]) == pytest.approx(2.0)


def test_a_line_is_found_and_stays_above_zero() -> None:
    line = OnlineLine()
    assert line.at(3) == 0.0
    for x in (1, 2, 3, 4, 5):
        line.add(x, 2 + 3 * x)
    assert line.at(7) == pytest.approx(23)
    falling = OnlineLine()
    for x in (1, 2, 3, 4):
        falling.add(x, 10 - x)
    assert falling.at(100) == falling.at(0)  # it does not fall
    assert falling.at(100) == pytest.approx(7.5, rel=0.01)  # recent ones count more
    convex = OnlineLine()
    for x in (1, 2, 3):
        convex.add(x, 10.0**x)
    assert convex.at(0) >= 0.0


def test_reading_a_prompt_is_cheaper_than_asking_every_row() -> None:
    by_rows = CostTable({1: 1.0, 2: 1.5, 4: 2.5})
    reading = CostTable({1: 1.0, 2: 1.5, 4: 2.5}, reading=0.25)
    assert by_rows.reading(101, 101) == by_rows(101) == 51.0
    assert reading.reading(101, 101) == 26.0
    assert reading(101) == 51.0
    reading.correct(4, 5.0)  # the machine became slower, for whatever it does
    assert reading.reading(101, 101) > 26.0
    assert reading.rescaled(2.0).reading(101, 101) == 52.0


def test_a_token_of_a_piece_is_read_among_half_of_it() -> None:
    cost = CostTable({1: 1.0}, AttentionCost(0, per_key=0.0, per_pair=1.0), reading=0.0)
    assert cost.reading(100, 100) == 1.0 + 100 * 50
    assert cost.reading(100, 300) == 1.0 + 100 * 250
