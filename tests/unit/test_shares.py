"""Who bears what drafts have cost: everything is borne where a batch loses, own rows where not."""

from __future__ import annotations

import pytest

from outpace.control.choice import Costs
from outpace.control.controller import Outcome
from outpace.control.cost import CostTable
from outpace.control.line import OnlineLine
from outpace.control.shares import Shares

# Rows are free up to 8 and dear beyond.
COSTS = Costs(CostTable({1: 1.0, 8: 1.0, 16: 1.8}), OnlineLine(), {})


def outcome(seq_id: int, drafted: int, accepted: int) -> Outcome:
    return Outcome(seq_id, "d", drafted, accepted, accepted < drafted, drafted, accepted + 1)


def silent(seq_id: int) -> Outcome:
    return Outcome(seq_id, "d", 0, 0, False)


def test_a_batch_that_loses_is_charged_with_everything_as_was_promised() -> None:
    outcomes = [outcome(0, 1, 0), outcome(1, 1, 0), silent(2)]
    charges = Shares().charges(outcomes, [0.25, 0.75], 0.2, COSTS, 1.0)
    assert sum(charges) == pytest.approx(3 * 0.2)
    assert charges[1] == pytest.approx(3 * charges[0])


def test_where_all_gain_a_draft_is_charged_with_its_own_rows() -> None:
    shares = Shares()
    free = [outcome(0, 2, 2), outcome(1, 2, 0)]
    assert shares.charges(free, [1.0, 1.0], 0.3, COSTS, 1.0) == pytest.approx([0.0, 0.0])
    dear = [outcome(0, 6, 6), outcome(1, 2, 0)]  # 10 rows, of which 2 are beyond 8
    charges = shares.charges(dear, [1.0, 1.0], 0.3, COSTS, 1.0)
    assert charges == pytest.approx([2**0.5 * 0.2] * 2)


def test_alone_everything_is_its_own() -> None:
    shares = Shares()
    assert shares.charges([outcome(0, 2, 2)], [1.0], 0.3, COSTS, 1.0) == pytest.approx([0.3])
    both = [outcome(0, 2, 2), silent(1)]
    assert shares.charges(both, [1.0], 0.3, COSTS, 1.0) == pytest.approx([0.6])


def test_what_was_gained_long_ago_does_not_cover_losses_for_ever() -> None:
    shares = Shares()
    for _ in range(1000):
        shares.charges([outcome(0, 2, 2), outcome(1, 2, 2)], [1.0, 1.0], 0.1, COSTS, 1.0)
    charged = 0.0
    for _ in range(100):
        wrong = [outcome(0, 2, 0), outcome(1, 2, 0)]
        charged += sum(shares.charges(wrong, [1.0, 1.0], 0.4, COSTS, 1.0))
    assert charged > 0.5 * 100 * 2 * 0.4
