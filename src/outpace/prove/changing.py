"""Changing drafters in the midst of requests, more often than any controller would."""

from __future__ import annotations

from collections.abc import Sequence

from outpace.control.controller import Budget, Candidate, Hold, StepRecord


class ChangingController:
    """Gives each sequence the drafters that it may have in turn.

    Args:
        k: draft tokens a step.
        turn: steps for which each is kept.
    """

    hold = Hold()

    def __init__(self, k: int, turn: int = 3) -> None:
        self._k = k
        self._turn = turn
        self._steps: dict[int, int] = {}

    def budgets(self, candidates: Sequence[Candidate]) -> list[Budget]:
        """See `Controller.budgets`."""
        return [self._budget(one) for one in candidates]

    def _budget(self, one: Candidate) -> Budget:
        step = self._steps[one.seq_id] = self._steps.get(one.seq_id, -1) + 1
        names = one.choices or (one.drafter,)
        turns, into = divmod(step, self._turn)
        name = names[(one.seq_id + turns) % len(names)]
        why = "" if into else f"turn {turns}"
        return Budget(max(0, min(self._k, one.room)), drafter=name, why=why)

    def record(self, step: StepRecord) -> None:
        """Nothing is learned."""

    def forget(self, seq_id: int) -> None:
        """The sequence ended."""
        self._steps.pop(seq_id, None)
