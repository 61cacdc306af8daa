"""What came of a realignment, for people and for programs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from outpace.align.decide import ALL, Verdict
from outpace.align.evaluate import Ran
from outpace.record.capture import Captured
from outpace.spec.statistics import wilson_interval


@dataclass(frozen=True, slots=True)
class Alpha:
    """How many of the guesses that were judged were right, with a 95 % interval."""

    accepted: int
    rejections: int

    @property
    def value(self) -> float | None:
        """None if nothing was judged."""
        judged = self.accepted + self.rejections
        return self.accepted / judged if judged else None

    def as_plain(self) -> dict[str, Any]:
        """A plain structure for JSON."""
        low, high = wilson_interval(self.accepted, self.accepted + self.rejections)
        return {"value": self.value, "low": low, "high": high}

    def __str__(self) -> str:
        return "-" if self.value is None else f"{self.value:.3f}"


def alphas(
    judged: Sequence[Captured], old: Sequence[Ran], new: Sequence[Ran]
) -> dict[str, tuple[Alpha, Alpha]]:
    """Before and after, by type, all together first."""
    kinds = sorted({one.request_type for one in judged})

    def of(kind: str, ran: Sequence[Ran]) -> Alpha:
        mine = [
            one for which, one in zip(judged, ran, strict=True) if kind in (ALL, which.request_type)
        ]
        return Alpha(sum(one.accepted for one in mine), sum(one.rejections for one in mine))

    return {kind: (of(kind, old), of(kind, new)) for kind in [ALL, *kinds]}


@dataclass(frozen=True, slots=True)
class Report:
    """What was done and what it brought.

    Attributes:
        model: the target.
        old, new: drafters, as they are written.
        verdict: whether the new one is offered, and by how much it is better by type.
        alphas: before and after, by type.
        trained_on: captured requests.
        judged_by: prompts that were not trained on.
        left_out: captured requests that were not used.
        tokens, steps, seconds: of training.
    """

    model: str
    old: str
    new: str
    verdict: Verdict
    alphas: dict[str, tuple[Alpha, Alpha]]
    trained_on: int
    judged_by: int
    left_out: int
    tokens: int
    steps: int
    seconds: float

    def as_plain(self) -> dict[str, Any]:
        """A plain structure for JSON."""
        plain: dict[str, Any] = {"model": self.model, "old": self.old, "new": self.new}
        plain |= self.verdict.as_plain()
        for one in plain["types"]:
            before, after = self.alphas[one["request_type"]]
            one |= {"old_alpha": before.as_plain(), "new_alpha": after.as_plain()}
        for name in ("trained_on", "judged_by", "left_out", "tokens", "steps", "seconds"):
            plain[name] = getattr(self, name)
        return plain

    def lines(self) -> list[str]:
        """For people."""
        head = f"{'type':<16} {'prompts':>7}  {'tokens a step':^15} {'alpha':^15}  new / old"
        table = [self._line(one) for one in self.verdict.types]
        reason = f"{self.verdict.reason[0].upper()}{self.verdict.reason[1:]}."
        learned = (
            f"Trained on {self.trained_on} requests ({self.tokens} tokens seen, {self.steps} "
            f"steps, {self.seconds:.0f} s); judged by {self.judged_by} prompts that were not "
            "trained on."
        )
        return [head, *table, learned, reason, *self._way_on()]

    def _line(self, one: Any) -> str:
        before, after = self.alphas[one.request_type]
        bounds = "" if one.low is None else f" ({one.low:.3f}-{one.high:.3f})"
        figures = f"{one.old:>6.2f} -> {one.new:<5.2f} {before} -> {after}  {one.ratio:.3f}{bounds}"
        return f"{one.request_type[:16]:<16} {one.prompts:>7}  {figures}"

    def _way_on(self) -> list[str]:
        if not self.verdict.offered:
            return []
        body = shlex.quote(f'{{"drafter": "{self.new}"}}')
        return [
            f"Use it: outpace serve --model {shlex.quote(self.model)} --drafter "
            f"{shlex.quote(self.new)}",
            "or, in a server that runs: curl http://127.0.0.1:8000/admin/drafters "
            f'-H "Authorization: Bearer $OUTPACE_ADMIN_KEY" --json {body}',
        ]
