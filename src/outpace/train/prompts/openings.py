"""What conversations begin with, for a target that then goes on by itself.

The beginning of a user's turn ("Translate to French: ", "A train") names a kind of request, and the
target draws the rest: far more requests than templates could name, and still of many kinds.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from outpace.train.prompts import topics
from outpace.train.prompts.begun import BEGUN, SHARES, SYSTEMS, WORK
from outpace.train.prompts.code import functions
from outpace.train.prompts.generate import open_prompts
from outpace.train.prompts.templates import ABOUT_DOCUMENTS, ABOUT_SHARES

_FREE, _BEGUN, _ABOUT = 0.22, 0.58, 0.15  # the rest is from templates
_DOCUMENT_WORDS = (75, 120, 180, 240)


@dataclass(frozen=True, slots=True)
class Opening:
    """How one conversation begins.

    Attributes:
        kind: of request.
        user: the beginning of the user's turn, or all of it.
        whole: it is all of it.
        system: what the system's turn says; None: what the chat template says.
        temperature: at which the user's turn is drawn.
        user_tokens: the most that are drawn.
        answer_tokens: the most of an answer.
        turns: answers, if none is cut off before.
    """

    kind: str
    user: str = ""
    whole: bool = False
    system: str | None = None
    temperature: float = 1.0
    user_tokens: int = 120
    answer_tokens: int = 140
    turns: int = 1


def openings(seed: int, documents: Sequence[str]) -> Iterator[Opening]:
    """Endlessly, the same for the same seed; without documents, no request is about one."""
    rng = random.Random(seed)
    order = list(documents)
    rng.shuffle(order)
    templates = open_prompts(10**6, seed)
    turn = 0
    while True:
        drawn = rng.random()
        if drawn < _FREE:
            yield _free(rng)
        elif drawn < _FREE + _BEGUN:
            yield _begun(rng)
        elif drawn < _FREE + _BEGUN + _ABOUT and order:
            yield _about(rng, order[turn % len(order)], order[(turn + 1) % len(order)])
            turn += 2
        else:
            said = next(templates)
            yield Opening(said["kind"], said["prompt"], whole=True, answer_tokens=160)


def _temperature(rng: random.Random) -> float:
    return rng.choice((0.8, 0.9, 1.0, 1.0))


def _free(rng: random.Random) -> Opening:
    """Nothing is given, or a system's text that names the work."""
    system = None
    if rng.random() < 0.75:
        work = rng.choice(WORK).format(subject=rng.choice(topics.SUBJECTS))
        system = rng.choice(SYSTEMS).format(work=work)
    turns = 1 + (rng.random() < 0.25)
    return Opening("drawn", system=system, temperature=_temperature(rng), turns=turns)


def _begun(rng: random.Random) -> Opening:
    [kind] = rng.choices(list(SHARES), list(SHARES.values()))
    most = 120
    if kind == "qa":
        most = 40
    elif kind in ("rag", "summary", "rewriting", "extraction"):  # there the text comes first
        most = rng.choice((120, 200))
    turns = 1 + (rng.random() < 0.2)
    temperature = _temperature(rng)
    begin = rng.choice(BEGUN[kind])
    return Opening(kind, begin, temperature=temperature, user_tokens=most, turns=turns)


def _about(rng: random.Random, *documents: str) -> Opening:
    """A request about one text, two, or a function; the target draws the end of a question."""
    [kind] = rng.choices(list(ABOUT_SHARES), list(ABOUT_SHARES.values()))
    text = rng.choice(ABOUT_DOCUMENTS[kind])
    most = rng.choice(_DOCUMENT_WORDS) // max(1, text.count("{document}"))
    for document in documents:
        text = text.replace("{document}", " ".join(document.split(" ")[:most]).strip(), 1)
    text = text.replace("{subject}", rng.choice(topics.SUBJECTS))
    text = text.replace("{code}", rng.choice(functions()))
    asks = kind == "rag"
    temperature = 0.8 if asks else 1.0
    return Opening(kind, text, not asks, None, temperature, 24, 110)
