"""Made-up rows of a record: counts and times that are chosen, not measured."""

from __future__ import annotations

from typing import Any

from outpace.record.row import Decision, DraftCounts, Row, StepTimes

# Plain decoding takes so long for a token in all of them.
PLAIN = 0.01


def counts(
    accepted_at: tuple[int, ...] = (6, 4),
    rejected_at: tuple[int, ...] = (2, 2),
    steps: int = 10,
    **changes: Any,
) -> DraftCounts:
    """Counts that fit together: each step drafts one token for each position, or none."""
    accepted = sum(accepted_at)
    drafted_at = tuple(accepted_at[0] + rejected_at[0] for _ in accepted_at)
    plain: dict[str, Any] = {
        "drafter": "ngram",
        "steps": steps,
        "emitted": steps + accepted,
        "asked": sum(drafted_at),
        "drafted": sum(drafted_at),
        "accepted": accepted,
        "rejections": sum(rejected_at),
        "drafted_at": drafted_at,
        "accepted_at": accepted_at,
        "rejected_at": rejected_at,
        "reasons": {"ngram had nothing to propose": steps - drafted_at[0]},
    }
    return DraftCounts(**plain | changes)


def undrafted(drafter: str = "none", steps: int = 20, reason: str = "no drafter") -> DraftCounts:
    """A request that was decoded plainly."""
    return DraftCounts(drafter, steps, steps, reasons={reason: steps})


def row(
    number: int = 0,
    draft: DraftCounts | None = None,
    *,
    speedup: float = 2.0,
    load: int = 1,
    **changes: Any,
) -> Row:
    """One request, so many times faster than plain decoding by the cost table."""
    draft = counts() if draft is None else draft
    plain = draft.emitted * PLAIN
    spent = plain / speedup
    usual: dict[str, Any] = {
        "request_id": f"request-{number}",
        "arrived": 1_700_000_000.0 + number,
        "first_token_seconds": 0.05,
        "total_seconds": 0.05 + spent,
        "request_type": "code",
        "drafter": draft.drafter,
        "model": "demo",
        "verification": "coupled",
        "guarantee": "bit-exact",
        "finish_reason": "length",
        "prompt_tokens": 7,
        "completion_tokens": draft.emitted,
        "verify_seconds": 0.8 * spent,
        "draft_seconds": 0.1 * spent,
        "rest_seconds": 0.1 * spent,
        "features": {"temperature": 0.0},
        "decisions": (Decision(draft.drafter, "the engine's drafter"),),
        "drafts": (draft,),
        "times": StepTimes(
            steps={-50: draft.steps},
            tokens={-58: draft.emitted},
            clean_seconds=spent,
            clean_steps=draft.steps,
            clean_tokens=draft.emitted,
            sharing=load * draft.steps,
            plain_seconds=plain,
        ),
    }
    return Row(**usual | changes)
