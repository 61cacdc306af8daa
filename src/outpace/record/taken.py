"""From an ended request in the engine to its row."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from time import perf_counter

from outpace.control.automatic import AutomaticController
from outpace.control.choice import Costs
from outpace.control.controller import Controller
from outpace.control.routed import RoutedController
from outpace.engine.sequence import Sequence as EngineSequence
from outpace.record.row import Decision, DraftCounts, Row, StepTimes
from outpace.request import OTHER, Request
from outpace.spec.statistics import SpeculationCounts


def take_row(
    request: Request,
    sequences: Sequence[EngineSequence],
    controller: Controller,
    model: str,
    guarantee: str,
    prompt: str | None = None,
) -> Row:
    """The row of a request that has ended.

    Args:
        request: as it was asked.
        sequences: its samples.
        controller: the engine's; one that measures costs says what plain decoding would take.
        model: the target's name.
        guarantee: of the engine.
        prompt: its text; with it the answer of the first sample is kept too.
    """
    first = sequences[0]
    now, wall = perf_counter(), time.time()
    arrived = min(one.arrived for one in sequences)
    ended = max(one.finished_at or now for one in sequences)
    began = [one.first_token_at for one in sequences if one.first_token_at is not None]
    rule = first.verifier.name
    counts = [one.counts for one in sequences]
    reason = first.output.finish_reason
    return Row(
        request_id=request.request_id,
        arrived=wall - (now - arrived),
        first_token_seconds=min(began) - arrived if began else None,
        total_seconds=ended - arrived,
        request_type=request.request_type or OTHER,
        drafter=first.drafter,
        model=model,
        verification=rule,
        guarantee="distribution" if rule == "rejection" else guarantee,
        finish_reason="abort" if reason is None else reason.value,
        prompt_tokens=len(request.prompt_token_ids),
        completion_tokens=sum(len(one.output.token_ids) for one in sequences),
        cached_tokens=first.num_cached or 0,
        samples=len(sequences),
        preemptions=sum(one.num_preemptions for one in sequences),
        draft_seconds=sum(one.draft_seconds for one in counts),
        verify_seconds=sum(one.verify_seconds for one in counts),
        rest_seconds=sum(one.rest_seconds for one in counts),
        features=_features(request),
        decisions=_decisions(request, first),
        drafts=_drafts(sequences),
        times=_times(counts, controller, _mean_context(sequences)),
        prompt=prompt,
        answer=None if prompt is None else first.output.whole_text,
    )


def _decisions(request: Request, sequence: EngineSequence) -> tuple[Decision, ...]:
    """Who was chosen for its first sample, in order."""
    chosen = sequence.drafter_choices
    if not chosen:
        return (Decision(sequence.drafter, _why(request)),)
    return tuple(Decision(one.drafter, one.reason, one.at_token) for one in chosen)


def _drafts(sequences: Sequence[EngineSequence]) -> tuple[DraftCounts, ...]:
    """What each drafter did for all samples together, in the order in which they came."""
    found: dict[str, list[SpeculationCounts]] = {}
    for sequence in sequences:
        for name, counts in sequence.counts_by_drafter().items():
            found.setdefault(name, []).append(counts)
    return tuple(_draft_counts(name, counts) for name, counts in found.items())


def _why(request: Request) -> str:
    return "the engine's drafter" if request.drafter is None else "asked for by the request"


def _features(request: Request) -> dict[str, float | int | None]:
    params = request.params
    return {
        "temperature": params.temperature,
        "max_tokens": params.max_tokens,
        "prediction_tokens": len(request.prediction),
        "num_speculative_tokens": request.num_speculative_tokens,
    }


def _draft_counts(drafter: str, counts: Iterable[SpeculationCounts]) -> DraftCounts:
    drafted, accepted, rejected = Counter[int](), Counter[int](), Counter[int]()
    reasons = Counter[str]()
    total = SpeculationCounts()
    for one in counts:
        total.target_steps += one.target_steps
        total.emitted += one.emitted
        total.asked += one.asked
        total.drafted += one.drafted
        total.accepted += one.accepted
        total.rejections += one.rejections
        drafted += one.drafted_at
        accepted += one.accepted_at
        rejected += one.rejected_at
        reasons += one.off_reasons
    positions = range(1, max(drafted, default=0) + 1)
    return DraftCounts(
        drafter=drafter,
        steps=total.target_steps,
        emitted=total.emitted,
        asked=total.asked,
        drafted=total.drafted,
        accepted=total.accepted,
        rejections=total.rejections,
        drafted_at=tuple(drafted[i] for i in positions),
        accepted_at=tuple(accepted[i] for i in positions),
        rejected_at=tuple(rejected[i] for i in positions),
        reasons=dict(reasons),
    )


def _mean_context(sequences: Sequence[EngineSequence]) -> int:
    """Tokens before the middle of an answer."""
    return round(
        sum(one.num_prompt + len(one.output.token_ids) / 2 for one in sequences) / len(sequences)
    )


def _costs(controller: Controller) -> Costs | None:
    """What the controller knows of step times; None if it measures none."""
    if isinstance(controller, RoutedController):
        return _costs(controller.inner)
    return controller.costs if isinstance(controller, AutomaticController) else None


def _times(counts: Sequence[SpeculationCounts], controller: Controller, context: int) -> StepTimes:
    steps, tokens = Counter[int](), Counter[int]()
    for one in counts:
        steps += one.pace.steps
        tokens += one.pace.tokens
    clean_steps = sum(one.pace.clean_steps for one in counts)
    clean_tokens = sum(one.pace.clean_tokens for one in counts)
    sharing = sum(one.pace.sharing for one in counts)
    plain = None
    if clean_steps and (costs := _costs(controller)) is not None:
        company = max(1, round(sharing / clean_steps))
        plain = clean_tokens * costs.plain([context] * company)
    return StepTimes(
        steps=dict(sorted(steps.items())),
        tokens=dict(sorted(tokens.items())),
        clean_seconds=sum(one.pace.clean_seconds for one in counts),
        clean_steps=clean_steps,
        clean_tokens=clean_tokens,
        sharing=sharing,
        plain_seconds=plain,
    )
