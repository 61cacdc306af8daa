"""Counter-based noise: a pure function of seed, position and purpose.

A generator with a state would tie a token to how many numbers were drawn before it, and so to
batches, drafts and preemptions. A hash of the counter does not: plain and speculative decoding
meet the same number at the same position. The mixer is the finaliser of SplitMix64 (Steele et
al. 2014), which passes the usual batteries when it is applied to a counter.
"""

from __future__ import annotations

import secrets
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

_GOLDEN = 0x9E3779B97F4A7C15
_WORD = 0xFFFFFFFFFFFFFFFF


class Stream(IntEnum):
    """What a number is used for; streams are independent of each other."""

    HEAD = 1
    TAIL = 2
    TAIL_TOKEN = 3
    DRAFT = 4
    ACCEPT = 5
    RESIDUAL = 6
    SAMPLE_SEED = 7


def _mix(word: int) -> int:
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)


def _key(seed: int, position: int, stream: int, index: int = 0) -> int:
    """Absorb the counter's words one after the other."""
    word = _mix((seed + _GOLDEN) & _WORD)
    for value in (position, stream, index):
        word = _mix((word ^ value) * _GOLDEN & _WORD)
    return word


def fresh_seed() -> int:
    """A seed for a request that brings none."""
    return secrets.randbits(64)


def sample_seed(seed: int, index: int) -> int:
    """The seed of sample ``index`` of a request; that of sample 0 is the request's own."""
    return seed if index == 0 else _key(seed, index, Stream.SAMPLE_SEED)


def uniform(seed: int, position: int, stream: Stream, index: int = 0) -> float:
    """A number in the open interval (0, 1) with 53 random bits."""
    return ((_key(seed, position, stream, index) >> 11) + 0.5) * 2.0**-53


def gumbel(seed: int, position: int, token_ids: NDArray[np.int64]) -> NDArray[np.float64]:
    """Standard Gumbel noise for some tokens at a position; shape of ``token_ids``, float64.

    The noise of a token does not depend on which other tokens are asked for, so that a drafter
    that perturbs its own few candidates meets the target's noise.
    """
    key = np.uint64(_key(seed, position, Stream.HEAD))
    with np.errstate(over="ignore"):
        word = (token_ids.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN) ^ key
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        word = word ^ (word >> np.uint64(31))
    u = ((word >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    noise: NDArray[np.float64] = -np.log(-np.log(u))
    return noise


def tail_gumbel(seed: int, position: int) -> float:
    """The Gumbel noise of all unlikely tokens taken as one."""
    return float(-np.log(-np.log(uniform(seed, position, Stream.TAIL))))
