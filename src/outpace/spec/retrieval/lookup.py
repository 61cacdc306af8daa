"""Finding where a text was going: the search that lookup drafters share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def longest_match(
    text: NDArray[np.int64], suffix: NDArray[np.int64], max_length: int
) -> tuple[NDArray[np.int64], int]:
    """Where in ``text`` the end of ``suffix`` occurs, at the greatest length.

    Args:
        text: ``[n]`` token ids to search.
        suffix: ``[m]`` token ids whose last ones are looked for.
        max_length: longest match to look for, in tokens.

    Returns:
        The indices in ``text`` of the last token of each longest occurrence, ascending, and the
        length of the match; none and 0 if not even the last token occurs.
    """
    ends: NDArray[np.int64] = np.empty(0, dtype=np.int64)
    for length in range(1, min(max_length, len(suffix), len(text)) + 1):
        wanted = suffix[-length]
        if length == 1:
            longer = np.flatnonzero(text == wanted)
        else:
            inside = ends[ends >= length - 1]
            longer = inside[text[inside - (length - 1)] == wanted]
        if len(longer) == 0:
            return ends, length - 1
        ends = longer
    return ends, min(max_length, len(suffix), len(text))
