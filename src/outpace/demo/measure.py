"""Decoding a prompt plainly and with drafters, alternately, and holding the tokens together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median_low
from time import perf_counter
from typing import TYPE_CHECKING

from outpace.demo.kinds import Kind
from outpace.request import RequestOutput, SamplingParams

if TYPE_CHECKING:
    from outpace.llm import LLM

PLAIN = "none"


@dataclass(frozen=True, slots=True)
class Run:
    """What one drafter did for one prompt.

    Attributes:
        drafter: its name.
        result: of the repeat with the median time.
        seconds: that time, from the request to the last token.
        repeats: how many there were.
        spread: the longest of the repeats' times as a multiple of the shortest.
        identical: whether every repeat gave exactly the tokens of the first plain one.
    """

    drafter: str
    result: RequestOutput
    seconds: float
    repeats: int
    spread: float
    identical: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """One kind of request, plain and with each drafter."""

    kind: Kind
    plain: Run
    drafted: tuple[Run, ...]

    @property
    def identical(self) -> bool:
        """Whether no run gave another token."""
        return all(run.identical for run in (self.plain, *self.drafted))

    def time_ratio(self, run: Run) -> float:
        """How many times faster than plain decoding; below 1 it was slower."""
        return self.plain.seconds / run.seconds


def drafters_for(kind: Kind, configured: str) -> list[str]:
    """Return the drafters worth showing for a kind: usual ones, and the configured one."""
    names = ["ngram"]
    if kind.prediction is not None:
        names.append("prediction")
    if configured not in (PLAIN, "ngram", "prediction"):
        names.append(configured)
    return names


def compare(
    llm: LLM,
    kind: Kind,
    drafters: Sequence[str],
    params: SamplingParams,
    repeats: int,
    on_run: Callable[[], None] = lambda: None,
    patience: float = float("inf"),
) -> Comparison:
    """Decode a prompt ``repeats`` times in each way, or until ``patience`` seconds are over.

    The ways take turns, each repeat in the opposite order of the last, so that a machine that
    grows busy or hot is as bad for all. A first run that is not counted puts the prompt into the
    cache: what remains is the time in which the answer is made.
    """
    prompt: str | list[int] = kind.prompt
    if llm.tokenizer.chat_template is not None:
        prompt = llm.tokenizer.encode_chat([{"role": "user", "content": kind.prompt}])
    llm.generate([prompt], replace(params, max_tokens=1, min_tokens=0), drafter=PLAIN)
    ways = [PLAIN, *drafters]
    results: dict[str, list[RequestOutput]] = {way: [] for way in ways}
    began = perf_counter()
    for repeat in range(repeats):
        if repeat > 0 and perf_counter() - began > patience:
            break
        for way in ways if repeat % 2 == 0 else reversed(ways):
            results[way] += llm.generate([prompt], params, drafter=way, prediction=kind.prediction)
            on_run()
    expected = results[PLAIN][0].token_ids
    runs = [_summary(way, results[way], expected) for way in ways]
    return Comparison(kind, runs[0], tuple(runs[1:]))


def _summary(way: str, results: list[RequestOutput], expected: tuple[int, ...]) -> Run:
    seconds = median_low(result.timing.total_seconds for result in results)
    chosen = next(result for result in results if result.timing.total_seconds == seconds)
    same = all(result.token_ids == expected for result in results)
    times = [result.timing.total_seconds for result in results]
    return Run(way, chosen, seconds, len(results), max(times) / min(times), same)
