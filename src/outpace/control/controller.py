"""How many draft tokens each sequence gets in a step: the seam, and a fixed answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from outpace.request import OTHER

LARGEST_AUTOMATIC_K = 15
# Steps for which budgets are held at most.
LONGEST_HOLD = 16


@dataclass(frozen=True, slots=True)
class Candidate:
    """A sequence that could be drafted for in this step.

    ``room`` is how many draft tokens could be emitted before a limit is reached, ``requested``
    the request's own k if it has one, ``context`` how many tokens it has so far. ``sources``
    are those that the drafter asks, in this order, until one has a draft; empty: itself alone.

    ``request_type`` is its type, ``choices`` are the drafters that it may be given instead of its
    own; empty where the client chose. ``idle``: it brings nothing that its drafter follows.
    """

    seq_id: int
    drafter: str
    room: int
    requested: int | None
    context: int = 0
    sources: tuple[str, ...] = ()
    request_type: str = OTHER
    choices: tuple[str, ...] = ()
    idle: bool = False


@dataclass(frozen=True, slots=True)
class Budget:
    """The most draft tokens for a sequence, and if none, why.

    ``by_source`` has the most for single sources of the drafter, where they differ; others have
    all of ``tokens``. A source with 0 is not asked. ``drafter`` names the one that the sequence
    has from this step on; empty: the one that it had. ``why`` says why, in the step in which it was
    decided, also where the drafter stays the same.
    """

    tokens: int
    reason: str = ""
    by_source: Mapping[str, int] = field(default_factory=dict)
    drafter: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class Hold:
    """For how long budgets may be held.

    Attributes:
        steps: further ones at most.
        until: sequences with sources whose next draft is news, however it fares.
    """

    steps: int = 0
    until: frozenset[tuple[int, str]] = frozenset()

    def and_also(self, other: Hold) -> Hold:
        """For as long as both say."""
        return Hold(min(self.steps, other.steps), self.until | other.until)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one sequence's part in a step brought.

    Attributes:
        seq_id: the sequence.
        drafter: its drafter.
        drafted: nodes of its draft.
        accepted: how many of them were emitted.
        rejected: whether a draft token lost against the target's choice.
        asked: draft tokens that the drafter was asked for; 0 if it was not asked.
        emitted: all tokens that left, the target's own included.
        context: tokens that it had before the step.
        source: who made the draft; empty if there is none, or the drafter has a single source.
    """

    seq_id: int
    drafter: str
    drafted: int
    accepted: int
    rejected: bool
    asked: int = 0
    emitted: int = 1
    context: int = 0
    source: str = ""

    @property
    def maker(self) -> tuple[int, str]:
        """The sequence, and who made its draft."""
        return self.seq_id, self.source or self.drafter


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step in numbers. ``rows`` is None when prompt pieces make its time incomparable.

    ``verify_seconds`` is the target's forward pass, ``drafting`` what each source took to propose,
    and ``rest_seconds`` what the step took beside these two.
    """

    rows: int | None
    verify_seconds: float
    drafting: Mapping[str, float]
    outcomes: tuple[Outcome, ...]
    rest_seconds: float = 0.0

    @property
    def draft_seconds(self) -> float:
        """All proposing."""
        return sum(self.drafting.values())


class Controller(Protocol):
    """Numbers in, budgets out."""

    @property
    def hold(self) -> Hold:
        """For how long the last budgets may be held, as long as the sequences are the same."""
        ...

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
    if candidate.idle:
        return Budget(0, f"the request brings nothing that {candidate.drafter} follows")
    if candidate.requested is not None:
        tokens = candidate.requested
    if tokens == 0:
        return Budget(0, "num_speculative_tokens is 0")
    if candidate.room < 1:
        return Budget(0, "no room before max_tokens or the end of the context")
    return Budget(min(tokens, candidate.room))


class FixedController:
    """The same k for every sequence, within the room it has."""

    hold = Hold(LONGEST_HOLD)

    def __init__(self, num_speculative_tokens: int) -> None:
        self._tokens = num_speculative_tokens

    def budgets(self, candidates: Sequence[Candidate]) -> list[Budget]:
        """See `Controller.budgets`."""
        return [limited(self._tokens, candidate) for candidate in candidates]

    def record(self, step: StepRecord) -> None:
        """A fixed k learns nothing."""

    def forget(self, seq_id: int) -> None:
        """Nothing to forget."""
