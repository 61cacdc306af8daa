"""How many draft tokens each sequence gets in a step: the seam, and two simple answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from outpace.control.cost import CostTable

LARGEST_AUTOMATIC_K = 15


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sequence that could be drafted for in this step.

    ``room`` is how many draft tokens could be emitted before a limit is reached, ``requested``
    the request's own k if it has one.
    """

    seq_id: int
    drafter: str
    room: int
    requested: int | None


@dataclass(frozen=True, slots=True)
class Budget:
    """The most draft tokens for a sequence, and if none, why."""

    tokens: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one sequence's draft brought: nodes drafted, accepted, and whether one lost."""

    seq_id: int
    drafter: str
    drafted: int
    accepted: int
    rejected: bool


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step in numbers. ``rows`` is None when prompt pieces make its time incomparable."""

    rows: int | None
    verify_seconds: float
    draft_seconds: float
    outcomes: tuple[Outcome, ...]


class Controller(Protocol):
    """Numbers in, budgets out."""

    def budgets(self, candidates: Sequence[Candidate]) -> list[Budget]:
        """A budget for each candidate, in their order, for the coming step."""
        ...

    def record(self, step: StepRecord) -> None:
        """Learn what the step cost and brought."""
        ...

    def forget(self, seq_id: int) -> None:
        """The sequence ended."""
        ...


def limited(tokens: int, candidate: Candidate) -> Budget:
    """``tokens``, or the request's own k, as far as there is room; says why if nothing is left."""
    if candidate.drafter == "none":
        return Budget(0, "no drafter")
    if candidate.requested is not None:
        tokens = candidate.requested
    if tokens == 0:
        return Budget(0, "num_speculative_tokens is 0")
    if candidate.room < 1:
        return Budget(0, "no room before max_tokens or the end of the context")
    return Budget(min(tokens, candidate.room))


class FixedController:
    """The same k for every sequence, within the room it has."""

    def __init__(self, num_speculative_tokens: int) -> None:
        self._tokens = num_speculative_tokens

    def budgets(self, candidates: Sequence[Candidate]) -> list[Budget]:
        """See `Controller.budgets`."""
        return [limited(self._tokens, candidate) for candidate in candidates]

    def record(self, step: StepRecord) -> None:
        """A fixed k learns nothing."""

    def forget(self, seq_id: int) -> None:
        """Nothing to forget."""


@dataclass(slots=True)
class _Acceptance:
    """Decayed counts of accepted draft tokens and of steps that ended in a rejection."""

    accepted: float = 0.0
    rejected: float = 0.0
    quiet: int = 0  # steps for which drafting was off
    patience: int = 8  # quiet steps before the next try

    def add(self, accepted: int, rejected: bool, decay: float) -> None:
        self.accepted = self.accepted * decay + accepted
        self.rejected = self.rejected * decay + rejected

    def alpha(self, prior: float, strength: float) -> float:
        """Posterior mean of the conditional acceptance under a Beta prior of that strength."""
        trials = self.accepted + self.rejected
        return (self.accepted + prior * strength) / (trials + strength)


@dataclass(slots=True)
class AutomaticController:
    """Chooses k for each sequence from its own acceptance and the measured step times.

    With conditional acceptance alpha, k draft tokens bring E = (1 - alpha^(k+1)) / (1 - alpha)
    tokens (Leviathan et al. 2023, equation 1) at the cost of a forward pass of 1 + k rows and k
    draft steps; the k with the most tokens per second wins, and it may be 0. A sequence whose
    k is 0 tries again with a single token after a pause that doubles each time it fails.

    Args:
        cost: seconds of a target step by rows.
    """

    cost: CostTable
    _sequences: dict[int, _Acceptance] = field(default_factory=dict)
    _drafters: dict[str, _Acceptance] = field(default_factory=dict)
    _draft_seconds: float = 0.0

    def budgets(self, candidates: Sequence[Candidate]) -> list[Budget]:
        """See `Controller.budgets`."""
        return [self._budget(candidate, len(candidates)) for candidate in candidates]

    def _budget(self, candidate: Candidate, batch: int) -> Budget:
        most = limited(LARGEST_AUTOMATIC_K, candidate)
        if most.tokens == 0 or candidate.requested is not None:
            return most
        own = self._sequences.setdefault(candidate.seq_id, _Acceptance())
        best = self._best_k(self._alpha(candidate, own), most.tokens, batch)
        if best > 0:
            own.quiet = 0
            return Budget(best)
        own.quiet += 1
        if own.quiet >= own.patience:
            own.quiet, own.patience = 0, min(own.patience * 2, 128)
            return Budget(1)
        return Budget(0, "drafting costs more than it brings here")

    def _alpha(self, candidate: Candidate, own: _Acceptance) -> float:
        everyone = self._drafters.setdefault(candidate.drafter, _Acceptance())
        return own.alpha(prior=everyone.alpha(prior=0.6, strength=8), strength=6)

    def _best_k(self, alpha: float, most: int, batch: int) -> int:
        def tokens_per_second(k: int) -> float:
            expected = sum(alpha**i for i in range(k + 1))
            return expected / (self.cost(batch * (1 + k)) + k * self._draft_seconds)

        return max(range(most + 1), key=tokens_per_second)

    def record(self, step: StepRecord) -> None:
        """See `Controller.record`."""
        if step.rows is not None:
            self.cost.correct(step.rows, step.verify_seconds)
        drafted = sum(outcome.drafted for outcome in step.outcomes)
        if drafted:
            self._draft_seconds += 0.1 * (step.draft_seconds / drafted - self._draft_seconds)
        for outcome in step.outcomes:
            if outcome.drafted == 0:
                continue
            own = self._sequences.setdefault(outcome.seq_id, _Acceptance())
            own.add(outcome.accepted, outcome.rejected, decay=0.9)
            if outcome.accepted:
                own.patience = 8
            everyone = self._drafters.setdefault(outcome.drafter, _Acceptance())
            everyone.add(outcome.accepted, outcome.rejected, decay=0.998)

    def forget(self, seq_id: int) -> None:
        """See `Controller.forget`."""
        self._sequences.pop(seq_id, None)
