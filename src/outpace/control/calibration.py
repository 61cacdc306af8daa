"""Predicted against observed acceptance: a curve, a score, and cell by cell."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from outpace.control.estimate import Z95, clamped

BINS = 10
FEWEST_TRIALS = 200


class CurvePoint(NamedTuple):
    """Guesses whose predictions fell into one bin: how many, and both means."""

    trials: int
    predicted: float
    observed: float


@dataclass(slots=True)
class CellCalibration:
    """One type × source × position.

    Attributes:
        trials: guesses that were tried.
        predicted: sum of their predicted probabilities.
        observed: how many were right.
        variance: sum of p·(1 - p), what chance alone would do to ``observed``.
        uncertainty: sum of the predictions' own standard errors.
    """

    trials: int = 0
    predicted: float = 0.0
    observed: int = 0
    variance: float = 0.0
    uncertainty: float = 0.0

    def within(self, effect: float = 1.0) -> bool:
        """Whether observed minus predicted is within 95 %.

        The interval is that of chance, widened by the design effect of requests that differ, and
        by what the predictions said of their own uncertainty.
        """
        spread = math.sqrt(self.variance * effect + self.uncertainty**2)
        return abs(self.observed - self.predicted) <= Z95 * spread + 1e-9


@dataclass(slots=True)
class _Bin:
    trials: int = 0
    predicted: float = 0.0
    observed: int = 0


@dataclass(slots=True)
class Calibration:
    """Books each prediction beside what came of it; predictions come first, always.

    Judging forecasts by what came after them alone is prequential (Dawid 1984). The score is
    Brier's (1950), the mean squared error; beside it the logarithmic one, and the expected
    calibration error, the mean distance of the curve from the diagonal.
    """

    cells: dict[tuple[str, str, int], CellCalibration] = field(
        default_factory=lambda: defaultdict(CellCalibration)
    )
    trials: int = 0
    _bins: list[_Bin] = field(default_factory=lambda: [_Bin() for _ in range(BINS)])
    _squares: float = 0.0
    _logs: float = 0.0

    def add(
        self,
        request_type: str,
        source: str,
        predicted: Sequence[float],
        accepted: int,
        rejected: bool,
        errors: Sequence[float] = (),
    ) -> None:
        """A draft was verified.

        Args:
            request_type: of the request.
            source: who guessed.
            predicted: conditional acceptance by place, as said before.
            accepted: guesses that were right.
            rejected: whether the next one was wrong.
            errors: the predictions' own standard errors, if they are known.
        """
        for position, p in enumerate(predicted[: accepted + rejected]):
            held = position < accepted
            p = clamped(p)
            cell = self.cells[request_type, source, position]
            cell.trials += 1
            cell.predicted += p
            cell.observed += held
            cell.variance += p * (1 - p)
            cell.uncertainty += errors[position] if position < len(errors) else 0.0
            into = self._bins[min(int(p * BINS), BINS - 1)]
            into.trials += 1
            into.predicted += p
            into.observed += held
            self.trials += 1
            self._squares += (held - p) ** 2
            self._logs -= math.log(p if held else 1 - p)

    @property
    def curve(self) -> list[CurvePoint]:
        """The reliability curve, bins without guesses left out."""
        return [
            CurvePoint(one.trials, one.predicted / one.trials, one.observed / one.trials)
            for one in self._bins
            if one.trials
        ]

    @property
    def brier(self) -> float | None:
        """Mean squared error; None without trials."""
        return self._squares / self.trials if self.trials else None

    @property
    def log_loss(self) -> float | None:
        """Mean negative log-likelihood in nats; None without trials."""
        return self._logs / self.trials if self.trials else None

    @property
    def error(self) -> float | None:
        """Expected calibration error; None without trials."""
        if not self.trials:
            return None
        return sum(abs(p.observed - p.predicted) * p.trials for p in self.curve) / self.trials

    def share_within(self, effects: dict[tuple[str, int], float] | None = None) -> float | None:
        """Share of the cells with over 200 trials that are within their interval.

        Args:
            effects: design effect by source and position; 1 where it is missing.
        """
        effects = effects or {}
        judged = [
            cell.within(effects.get((source, position), 1.0))
            for (_, source, position), cell in self.cells.items()
            if cell.trials > FEWEST_TRIALS
        ]
        return sum(judged) / len(judged) if judged else None
