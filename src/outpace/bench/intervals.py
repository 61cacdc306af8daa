"""Ratios of times on the same work, and how sure they are."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

_DRAWS = 2000
_SEED = 20240501


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times less time one way takes than another, on the prompts that both ran.

    Attributes:
        value: sum of the reference's times over the sum of the other's; above 1: faster. Each
            prompt counts with the median of its repeats.
        low, high: a 95 % interval; None from fewer than two prompts, of which nothing can be
            drawn.
        prompts: how many both ran.
    """

    value: float
    low: float | None
    high: float | None
    prompts: int

    def as_dict(self) -> dict[str, Any]:
        """A plain structure for JSON."""
        return {"value": self.value, "low": self.low, "high": self.high, "prompts": self.prompts}


Times = Mapping[Hashable, Sequence[float]]


def time_ratio(reference: Times, other: Times) -> Ratio | None:
    """Compare two ways on the prompts that both have times for; None if there are none.

    The interval is a percentile bootstrap (Efron 1979) over prompts and, within a prompt, over
    its repeats: it covers what other prompts of the same kind and other repeats would have
    given. It cannot cover a machine that was slower throughout one of two separate runs.

    Args:
        reference: times of each prompt's repeats, in seconds.
        other: the same for the way that is judged.
    """
    common = [prompt for prompt in reference if prompt in other]
    if not common:
        return None
    before = float(sum(median(reference[prompt]) for prompt in common))
    after = float(sum(median(other[prompt]) for prompt in common))
    if after <= 0 or before <= 0:
        return None
    if len(common) < 2:
        return Ratio(before / after, None, None, len(common))
    generator = np.random.default_rng(_SEED)
    first = _redrawn([reference[prompt] for prompt in common], generator)
    second = _redrawn([other[prompt] for prompt in common], generator)
    # The same prompts on both sides: what a prompt costs is the work, not the noise.
    drawn = generator.integers(0, len(common), (_DRAWS, len(common)))
    rows = np.arange(_DRAWS)[:, None]
    ratios = first[rows, drawn].sum(axis=1) / second[rows, drawn].sum(axis=1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return Ratio(before / after, float(low), float(high), len(common))


def _redrawn(times: Sequence[Sequence[float]], generator: np.random.Generator) -> np.ndarray:
    """Medians of redrawn repeats, ``[draws, prompts]``."""
    columns = []
    for repeats in times:
        values = np.asarray(repeats, dtype=float)
        drawn = generator.integers(0, len(values), (_DRAWS, len(values)))
        columns.append(np.median(values[drawn], axis=1))
    return np.stack(columns, axis=1)
