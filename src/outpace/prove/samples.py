"""Many short samples of two servers: whether they come from one distribution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from outpace.prove.fit import CountTest, compare
from outpace.prove.verdict import Check, Status

Counts = Mapping[str, int]
_LEAST_POWER = 0.95


def samples_check(
    reference: Counts, tested: Counts, alpha: float, deviation: float, seed: int, name: str
) -> Check:
    """Test two samples, with two controls.

    The reference is held against itself, in halves: they must agree. And a part of the tested
    draws is replaced by the rarest outcome: this must be caught.

    Args:
        reference: how often each continuation was drawn.
        tested: the same.
        alpha: false-alarm rate of the test.
        deviation: the total variation distance that must be found; the control's bias.
        seed: of what the controls draw.
        name: of the check.
    """
    random = np.random.default_rng(seed)
    test = compare(tested, reference, alpha, deviation)
    own = compare(*_halves(reference, random), alpha, deviation)
    caught = compare(_biased(tested, deviation, random), reference, alpha, deviation).rejected
    figures: dict[str, Any] = {
        **test.as_dict(),
        "reference_against_itself": own.as_dict(),
        "control_bias": deviation,
        "control_caught": caught,
    }
    text = (
        f"{test.draws} against {test.reference_draws} draws over {test.cells} continuations: "
        f"p = {test.p_value:.3g}, TV <= {test.tv_bound:.3f}; finds TV "
        f"{test.least_deviation:.3f} in 99 of 100"
    )
    status, text = _judge(test, own, caught, text)
    return Check(name, status, text, figures)


def _judge(test: CountTest, own: CountTest, caught: bool, text: str) -> tuple[Status, str]:
    if test.cells < 2:
        return Status.INCONCLUSIVE, f"the draws are all alike, nothing to compare: {text}"
    if own.rejected:
        return Status.INCONCLUSIVE, f"the reference's draws are not independent: {text}"
    if test.rejected:
        return Status.FAILED, f"not one distribution: {text}"
    if not caught:
        return Status.INCONCLUSIVE, f"the biased sample was not caught: {text}"
    if test.power < _LEAST_POWER:
        more = f"a power of {test.power:.2f} is too little, use more draws"
        return Status.INCONCLUSIVE, f"{more}: {text}"
    return Status.PASSED, f"{text}; the biased control was caught"


def _halves(counts: Counts, random: np.random.Generator) -> tuple[Counter[str], Counter[str]]:
    draws = [outcome for outcome, n in sorted(counts.items()) for _ in range(n)]
    order = random.permutation(len(draws))
    half = len(draws) // 2
    return Counter(draws[i] for i in order[:half]), Counter(draws[i] for i in order[half:])


def _biased(counts: Counts, share: float, random: np.random.Generator) -> Counter[str]:
    """The sample that a server would give which emits one rare outcome too often."""
    rarest = min(counts, key=lambda outcome: (counts[outcome], outcome), default="")
    draws = [outcome for outcome, n in sorted(counts.items()) for _ in range(n)]
    return Counter(rarest if random.random() < share else outcome for outcome in draws)
