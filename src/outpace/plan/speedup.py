"""Speed-up and throughput against the batch, and the load at which speculation stops paying."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from outpace.plan.mix import Mix
from outpace.plan.steps import Shape, StepTime


def no_draft_model(shape: Shape) -> float:
    """The step time of a drafter that computes nothing, such as lookup in the text."""
    del shape
    return 0.0


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and who drafts for it, under a mix of requests.

    Attributes:
        target: seconds of the target's forward passes, host work included.
        draft: seconds of the draft's, of which a chain of k tokens takes k.
        mix: fitted to the context.
        context: tokens that each sequence holds.
    """

    target: StepTime
    draft: StepTime
    mix: Mix
    context: int

    def step_seconds(self, batch: int, k: int) -> float:
        """Mean seconds of a step of ``batch`` sequences with k draft tokens each.

        Where the drafter has something to propose for a share of the steps only, the time lies
        between the plain and the full step in proportion; at batch 1 that is exact.
        """
        plain = self.target(Shape(batch, 1, self.context))
        if k == 0:
            return plain
        verify = self.target(Shape(batch, 1 + k, self.context))
        drafted = verify + k * self.draft(Shape(batch, 1, self.context))
        coverage = self.mix.coverage(k)
        return coverage * drafted + (1 - coverage) * plain

    def tokens_per_second(self, batch: int, k: int) -> float:
        """Tokens of all sequences together."""
        return batch * self.mix.tokens_per_step(k) / self.step_seconds(batch, k)

    def speedup(self, batch: int, k: int) -> float:
        """Tokens a second against plain decoding of the same batch; 1 at k = 0."""
        return self.tokens_per_second(batch, k) / self.tokens_per_second(batch, 0)

    def best_k(self, batch: int, ks: Sequence[int]) -> int:
        """The k with the most tokens a second; the smallest among equals."""
        return max(sorted(ks), key=lambda k: self.tokens_per_second(batch, k))

    def prefill_seconds(self, drafting: bool) -> float:
        """Seconds to compute a mean prompt, alone, by the target and the draft where it drafts."""
        prompt = max(round(self.mix.mean_prompt), 1)
        shape = Shape(1, prompt, prompt // 2, logits=1)
        return self.target(shape) + (self.draft(shape) if drafting else 0.0)


@dataclass(frozen=True, slots=True)
class Paying:
    """The batches for which something pays.

    Attributes:
        runs: first and last batch of each stretch, in order.
        crossing: the batch from which on it no longer pays; None if it pays up to the last one
            that was looked at, and 1 if it never pays.
        looked_at: the largest batch that was looked at.
    """

    runs: tuple[tuple[int, int], ...]
    crossing: int | None
    looked_at: int


def paying(speedup: Callable[[int], float], batches: Sequence[int], refine: bool) -> Paying:
    """Find where ``speedup(batch)`` is above 1.

    Args:
        speedup: for a batch.
        batches: ascending; what lies between two of them is taken to change at most once.
        refine: whether to find the exact border between two of them, for which speedup is then
            called with batches between.
    """
    above = [speedup(batch) > 1 for batch in batches]
    runs: list[tuple[int, int]] = []
    start = batches[0] if above[0] else None
    for i in range(1, len(batches)):
        if above[i] == above[i - 1]:
            continue
        low, high = batches[i - 1], batches[i]
        while refine and high - low > 1:
            middle = (low + high) // 2
            if (speedup(middle) > 1) == above[i - 1]:
                low = middle
            else:
                high = middle
        if above[i]:
            start = high
        elif start is not None:
            runs.append((start, low))
            start = None
    last = batches[-1]
    if start is not None:
        return Paying((*runs, (start, last)), None, last)
    if not runs:
        return Paying((), batches[0], last)
    end = runs[-1][1]
    crossing = end + 1 if refine else next(batch for batch in batches if batch > end)
    return Paying(tuple(runs), crossing, last)
