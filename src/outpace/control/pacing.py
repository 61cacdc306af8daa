"""Asking a controller once in several steps, where what it says would hardly change in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from outpace.control.controller import Budget, Candidate, Controller, StepRecord


class Pacing:
    """Holds a controller's budgets for as long as it says that they may be held.

    After each pass of a large model all that is not its weights has left the processor's caches,
    so that the first call of anything costs several times what the next ones do. What happened in
    the steps between is kept, and told step by step before the controller is asked again, or told
    that a sequence has ended: it learns the same in the same order.

    Args:
        controller: that decides.
    """

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self._whose: Sequence[int] = ()
        self._budgets: list[Budget] = []
        self._left = 0
        self._until: frozenset[tuple[int, str]] = frozenset()
        self._untold: list[StepRecord] = []

    def budgets(
        self,
        whose: Sequence[int],
        rooms: Sequence[int],
        candidates: Callable[[], Sequence[Candidate]],
    ) -> tuple[list[Budget], bool]:
        """A budget for each sequence, and whether the controller decided on them just now.

        Args:
            whose: the sequences; budgets are held for these very ones.
            rooms: how many draft tokens of each could be emitted; held budgets are cut to it.
            candidates: makes what the controller is asked about, in the same order.
        """
        if self._left > 0 and whose == self._whose and min(rooms, default=0) > 0:
            self._left -= 1
            pairs = zip(self._budgets, rooms, strict=True)
            return [one if one.tokens <= room else _cut(one, room) for one, room in pairs], False
        self.tell()
        self._whose, self._budgets = whose, self.controller.budgets(candidates())
        self._left, self._until = self.controller.hold.steps, self.controller.hold.until
        return self._budgets, True

    def record(self, step: StepRecord) -> None:
        """Keep what a step cost and brought, until the controller is told."""
        self._untold.append(step)
        if self._until and any(one.drafted and one.maker in self._until for one in step.outcomes):
            self._left = 0

    def forget(self, seq_id: int) -> None:
        """The sequence ended."""
        self.tell()
        self.controller.forget(seq_id)

    def tell(self) -> None:
        """Let the controller know all that happened, and ask it again before the next step."""
        self._left = 0
        untold, self._untold = self._untold, []
        for step in untold:
            self.controller.record(step)


def _cut(budget: Budget, most: int) -> Budget:
    by_source = {name: min(one, most) for name, one in budget.by_source.items()}
    return replace(budget, tokens=most, by_source=by_source)
