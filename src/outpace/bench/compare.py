"""Two runs side by side: faster, slower, or no difference shown."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from outpace.bench.figures import ALL, repeat_spread, times
from outpace.bench.intervals import Ratio, time_ratio
from outpace.bench.record import Record
from outpace.bench.result import Result, ResultError

FASTER, SLOWER, NONE = "faster", "slower", "no difference shown"
# What must be the same for two runs to have asked for the same work.
_SETTINGS = ("max_tokens", "temperature", "seed", "ignore_eos", "workload_fingerprint")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What can be said about one policy, arrival and task.

    Attributes:
        ratio: how many times faster the second run was, on prompts with the same answer.
        margin: what its interval was widened by on both sides, as a factor: two runs were at
            different times, and a machine drifts.
        low, high: the widened interval; None from a single prompt.
        other_answers: prompts of both runs that were left out because their answers differ.
    """

    arrival: str
    policy: str
    task: str
    ratio: Ratio
    margin: float
    low: float | None
    high: float | None
    other_answers: int

    @property
    def verdict(self) -> str:
        """``faster``, ``slower`` or ``no difference shown``, of the second run."""
        if self.low is not None and self.low > 1:
            return FASTER
        if self.high is not None and self.high < 1:
            return SLOWER
        return NONE

    def as_dict(self) -> dict[str, Any]:
        """A plain structure for JSON."""
        return {
            "arrival": self.arrival,
            "policy": self.policy,
            "task": self.task,
            "ratio": self.ratio.value,
            "low": self.low,
            "high": self.high,
            "margin": self.margin,
            "prompts": self.ratio.prompts,
            "prompts_with_other_answers": self.other_answers,
            "verdict": self.verdict,
        }


def compare(
    first: Result, second: Result, *, margin: float = 1.03, across_machines: bool = False
) -> list[Verdict]:
    """Judge the second run against the first, for every policy and arrival that both have.

    The interval of the ratio is widened by how much equal repeats of either run differed, and
    at least by ``margin``, since two runs never meet the same machine.

    Args:
        first: the run before.
        second: the run after.
        margin: a factor of at least 1.
        across_machines: let runs of different processors be compared.

    Raises:
        ResultError: the runs are not comparable; the text says why.
    """
    _check_comparable(first, second, across_machines)
    verdicts = []
    for arrival, policy in _common(first, second):
        before = _members(first, arrival, policy)
        after = _members(second, arrival, policy)
        drift = max(margin, repeat_spread(before) or 1.0, repeat_spread(after) or 1.0)
        for task in (ALL, *dict.fromkeys(record.task for record in before)):
            verdict = _verdict(arrival, policy, task, before, after, drift)
            if verdict is not None:
                verdicts.append(verdict)
    if not verdicts:
        raise ResultError(
            "not comparable: no prompt got the same answer in both runs, so there is no work "
            "that both did"
        )
    return verdicts


def _verdict(
    arrival: str,
    policy: str,
    task: str,
    before: list[Record],
    after: list[Record],
    margin: float,
) -> Verdict | None:
    ours = [record for record in before if task in (ALL, record.task)]
    theirs = [record for record in after if task in (ALL, record.task)]
    answers = _answers(ours), _answers(theirs)
    common = answers[0].keys() & answers[1].keys()
    same = {prompt for prompt in common if answers[0][prompt] == answers[1][prompt]}
    ratio = time_ratio(
        times([record for record in ours if record.prompt in same]),
        times([record for record in theirs if record.prompt in same]),
    )
    if ratio is None:
        return None
    low = None if ratio.low is None else ratio.low / margin
    high = None if ratio.high is None else ratio.high * margin
    left_out = len(common) - len(same)
    return Verdict(arrival, policy, task, ratio, margin, low, high, left_out)


def _check_comparable(first: Result, second: Result, across_machines: bool) -> None:
    for name in ("kind", "model"):
        one, other = first.target.get(name), second.target.get(name)
        if one != other:
            _refuse(f"the first run measured the {name} {one}, the second {other}")
    for name in _SETTINGS:
        one, other = first.settings.get(name), second.settings.get(name)
        if one != other:
            words = name.replace("_", " ")
            _refuse(f"{words} is {one} in the first run and {other} in the second")
    one, other = first.machine.get("processor"), second.machine.get("processor")
    if one != other and not across_machines:
        _refuse(
            f"the first run was on {one}, the second on {other}; give --across-machines to "
            "compare the machines themselves"
        )
    if not first.records or not second.records:
        _refuse("one of the runs has measured nothing")
    if not _common(first, second):
        _refuse(
            "they have no policy and arrival in common: "
            f"{', '.join(first.policies)} against {', '.join(second.policies)}"
        )


def _refuse(reason: str) -> None:
    raise ResultError(f"not comparable: {reason}")


def _common(first: Result, second: Result) -> list[tuple[str, str]]:
    there = {(record.arrival, record.policy) for record in second.records}
    ours = dict.fromkeys((record.arrival, record.policy) for record in first.records)
    return [pair for pair in ours if pair in there]


def _members(result: Result, arrival: str, policy: str) -> list[Record]:
    return [r for r in result.records if (r.arrival, r.policy) == (arrival, policy)]


def _answers(records: list[Record]) -> dict[Hashable, set[str]]:
    answers: dict[Hashable, set[str]] = {}
    for record in records:
        answers.setdefault(record.prompt, set()).add(record.answer_digest)
    return answers
