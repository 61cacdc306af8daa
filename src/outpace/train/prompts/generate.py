"""Fills the gaps of templates, the same way for the same seed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from outpace.train.prompts import topics
from outpace.train.prompts.code import functions
from outpace.train.prompts.templates import ABOUT_A_TEXT, OPEN

_GAP = re.compile(r"\{(\w+)\}")
# Of the kinds of OPEN: how often each is drawn.
SHARES = {
    "chat": 20,
    "writing": 22,
    "code": 20,
    "qa": 12,
    "math": 16,
    "translation": 4,
    "editing": 6,
}
_SHARES_ABOUT = {"summary": 40, "extraction": 25, "rag": 20, "rewriting": 15}


def open_prompts(count: int, seed: int) -> Iterator[dict[str, str]]:
    """Requests that need no text, as ``{"kind": …, "prompt": …}``, without repetition."""
    yield from _prompts(OPEN, SHARES, count, random.Random(seed), {})


def prompts_about(texts: Sequence[str], count: int, seed: int) -> Iterator[dict[str, str]]:
    """Requests about given texts: summary, extraction, reading, rewriting.

    Args:
        texts: each is used for several requests if there are fewer than ``count``.
        count: how many.
        seed: another seed makes other requests.
    """
    rng = random.Random(seed)
    order = list(texts)
    rng.shuffle(order)
    turn = 0

    def passage(_: random.Random) -> str:
        nonlocal turn
        turn += 1
        return order[turn % len(order)]

    yield from _prompts(ABOUT_A_TEXT, _SHARES_ABOUT, count, rng, {"passage": passage})


def _prompts(
    templates: Mapping[str, Sequence[str]],
    shares: Mapping[str, int],
    count: int,
    rng: random.Random,
    more: Mapping[str, Callable[[random.Random], str]],
) -> Iterator[dict[str, str]]:
    seen: set[str] = set()
    kinds, weights = list(shares), list(shares.values())
    misses = 0
    while len(seen) < count and misses < 50 * count:
        [kind] = rng.choices(kinds, weights)
        prompt = _filled(rng.choice(templates[kind]), rng, more)
        if prompt in seen:
            misses += 1
            continue
        seen.add(prompt)
        yield {"kind": kind, "prompt": prompt}


def _filled(
    template: str, rng: random.Random, more: Mapping[str, Callable[[random.Random], str]]
) -> str:
    fillers = {**_FILLERS, **more}
    return _GAP.sub(lambda gap: fillers[gap[1]](rng), template)


def _one_of(choices: Sequence[str]) -> Callable[[random.Random], str]:
    return lambda rng: rng.choice(choices)


def _between(low: int, high: int) -> Callable[[random.Random], str]:
    return lambda rng: str(rng.randint(low, high))


_FILLERS: dict[str, Callable[[random.Random], str]] = {
    "subject": _one_of(topics.SUBJECTS),
    "task": _one_of(topics.TASKS),
    "language": _one_of(topics.LANGUAGES),
    "person": _one_of(topics.PEOPLE),
    "place": _one_of(topics.PLACES),
    "things": _one_of(topics.THINGS),
    "role": _one_of(topics.ROLES),
    "tongue": _one_of(topics.TONGUES),
    "sentence": lambda rng: rng.choice(topics.SENTENCES).rstrip("?"),
    "small": _between(2, 12),
    "number": _between(8, 60),
    "tens": _between(15, 90),
    "hundred": _between(100, 400),
    "code": lambda rng: rng.choice(functions()),
}
