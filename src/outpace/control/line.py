"""A straight line through recent observations: how overheads grow."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class OnlineLine:
    """y = a + b·x by least squares over recent observations, with a >= 0 and b >= 0.

    Args:
        memory: how many observations count, roughly.
    """

    def __init__(self, memory: float = 64.0) -> None:
        self._keep = 1 - 1 / memory
        self._weight = 0.0
        self._x = self._y = 0.0  # means
        self._xx = self._xy = 0.0  # sums of squares and products about the means

    def add(self, x: float, y: float) -> None:
        """Take in an observation; one that is far too high is an interruption, and is capped."""
        if self._weight > 4:
            y = min(y, 3 * self.at(x) + self._y)
        weight = self._weight * self._keep
        self._weight = weight + 1
        share = weight / self._weight
        dx, dy = x - self._x, y - self._y
        self._xx = self._xx * self._keep + share * dx * dx
        self._xy = self._xy * self._keep + share * dx * dy
        self._x += dx / self._weight
        self._y += dy / self._weight

    def at(self, x: float) -> float:
        """The line's value; 0 before the first observation."""
        if self._x <= 0 or self._xx <= 0:
            return self._y
        slope = min(max(self._xy / self._xx, 0.0), self._y / self._x)
        return max(self._y + slope * (x - self._x), 0.0)

    def over(self, xs: NDArray[np.int64] | NDArray[np.float64]) -> NDArray[np.float64]:
        """The line's values at many places."""
        if self._x <= 0 or self._xx <= 0:
            return np.full(len(xs), self._y)
        slope = min(max(self._xy / self._xx, 0.0), self._y / self._x)
        values: NDArray[np.float64] = np.maximum(self._y + slope * (xs - self._x), 0.0)
        return values
