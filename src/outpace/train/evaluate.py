"""Acceptance on prompts that were not trained on, live: by position and kind of request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from outpace.bench.workload import Entry, load
from outpace.config import DrafterConfig, DraftShape, EagleConfig, parse_drafter
from outpace.llm import LLM
from outpace.request import RequestOutput, SamplingParams, Speculation
from outpace.spec.statistics import wilson_interval

ALL = "all"


@dataclass(slots=True)
class Acceptance:
    """What became of drafts of one kind of request.

    Attributes:
        requests: how many.
        emitted: tokens.
        steps: target steps.
        accepted: draft tokens.
        rejections: drafts in which one lost.
        drafted_at: drafts that reached a position, by position from the first.
        accepted_at: drafts of which all tokens up to a position were accepted.
    """

    requests: int = 0
    emitted: int = 0
    steps: int = 0
    accepted: int = 0
    rejections: int = 0
    drafted_at: list[int] = field(default_factory=list)
    accepted_at: list[int] = field(default_factory=list)

    def add(self, record: Speculation, emitted: int) -> None:
        """Count one answer."""
        self.requests += 1
        self.emitted += emitted
        self.steps += record.target_steps
        self.accepted += record.accepted
        self.rejections += record.rejections
        for mine, more in (
            (self.drafted_at, record.drafted_per_position),
            (self.accepted_at, record.accepted_per_position),
        ):
            mine.extend([0] * (len(more) - len(mine)))
            for position, count in enumerate(more):
                mine[position] += count

    @property
    def acceptance_length(self) -> float:
        """Emitted tokens a target step, its own counted."""
        return self.emitted / self.steps if self.steps else 0.0

    @property
    def alpha(self) -> float | None:
        """Accepted of all that were judged."""
        judged = self.accepted + self.rejections
        return self.accepted / judged if judged else None

    @property
    def alpha_interval(self) -> tuple[float, float]:
        """95 %."""
        return wilson_interval(self.accepted, self.accepted + self.rejections)

    def alpha_at(self) -> list[tuple[float, float, float]]:
        """By position: how often it held where all before it had, with a 95 % interval."""
        rows = []
        reached = self.drafted_at[:1]
        for drafted, accepted in zip(self.drafted_at, self.accepted_at, strict=False):
            trials = min(drafted, reached[-1])
            if trials == 0:
                break
            low, high = wilson_interval(accepted, trials)
            rows.append((accepted / trials, low, high))
            reached.append(accepted)
        return rows

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        positions = [
            {"alpha": round(a, 4), "interval": [round(low, 4), round(high, 4)]}
            for a, low, high in self.alpha_at()
        ]
        return {
            "requests": self.requests,
            "tokens": self.emitted,
            "target_steps": self.steps,
            "acceptance_length": round(self.acceptance_length, 4),
            "alpha": self.alpha,
            "alpha_interval": list(self.alpha_interval),
            "alpha_per_position": positions,
        }


def evaluate(
    llm: LLM,
    entries: Sequence[Entry],
    max_tokens: int,
    temperature: float = 0.0,
    on_progress: Callable[[int, int], None] | None = None,
) -> dict[str, Acceptance]:
    """Answer prompts with an LLM's own drafter; the counts by task, all of them first.

    Args:
        llm: with the drafter in question and a fixed number of draft tokens.
        entries: prompts by task.
        max_tokens: of an answer.
        temperature: 0 is greedy.
        on_progress: called with (finished, all).
    """
    prompts = [llm.tokenizer.encode_chat(entry.conversation) for entry in entries]
    params = SamplingParams(temperature=temperature, seed=0, max_tokens=max_tokens)
    results = llm.generate(prompts, params, on_progress=on_progress)
    found = {ALL: Acceptance()}
    for entry, result in zip(entries, results, strict=True):
        for kind in (ALL, entry.task):
            found.setdefault(kind, Acceptance()).add(result.speculative, _emitted(result))
    return found


def _emitted(result: RequestOutput) -> int:
    return len(result.token_ids)


def evaluate_drafters(
    drafters: Sequence[str],
    model: str,
    chosen: tuple[str, Sequence[str], int],
    max_tokens: int,
    temperature: float,
    on_progress: Callable[[str, float], None],
    shape: DraftShape = "auto",
    **engine: Any,
) -> dict[str, dict[str, Acceptance]]:
    """Evaluate drafters by their spellings, one after the other on the same prompts.

    Args:
        drafters: such as ``eagle:FOLDER``.
        model: the target.
        chosen: a workload, its tasks (none: all) and the most prompts of each.
        max_tokens: of an answer.
        temperature: 0 is greedy.
        on_progress: called with a drafter and its share done.
        shape: of what an EAGLE head drafts.
        engine: options of `LLM`.

    Raises:
        OutpaceError: a drafter, the model or the workload cannot be used.
    """
    workload, tasks, per_task = chosen
    entries = load(workload).selected(tasks, per_task).entries
    configs = {name: _shaped(name, shape) for name in drafters}  # all, before one is loaded
    found = {}
    for name, config in configs.items():
        on_progress(name, 0.0)
        llm = LLM(model, config, **engine)

        def progress(done: int, whole: int, name: str = name) -> None:
            on_progress(name, done / whole)

        found[name] = evaluate(llm, entries, max_tokens, temperature, progress)
    return found


def _shaped(name: str, shape: DraftShape) -> DrafterConfig:
    config = parse_drafter(name)
    return replace(config, shape=shape) if isinstance(config, EagleConfig) else config
