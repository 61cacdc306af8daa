"""From single runs to rates, ratios and equality. Pure functions of what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from peers.measure import Run

ALL = "all tasks"


@dataclass(frozen=True)
class Figures:
    """What is said about one system.

    Attributes:
        rates: tokens a second by task, and over all tasks; the median over rounds.
        ratios: the same over the baseline's of the same round; the median over rounds.
        same: how many answers are equal to the system's own plain ones, of how many.
        unsteady: prompts whose answer was not the same in every round.
    """

    rates: dict[str, float]
    ratios: dict[str, float]
    same: tuple[int, int] | None
    unsteady: int


def rate(runs: Iterable[Run]) -> float | None:
    """All timed tokens over all their seconds; None if there were none."""
    timed, seconds = 0, 0.0
    for run in runs:
        timed += run.timed
        seconds += run.seconds
    return timed / seconds if timed and seconds else None


def figures(runs: Sequence[Run], system: str, plain: str, baseline: str) -> Figures:
    """What the runs say about one system."""
    tasks = [ALL, *dict.fromkeys(run.task for run in runs)]
    rates, ratios = {}, {}
    for task in tasks:
        own = _by_round(runs, system, task)
        other = _by_round(runs, baseline, task)
        both = own.keys() & other.keys()
        if own:
            rates[task] = median(own.values())
        if both:
            ratios[task] = median(own[number] / other[number] for number in both)
    answers, plain_answers = _answers(runs, system), _answers(runs, plain)
    shared = [name for name in answers if name in plain_answers]
    same = None
    if system != plain and shared:
        equal = sum(answers[name][0] == plain_answers[name][0] for name in shared)
        same = (equal, len(shared))
    unsteady = sum(any(a != many[0] for a in many) for many in answers.values())
    return Figures(rates, ratios, same, unsteady)


def _by_round(runs: Sequence[Run], system: str, task: str) -> dict[int, float]:
    rounds: dict[int, list[Run]] = {}
    for run in runs:
        if run.system == system and task in (ALL, run.task):
            rounds.setdefault(run.round, []).append(run)
    # A round that was interrupted has answered fewer prompts, so it compares with nothing.
    whole = max((len(found) for found in rounds.values()), default=0)
    found = {number: rate(many) for number, many in rounds.items() if len(many) == whole}
    return {number: value for number, value in found.items() if value is not None}


def _answers(runs: Sequence[Run], system: str) -> dict[str, list[list[int]]]:
    answers: dict[str, list[list[int]]] = {}
    for run in runs:
        if run.system == system and run.tokens is not None:
            answers.setdefault(run.prompt, []).append(run.tokens)
    return answers
