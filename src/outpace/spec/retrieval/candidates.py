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

Tokens = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Candidates:
    """Earlier occurrences of the end of a text.

    Attributes:
        lengths: ``[n]`` how many of the last tokens agree at each.
        following: ``[n, depth]`` the tokens that came next there, `END` after the last.
    """

    lengths: Tokens
    following: Tokens

    def __len__(self) -> int:
        return len(self.lengths)

    @classmethod
    def none(cls, depth: int) -> Candidates:
        """No occurrence."""
        return cls(np.empty(0, dtype=np.int64), np.empty((0, depth), dtype=np.int64))

    @classmethod
    def joined(cls, several: Sequence[Candidates]) -> Candidates:
        """Those of several places, in their order; the depths must be equal."""
        if len(several) == 1:
            return several[0]
        return cls(
            np.concatenate([one.lengths for one in several]),
            np.concatenate([one.following for one in several]),
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
