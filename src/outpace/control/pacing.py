"""Asking a controller once in several steps, where what it says would hardly change in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
        self._untold: list[StepRecord] = []

    def budgets(
        self, whose: Sequence[int], candidates: Callable[[], Sequence[Candidate]]
    ) -> tuple[list[Budget], bool]:
        """A budget for each sequence, and whether the controller decided on them just now.

        Args:
            whose: the sequences; budgets are held for these very ones.
            candidates: makes what the controller is asked about, in the same order.
        """
        if self._left > 0 and whose == self._whose:
            self._left -= 1
            return self._budgets, False
        self._tell()
        asked = candidates()
        self._whose, self._budgets = whose, self.controller.budgets(asked)
        pairs = zip(asked, self._budgets, strict=True)
        # A step emits at most the draft and one token more.
        rooms = [(one.room - budget.tokens) // (budget.tokens + 1) for one, budget in pairs]
        self._left = min([self.controller.holds, *rooms])
        return self._budgets, True

    def record(self, step: StepRecord) -> None:
        """Keep what a step cost and brought, until the controller is told."""
        self._untold.append(step)

    def forget(self, seq_id: int) -> None:
        """The sequence ended."""
        self._tell()
        self.controller.forget(seq_id)

    def _tell(self) -> None:
        untold, self._untold = self._untold, []
        for step in untold:
            self.controller.record(step)
