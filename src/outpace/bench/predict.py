"""What the speed-up should be, from the acceptance and the cost of steps alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from outpace.bench.record import SpeculationRecord
from outpace.control.cost import CostTable


def predicted_speedup(
    records: Sequence[SpeculationRecord], seconds_by_rows: Mapping[int, float], at_once: int
) -> float | None:
    """Predict tokens per second after the first token over those of plain decoding.

    With conditional acceptance alpha, a step that drafts k tokens brings 1 + alpha + … +
    alpha^k of them (Leviathan et al. 2023, arXiv 2211.17192, equation 1) at the price of a
    target step of 1 + k rows and of the drafting. A drafter may find nothing to propose at many
    steps, so k is taken as it was, step by step, and alpha is the one of all steps together:
    what the prediction does not know is at which steps tokens were accepted, how long a context
    costs, and the host's own time.

    Args:
        records: of one policy; ``draft_seconds`` must hold only what was drafted after the
            first token.
        seconds_by_rows: the cost table.
        at_once: sequences in a step, each with the same number of rows.

    Returns:
        None if nothing was drafted or something needed is not known.
    """
    accepted = sum(record.accepted for record in records)
    rejections = sum(record.rejections or 0 for record in records)
    if not seconds_by_rows or not accepted + rejections:
        return None
    if any(record.draft_seconds is None for record in records):
        return None
    alpha = accepted / (accepted + rejections)
    cost = CostTable(dict(seconds_by_rows))
    tokens = 0.0
    seconds = at_once * sum(record.draft_seconds or 0.0 for record in records)
    for length, steps in _draft_lengths(records).items():
        tokens += steps * sum(alpha**i for i in range(length + 1))
        seconds += steps * cost(at_once * (1 + length))
    return tokens * cost(at_once) / seconds if seconds > 0 else None


def _draft_lengths(records: Sequence[SpeculationRecord]) -> Counter[int]:
    """How many steps after the first token drafted how many tokens.

    A step that reached a depth was counted at every depth above it. The step that computes a
    prompt yields the first token and drafts nothing.
    """
    lengths: Counter[int] = Counter()
    for record in records:
        reached = (record.target_steps, *record.drafted_per_position, 0)
        for length in range(len(reached) - 1):
            lengths[length] += reached[length] - reached[length + 1]
    lengths[0] = max(0, lengths[0] - len(records))
    return lengths
