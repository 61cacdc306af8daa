"""Whether what was seen of earlier requests foretells later ones: forecast against observed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from outpace.health.groups import parts_of
from outpace.health.intervals import Share, share
from outpace.record.row import Row

_BINS = 10
# A type's history leans on its drafter's as on so many guesses, and that on one half.
_STRENGTH, _PRIOR_STRENGTH = 20.0, 4.0
FEWEST_TRIALS = 200


@dataclass(slots=True)
class _Counts:
    right: float = 0.0
    tried: float = 0.0

    def forecast(self, prior: float, strength: float) -> float:
        return (self.right + prior * strength) / (self.tried + strength)

    def add(self, right: int, tried: int) -> None:
        self.right += right
        self.tried += tried


@dataclass(slots=True)
class _Cell:
    """Forecasts of one cell, weighted by guesses, and what came of them."""

    weighted: float = 0.0
    pairs: list[tuple[int, int]] = field(default_factory=list)

    def add(self, forecast: float, right: int, tried: int) -> None:
        self.weighted += forecast * tried
        self.pairs.append((right, tried))

    def figures(self) -> tuple[float, Share]:
        observed = share(self.pairs)
        return self.weighted / observed.tried, observed


@dataclass(frozen=True, slots=True)
class Calibration:
    """Forecast against observed acceptance.

    Attributes:
        curve: (mean forecast, observed share) for each tenth of forecasts that occurred.
        cells: the same by (type, drafter, position), of those with enough guesses.
        brier: mean squared difference of forecast and outcome, over guesses; None of nothing.
        base_brier: the same for one forecast for all: the share of all right guesses.
    """

    curve: tuple[tuple[float, Share], ...]
    cells: tuple[tuple[tuple[str, str, int], float, Share], ...]
    brier: float | None
    base_brier: float | None

    @property
    def held(self) -> int:
        """Cells whose forecast lies in the interval of what was observed."""
        return sum(seen.low <= forecast <= seen.high for _, forecast, seen in self.cells)

    def as_plain(self) -> dict[str, Any]:
        """A plain structure for JSON."""
        return {
            "curve": [{"forecast": f, "observed": s.as_plain()} for f, s in self.curve],
            "cells": [
                {"type": key[0], "drafter": key[1], "position": key[2], "forecast": f}
                | {"observed": s.as_plain()}
                for key, f, s in self.cells
            ],
            "cells_within_interval": self.held,
            "brier": self.brier,
            "base_brier": self.base_brier,
        }


def calibration(rows: Sequence[Row]) -> Calibration:
    """Forecast each request's acceptance from the requests before it alone.

    The forecast of a type, drafter and position is the share of right guesses so far, leaning on
    the drafter's at that position while there are few.
    """
    own: dict[tuple[str, str, int], _Counts] = {}
    drafters: dict[tuple[str, int], _Counts] = {}
    cells: dict[tuple[str, str, int], _Cell] = {}
    bins: dict[int, _Cell] = {}
    squares = right_sum = tried_sum = 0.0
    for part in parts_of(rows):
        for position in range(len(part.draft.accepted_at)):
            right, tried = part.tried(position)
            if tried == 0:
                continue
            key = (part.row.request_type, part.draft.drafter, position + 1)
            mine = own.setdefault(key, _Counts())
            wider = drafters.setdefault(key[1:], _Counts())
            forecast = mine.forecast(wider.forecast(0.5, _PRIOR_STRENGTH), _STRENGTH)
            cells.setdefault(key, _Cell()).add(forecast, right, tried)
            tenth = min(int(forecast * _BINS), _BINS - 1)
            bins.setdefault(tenth, _Cell()).add(forecast, right, tried)
            squares += right * (1 - forecast) ** 2 + (tried - right) * forecast**2
            right_sum, tried_sum = right_sum + right, tried_sum + tried
            mine.add(right, tried)
            wider.add(right, tried)
    large = {
        key: cell.figures()
        for key, cell in sorted(cells.items())
        if sum(tried for _, tried in cell.pairs) >= FEWEST_TRIALS
    }
    mean = right_sum / tried_sum if tried_sum else 0.0
    return Calibration(
        tuple(bins[tenth].figures() for tenth in sorted(bins)),
        tuple((key, *figures) for key, figures in large.items()),
        squares / tried_sum if tried_sum else None,
        mean * (1 - mean) if tried_sum else None,
    )
