"""Hysteresis: when a batch goes over from drafting to silence and back."""

from __future__ import annotations

import math
from dataclasses import dataclass

# What staying may have cost, by the estimates, before the regime changes: in steps.
PATIENCE = 0.25
# Silent steps between a try and the next, which doubles as long as they change nothing.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 48, 384
# Failing tries may cost this share of the time.
_TRIES_SHARE = 0.006
# A single step's estimate counts at most so much: nobody changes on one of them.
_MOST = 0.26


@dataclass(slots=True)
class Regime:
    """Drafting or silent, changed only when staying has cost enough.

    Each step adds what the other regime would have saved by the estimates, in plain steps, and
    takes off what it would have cost, not below 0. The regime changes when a quarter of a step
    was lost. So an estimate that sways about the crossing by a hundredth changes it once in
    hundreds of steps (a random walk needs (0.25/0.01)^2 of them), a clear difference changes it
    at once, and what is lost by waiting is bounded by a quarter of a step for each change. This
    is the rule of buying skis when the rent has reached a share of their price (Karlin et al.
    1988), and Page's CUSUM (1954) read as one.

    Attributes:
        drafting: which of both it is; None until the first estimate decides.
        lost: by staying, so far.
        changes: how often it was changed.
        patience: plain steps that staying may cost.
        quiet: silent steps since the last draft or try.
        pause: silent steps before the next try.
    """

    drafting: bool | None = None
    lost: float = 0.0
    changes: int = 0
    patience: float = PATIENCE
    quiet: int = 0
    pause: int = _SHORTEST_PAUSE

    def decide(self, ratio: float, price: float = 0.0, steps: int = 1) -> bool:
        """Whether to draft.

        Args:
            ratio: expected tokens per second with the best drafts over those without; 0: nobody
                has a guess to make.
            price: of beginning to draft, in plain steps, once: drafters that were silent catch
                up. It is paid when staying silent has cost as much.
            steps: for which the regime has held since the last estimate.
        """
        if ratio <= 0:
            return False
        if self.drafting is None:
            self.drafting = ratio > 1
        saved = steps * math.log(ratio) * (-1 if self.drafting else 1)
        self.lost = max(self.lost + min(max(saved, -_MOST), _MOST), 0.0)
        if self.lost > self.patience + (0.0 if self.drafting else price):
            self.drafting = not self.drafting
            self.lost = 0.0
            self.changes += 1
            self.quiet, self.pause = 0, _SHORTEST_PAUSE
        return self.drafting

    def tries(self, cost: float, steps: int = 1) -> bool:
        """Whether a silent batch should make a draft in this step, to learn from it.

        Args:
            cost: of the try, should it fail, in plain steps.
            steps: that were silent since this was asked before.
        """
        self.quiet += steps
        if self.quiet < max(self.pause, cost / _TRIES_SHARE):
            return False
        self.quiet, self.pause = 0, min(2 * self.pause, _LONGEST_PAUSE)
        return True
