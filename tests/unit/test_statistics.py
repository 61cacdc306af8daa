from __future__ import annotations

import pytest

from outpace.spec.statistics import SpeculationCounts, wilson_interval
from outpace.spec.tree import DraftTree


def test_each_figure_by_its_definition() -> None:
    counts = SpeculationCounts()
    counts.record(DraftTree.chain([1, 2, 3, 4]), num_emitted=3, num_accepted=2, rejected=True)
    counts.record(DraftTree(), num_emitted=1, num_accepted=0, rejected=False)
    counts.record(DraftTree.chain([1, 2]), num_emitted=3, num_accepted=2, rejected=False)
    found = counts.summary("ngram", "coupled", "bit-exact")
    assert found.target_steps == 3
    assert (found.drafted, found.accepted, found.rejections) == (6, 4, 1)
    assert found.acceptance_length == pytest.approx(7 / 3)
    assert found.draft_acceptance_rate == pytest.approx(4 / 6)
    assert found.alpha == pytest.approx(4 / 5)
    assert found.drafted_per_position == (2, 2, 1, 1)
    assert found.accepted_per_position == (2, 2, 0, 0)


def test_plain_decoding_has_no_alpha() -> None:
    counts = SpeculationCounts()
    counts.record(DraftTree(), 1, 0, False)
    found = counts.summary("none", "coupled", "bit-exact")
    assert found.acceptance_length == 1
    assert found.alpha is None
    assert found.draft_acceptance_rate is None


def test_a_tree_counts_a_depth_once_a_step() -> None:
    counts = SpeculationCounts()
    counts.record(DraftTree((1, 2, 3), (-1, -1, 0)), 2, 1, True)
    found = counts.summary("x", "coupled", "bit-exact")
    assert found.drafted == 3
    assert found.drafted_per_position == (1, 1)
    assert found.accepted_per_position == (1, 0)


def test_wilson_interval_against_published_values() -> None:
    low, high = wilson_interval(8, 10)
    assert (low, high) == pytest.approx((0.4902, 0.9433), abs=2e-4)
    assert wilson_interval(0, 0) == (0.0, 1.0)
    assert wilson_interval(0, 5)[0] == 0.0
    assert wilson_interval(5, 5)[1] == 1.0
