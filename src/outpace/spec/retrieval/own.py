"""Looking back in the request itself."""

from __future__ import annotations

import numpy as np

from outpace.spec.retrieval.candidates import LONGEST_MATCH, Candidates, Tokens, agreement

# So many occurrences are looked at: the longest matches, among equals the most recent.
_MOST = 24


def look_back(tokens: Tokens, shortest: int, depth: int) -> Candidates:
    """Where the last tokens occurred before in the same text, the most recent place first.

    An occurrence that overlaps the end is a loop, which goes on with its own period.

    Args:
        tokens: ``[n]`` the text.
        shortest: tokens that must agree, at least 1.
        depth: how many of the following tokens are wanted.
    """
    ends = _ends(tokens, shortest)
    if len(ends) == 0:
        return Candidates.none(depth)
    ends = ends[::-1]
    back = ends[:, None] - np.arange(min(LONGEST_MATCH, len(tokens)))
    before = tokens[back]  # an index below 0 reads from the end, and is cut off next
    lengths = np.minimum(agreement(before, tokens), ends + 1)
    starts = ends[:, None] + 1
    following = tokens[starts + np.arange(depth) % (len(tokens) - starts)]
    return Candidates.here(lengths, following)


def _ends(tokens: Tokens, shortest: int) -> Tokens:
    """Indices of the last token of each occurrence, ascending; the best, if there are many."""
    past, longest = tokens[:-1], min(LONGEST_MATCH, len(tokens) - 1)
    if longest < shortest:
        return np.empty(0, dtype=np.int64)
    ends: Tokens = np.flatnonzero(past == tokens[-1])
    for length in range(2, longest + 1):
        if len(ends) == 0 or (length > shortest and len(ends) <= _MOST):
            break
        inside = ends[ends >= length - 1]
        longer = inside[past[inside - (length - 1)] == tokens[-length]]
        if length > shortest and len(longer) == 0:
            break
        ends = longer
    return ends[-_MOST:]
