"""Sorting the places of a text by what stands before them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Places are in order by at least so many tokens; a lookup compares no more.
SORTED_DEPTH = 16


def sorted_places(
    numbers: NDArray[Any], largest: int, on_round: Callable[[], None] = lambda: None
) -> NDArray[np.int32]:
    """The places of a text, ordered by the tokens read backwards from each.

    A suffix array of the text read backwards, as deep as lookups compare: the places where a
    passage ends stand together, and beside them those that share less of it. Ranks by a key of
    some tokens are doubled by sorting pairs of ranks (Karp, Miller and Rosenberg 1972; Manber
    and Myers 1990). That takes about 30 bytes a token.

    Args:
        numbers: ``[n]`` stored tokens, n below 2^31; before the first one stands 0, which is the
            border.
        largest: no number is larger.
        on_round: called after each of `num_rounds` rounds.

    Returns:
        ``[n]`` places, ordered by (numbers[i], numbers[i - 1], …, numbers[i - 15]); places that
        agree in all of them in any order.
    """
    depth, bits = _packed(largest)
    keys = np.zeros(len(numbers), dtype=np.uint64)
    for back in range(min(depth, len(numbers))):
        before = numbers[: len(numbers) - back].astype(np.uint64)
        before <<= np.uint64(bits * (depth - 1 - back))
        keys[back:] |= before
        del before
    places = np.argsort(keys)
    on_round()
    while depth < SORTED_DEPTH:
        ranks = _ranks(keys, places)
        del places
        keys[:] = ranks
        keys <<= np.uint64(32)
        if depth < len(ranks):
            keys[depth:] |= ranks[:-depth]
        del ranks
        places = np.argsort(keys)
        depth *= 2
        on_round()
    return places.astype(np.int32)


def num_rounds(largest: int) -> int:
    """How many times `sorted_places` sorts."""
    depth, rounds = _packed(largest)[0], 1
    while depth < SORTED_DEPTH:
        depth, rounds = 2 * depth, rounds + 1
    return rounds


def _packed(largest: int) -> tuple[int, int]:
    """How many tokens fit into a key of 64 bits, and the bits of each."""
    bits = max(largest.bit_length(), 4)
    return min(64 // bits, SORTED_DEPTH), bits


def _ranks(keys: NDArray[np.uint64], places: NDArray[np.int64]) -> NDArray[np.uint32]:
    """For each place the number of different keys before its own, from 1: 0 is before all."""
    ordered = keys[places]
    steps = np.ones(len(keys), dtype=np.uint32)
    steps[1:] = ordered[1:] != ordered[:-1]
    del ordered
    ranks = np.empty_like(steps)
    ranks[places] = np.cumsum(steps, dtype=np.uint32)
    return ranks
