"""Places where the end of a text occurred before, and how the text went on there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# In `Candidates.following`: the text ended here.
END = -1
# Agreement further back than this says nothing more.
LONGEST_MATCH = 32
# An occurrence counts half as much for each token that it agrees less than the best one.
HALVING = 0.5
# A match of so many tokens is none by chance.
LONG = 6
# A match in another text says as much as one in the same text that is so many tokens shorter.
_ELSEWHERE = 2

Tokens = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Earlier occurrences of the end of a text.

    Attributes:
        lengths: ``[n]`` how many of the last tokens agree at each.
        following: ``[n, depth]`` the tokens that came next there, `END` after the last.
        votes: ``[n]`` what each counts beside others of the same length.
    """

    lengths: Tokens
    following: Tokens
    votes: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.lengths)

    @classmethod
    def none(cls, depth: int) -> Candidates:
        """No occurrence."""
        nothing = np.empty(0, dtype=np.int64)
        return cls(nothing, np.empty((0, depth), dtype=np.int64), nothing.astype(np.float64))

    @classmethod
    def here(cls, lengths: Tokens, following: Tokens) -> Candidates:
        """Occurrences in the same text: each is a vote."""
        return cls(lengths, following, np.ones(len(lengths)))

    @classmethod
    def elsewhere(cls, lengths: Tokens, following: Tokens) -> Candidates:
        """Occurrences in other texts: together they are one vote, and one of less weight.

        A text goes on as it did itself more surely than as others did, however many these are.
        (After 2 and 4 tokens that agreed, code went on as a library of code mostly did in 0.2
        and 0.5 of the cases, and as it did itself in 0.5 and 0.7.)
        """
        if len(lengths) == 0:
            return cls.none(following.shape[1])
        votes = HALVING ** (lengths.max() - lengths)
        return cls(np.maximum(lengths - _ELSEWHERE, 1), following, 1 / votes.sum() + 0 * votes)

    @classmethod
    def joined(cls, several: Sequence[Candidates]) -> Candidates:
        """Those of several places, in their order; the depths must be equal."""
        return cls(
            np.concatenate([one.lengths for one in several]),
            np.concatenate([one.following for one in several]),
            np.concatenate([one.votes for one in several]),
        )


def agreement(before: Tokens, text: Tokens) -> Tokens:
    """How many tokens of a place's past agree with the end of a text.

    Args:
        before: ``[n, m]`` the tokens before each place, the nearest first.
        text: ``[>= 1]`` the text.

    Returns:
        ``[n]`` numbers from 0 to m.
    """
    wanted = text[: -before.shape[1] - 1 : -1]
    differs = before[:, : len(wanted)] != wanted
    length: Tokens = np.argmax(differs, axis=1)
    length[~differs.any(axis=1)] = len(wanted)
    return length
