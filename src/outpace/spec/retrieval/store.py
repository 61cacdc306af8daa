"""A bounded memory of earlier outputs, found again by their last tokens."""

from __future__ import annotations

import secrets
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from outpace.spec.retrieval.candidates import LONGEST_MATCH, Candidates, Tokens, agreement

# The lengths of match by which places are chained; the longer one is tried first.
_ANCHORS = (8, 3)
# So many places are looked at, and so many links are followed to find them.
_MOST, _MOST_LINKS = 24, 64
_MIX, _ALL = 0x9E3779B97F4A7C15, 2**64 - 1


class _Chains:
    """Links each place to the one before it that ends with the same tokens (as deflate does).

    Slots are stored plus one, so that fresh memory, which is zero and costs nothing until it is
    written, means "none".

    Args:
        length: how many tokens must be the same.
        capacity: slots of the ring.
    """

    def __init__(self, length: int, capacity: int) -> None:
        self.length = length
        self._shift = np.uint64(64 - max(10, capacity.bit_length()))
        self._heads = np.zeros(1 << int(64 - self._shift), dtype=np.int32)
        self._links = np.zeros(capacity, dtype=np.int32)
        self._whole_factors = [_MIX ** (i + 1) & _ALL for i in range(length)]  # all odd
        self._factors = np.array(self._whole_factors, dtype=np.uint64)
        # Reading single numbers through a memoryview takes half the time.
        self._quick_heads = self._heads.data
        self._quick_links = self._links.data

    def add(self, tokens: Tokens, owner: np.uint64, first: int) -> None:
        """Link the places of a text whose first token is in slot ``first``; it may wrap round."""
        if len(tokens) < self.length:
            return
        hashes = self._hashes(tokens, owner)
        order = np.argsort(hashes, kind="stable")
        sorted_hashes = hashes[order]
        size = len(self._links)
        slots = ((first + self.length - 1 + order) % size + 1).astype(np.int32)
        is_first = np.ones(len(order), dtype=np.bool_)
        is_first[1:] = sorted_hashes[1:] != sorted_hashes[:-1]
        before = np.empty_like(slots)
        before[1:] = slots[:-1]
        before[is_first] = self._heads[sorted_hashes[is_first]]
        self._links[slots - 1] = before
        is_last = np.roll(is_first, -1)
        self._heads[sorted_hashes[is_last]] = slots[is_last]

    def walk(self, text: Tokens, owner: np.uint64, newest: int) -> list[int]:
        """Slots that may hold the last tokens of a text, the newest first.

        Args:
            text: at least ``length`` tokens.
            owner: whose places.
            newest: the slot that was written last: places must get older along a chain, or
                the link leads to a slot that has been written anew.
        """
        where = self._hash(text[-self.length :].tolist(), int(owner))
        size, links = len(self._links), self._quick_links
        found: list[int] = []
        last_age = -1
        slot = self._quick_heads[where] - 1
        while slot >= 0 and len(found) < _MOST_LINKS:
            age = (newest - slot) % size
            if age <= last_age:
                break
            found.append(slot)
            last_age, slot = age, links[slot] - 1
        return found

    def _hash(self, run: list[int], owner: int) -> int:
        """What `_hashes` gives for one run; numbers are faster alone than in arrays."""
        mixed = owner
        for value, factor in zip(run, self._whole_factors, strict=True):
            mixed += value * factor
        mixed &= _ALL
        mixed = (mixed ^ mixed >> 31) * _MIX & _ALL
        return mixed >> int(self._shift)

    def _hashes(self, tokens: Tokens, owner: np.uint64) -> NDArray[np.int64]:
        """``[len - length + 1]`` the head of each run of ``length`` tokens."""
        values = tokens.astype(np.uint64)
        runs = len(values) - self.length + 1
        mixed = np.full(runs, owner, dtype=np.uint64)
        for i in range(self.length):
            mixed += values[i : i + runs] * self._factors[i]
        mixed ^= mixed >> np.uint64(31)
        mixed *= np.uint64(_MIX)
        return (mixed >> self._shift).astype(np.int64)


class OutputStore:
    """Remembers the last outputs of all tenants in a ring; nobody finds those of another.

    About 30 bytes a token. When the ring is full, the oldest tokens are overwritten.

    Args:
        capacity: tokens, at least 2; an output takes one more than it has.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        # A token is stored plus one; 0 is a border, which no text contains.
        self._tokens = np.zeros(capacity, dtype=np.int32)
        self._owners = np.zeros(capacity, dtype=np.uint64)
        self._chains = [_Chains(length, capacity) for length in _ANCHORS]
        self._next = 0
        self._key = secrets.token_bytes(16)

    def add(self, tenant: str, tokens: Tokens) -> None:
        """Remember an output, or its end if it is longer than the ring."""
        tokens = tokens[-(self._capacity - 1) :] if len(tokens) >= self._capacity else tokens
        if len(tokens) == 0:
            return
        owner = self._owner(tenant)
        slots = (self._next + np.arange(len(tokens) + 1)) % self._capacity
        self._tokens[slots[:-1]] = tokens + 1
        self._tokens[slots[-1]] = 0
        self._owners[slots] = owner
        for chains in self._chains:
            chains.add(tokens + 1, owner, self._next)
        self._next = int(slots[-1] + 1) % self._capacity

    def look_up(self, tenant: str, text: Tokens, depth: int) -> Candidates:
        """Where the last tokens of a text occurred in a tenant's outputs, the newest first.

        Args:
            tenant: whose outputs.
            text: the text.
            depth: how many of the following tokens are wanted.
        """
        owner = self._owner(tenant)
        newest = (self._next - 1) % self._capacity
        wanted = text[-LONGEST_MATCH:] + 1
        for chains in self._chains:
            if len(text) < chains.length:
                continue
            places = np.array(chains.walk(wanted, owner, newest), dtype=np.int64)
            found = self._compare(places, owner, wanted, chains.length, depth)
            if len(found):
                return found
        return Candidates.none(depth)

    def _compare(
        self, places: Tokens, owner: np.uint64, wanted: Tokens, shortest: int, depth: int
    ) -> Candidates:
        """Keep the places that really agree. Nothing is read across a border or an owner."""
        places = places[self._owners[places] == owner]
        if len(places) == 0:
            return Candidates.none(depth)
        before = self._tokens[(places[:, None] - np.arange(len(wanted))) % self._capacity]
        lengths = agreement(before, wanted)
        best = np.argsort(-lengths, kind="stable")[:_MOST]
        best = best[lengths[best] >= shortest]
        ahead = (places[best, None] + 1 + np.arange(depth)) % self._capacity
        following = self._tokens[ahead].astype(np.int64)
        following[np.logical_or.accumulate(following == 0, axis=1)] = 0
        return Candidates.elsewhere(lengths[best], following - 1)

    def _owner(self, tenant: str) -> np.uint64:
        """A number that stands for the tenant; the key keeps anybody from finding twins."""
        digest = blake2b(tenant.encode("utf-8", "surrogatepass"), digest_size=8, key=self._key)
        return np.uint64(int.from_bytes(digest.digest()))
