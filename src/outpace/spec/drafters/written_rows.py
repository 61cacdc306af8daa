"""For which tokens the rows of a cache were written, slot by slot."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_PIECE = 4096
_EMPTY = np.uint64(0)


class WrittenRows:
    """Remembers, for each slot, the text up to the token whose row it holds.

    A block that comes out of the prefix cache holds the target's keys and values of a known text.
    Whether it holds a drafter's rows of that text depends on whether that drafter was listening
    when the block was computed. A slot is marked with a hash of all tokens up to its own; a
    collision would cost acceptance and nothing else.

    Args:
        num_slots: of the cache.
    """

    def __init__(self, num_slots: int) -> None:
        self._marks = np.zeros(num_slots, dtype=np.uint64)
        self._powers = np.ones(1, dtype=np.uint64)

    def mark(self, known: NDArray[np.int64], first: int, table: NDArray[np.int64]) -> None:
        """The rows of the tokens from ``first`` on were written.

        Args:
            known: ``[n]`` all tokens up to the last of them.
            first: position of the first that was written.
            table: the slots of at least n positions.
        """
        self._marks[table[first : len(known)]] = self._hashes(known)[first:]

    def erase(self, slots: NDArray[np.int64]) -> None:
        """The rows in these slots are guesses, or about to be."""
        self._marks[slots] = _EMPTY

    def holds(self, known: NDArray[np.int64], table: NDArray[np.int64]) -> NDArray[np.bool_]:
        """``[n]``: whether the slot of each of these tokens has its row."""
        found: NDArray[np.bool_] = self._marks[table[: len(known)]] == self._hashes(known)
        return found

    def _hashes(self, known: NDArray[np.int64]) -> NDArray[np.uint64]:
        """A hash of the text up to each token: sums of tokens times powers, modulo 2^64."""
        if len(self._powers) < len(known) + 1:
            size = -(-(len(known) + 1) // _PIECE) * _PIECE
            self._powers = np.cumprod(np.full(size, _FACTOR), dtype=np.uint64)
        terms = (known.astype(np.uint64) + np.uint64(1)) * self._powers[: len(known)]
        sums: NDArray[np.uint64] = np.cumsum(terms, dtype=np.uint64)
        return sums
