"""Invented requests: their types, lengths, and how well each source of drafts guesses them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outpace.config import check_integer, check_number
from outpace.config.toml_file import read_toml
from outpace.errors import InvalidValueError

_LONGEST_DRAFT = 64
MIXED = Path(__file__).with_name("mixed.toml")


@dataclass(frozen=True, slots=True)
class Guessing:
    """How one source guesses one type.

    Attributes:
        alpha: probability that a guess holds once those before it did, by place; the last one
            holds for all further places.
        found: share of the steps in which there is a draft.
        spread: standard deviation of log-odds between requests of the type.
    """

    alpha: tuple[float, ...]
    found: float = 1.0
    spread: float = 0.0

    def shifted(self, shift: float) -> tuple[float, ...]:
        """By place, for a request that differs by so much in log-odds."""
        return tuple(_shifted(alpha, shift) for alpha in self.alpha)


def _shifted(alpha: float, shift: float) -> float:
    if alpha in (0, 1):
        return alpha
    return 1 / (1 + math.exp(-math.log(alpha / (1 - alpha)) - shift))


@dataclass(frozen=True, slots=True)
class TypeProfile:
    """One type of request.

    Attributes:
        name: of the type.
        share: of all requests; any positive weights will do.
        prompt, output: mean lengths in tokens.
        guessing: by source; one that is missing never has a draft.
    """

    name: str
    share: float
    prompt: int
    output: int
    guessing: Mapping[str, Guessing] = field(default_factory=dict)


@dataclass(frozen=True)
class Invented:
    """A request, made of its number and a seed alone.

    So every policy meets the same requests, and the same guesses are right.

    Attributes:
        number: from 0.
        profile: its type.
        due: seconds at which it comes.
        prompt, output: its lengths in tokens.
        seed: of its luck.
    """

    number: int
    profile: TypeProfile
    due: float
    prompt: int
    output: int
    seed: int

    @cached_property
    def luck(self) -> Mapping[str, NDArray[np.float64]]:
        """By source, a number in [0, 1) for each token of the answer: small is easy to guess."""
        size = self.output + _LONGEST_DRAFT
        return {
            source: np.random.default_rng([self.seed, self.number, i]).random(size)
            for i, source in enumerate(sorted(self.profile.guessing))
        }

    @cached_property
    def _found(self) -> Mapping[str, NDArray[np.bool_]]:
        found = {}
        for i, (source, guessing) in enumerate(sorted(self.profile.guessing.items())):
            rng = np.random.default_rng([self.seed, self.number, 1000 + i])
            found[source] = rng.random(self.output + 1) < guessing.found
        return found

    @cached_property
    def _alpha(self) -> Mapping[str, tuple[float, ...]]:
        rng = np.random.default_rng([self.seed, self.number, 2000])
        return {
            source: guessing.shifted(guessing.spread * float(rng.standard_normal()))
            for source, guessing in sorted(self.profile.guessing.items())
        }

    def finds(self, source: str, done: int) -> bool:
        """Whether a source has a draft after so many tokens of the answer."""
        return source in self._found and bool(self._found[source][done])

    def holds(self, source: str, done: int, asked: int) -> int:
        """How many of ``asked`` guesses are right, from the first on."""
        alpha, luck = self._alpha[source], self.luck[source]
        place = 0
        while place < asked and luck[done + place] < alpha[min(place, len(alpha) - 1)]:
            place += 1
        return place


@dataclass(frozen=True, slots=True)
class Workload:
    """All types, with shares that sum to 1."""

    types: tuple[TypeProfile, ...]

    @classmethod
    def of(cls, types: Sequence[TypeProfile]) -> Workload:
        """Bring the shares to a sum of 1."""
        if not types:
            raise InvalidValueError("workload", "", "needs at least one type")
        whole = math.fsum(one.share for one in types)
        return cls(
            tuple(
                TypeProfile(one.name, one.share / whole, one.prompt, one.output, one.guessing)
                for one in types
            )
        )

    @property
    def sources(self) -> tuple[str, ...]:
        """All sources that guess any type, in the order of their first mention."""
        return tuple(dict.fromkeys(name for one in self.types for name in one.guessing))

    def request(self, number: int, due: float, seed: int) -> Invented:
        """Request ``number``: its type by the shares, its lengths by a gamma of shape 2."""
        rng = np.random.default_rng([seed, number])
        point, whole = rng.random(), 0.0
        profile = self.types[-1]
        for one in self.types:
            whole += one.share
            if point < whole:
                profile = one
                break
        prompt, output = (
            max(1, round(mean * rng.gamma(2.0) / 2.0)) for mean in (profile.prompt, profile.output)
        )
        return Invented(number, profile, due, prompt, output, seed)


def read_workload(path: str | Path) -> Workload:
    """Read a workload from a TOML file.

    A table for each type with ``share``, ``prompt``, ``output`` (tokens, on average), and in it a
    table for each source with ``alpha`` (a number, or a list by place) and optionally ``found``
    and ``spread``.

    Raises:
        InvalidValueError: the file cannot be read, or says what it cannot.
    """
    content = read_toml("workload", path)
    return Workload.of([_profile(name, table) for name, table in content.items()])


def _profile(name: str, table: Any) -> TypeProfile:
    where = f"workload {name}"
    if not isinstance(table, dict):
        raise InvalidValueError(where, table, f"write a table [{name}] for each type")
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    for key in plain:
        if key not in ("share", "prompt", "output"):
            raise InvalidValueError(where, key, "has share, prompt, output and a table a source")
    share = plain.get("share", 1.0)
    check_number(f"{where}: share", share, "must be a number above 0", 1e-9, 1e9)
    lengths = [plain.get(key, 256) for key in ("prompt", "output")]
    for key, value in zip(("prompt", "output"), lengths, strict=True):
        check_integer(f"{where}: {key}", value, 1, 1_000_000)
    guessing = {
        source: _guessing(f"{where}.{source}", entry)
        for source, entry in table.items()
        if isinstance(entry, dict)
    }
    return TypeProfile(name, float(share), lengths[0], lengths[1], guessing)


def _guessing(where: str, table: Mapping[str, Any]) -> Guessing:
    for key in table:
        if key not in ("alpha", "found", "spread"):
            raise InvalidValueError(where, key, "has the keys alpha, found and spread")
    alpha = table.get("alpha")
    alphas: list[Any] = alpha if isinstance(alpha, list) else [alpha]
    if not alphas:
        raise InvalidValueError(f"{where}: alpha", alpha, "give at least one number from 0 to 1")
    for one in alphas:
        check_number(f"{where}: alpha", one, "must be a number from 0 to 1", 0, 1)
    found, spread = table.get("found", 1.0), table.get("spread", 0.0)
    check_number(f"{where}: found", found, "must be a share from 0 to 1", 0, 1)
    check_number(f"{where}: spread", spread, "must be a number from 0 to 5", 0, 5)
    return Guessing(tuple(float(one) for one in alphas), float(found), float(spread))
