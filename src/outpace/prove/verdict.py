"""What a proof says in the end: checks, each with its figures, and the verdict they add up to."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """Of a check or of a whole report.

    ``INCONCLUSIVE`` is a check that could not have failed, for instance because nothing was
    drafted or because its negative control was not caught: it never counts as passed.
    """

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was tested: a sentence for people and figures for programs."""

    name: str
    status: Status
    summary: str
    figures: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Report:
    """All checks of a run, filled while they are made.

    Attributes:
        method: ``white box`` or ``black box``.
        subject: what was tested, in words and settings.
        limits: what this run cannot know, a sentence each.
        partial: whether it was stopped before all checks were made.
    """

    method: str
    subject: dict[str, Any]
    checks: list[Check] = field(default_factory=list)
    limits: list[str] = field(default_factory=list)
    partial: bool = False

    @property
    def status(self) -> Status:
        """Failed if any check failed, passed only if all were made and all passed."""
        found = {check.status for check in self.checks}
        if Status.FAILED in found:
            return Status.FAILED
        whole = bool(self.checks) and not self.partial
        return Status.PASSED if whole and found == {Status.PASSED} else Status.INCONCLUSIVE

    @property
    def verdict(self) -> str:
        """The outcome in one sentence."""
        count = len(self.checks)
        bad = [check.name for check in self.checks if check.status is Status.FAILED]
        open_ = [check.name for check in self.checks if check.status is Status.INCONCLUSIVE]
        if bad:
            text = f"FAILED: {_listed(bad)}"
        elif open_:
            text = f"INCONCLUSIVE: {_listed(open_)} could not have failed or could not be made"
        elif not self.checks:
            text = "INCONCLUSIVE: no check was made"
        else:
            text = f"PASSED: {'the check' if count == 1 else f'all {count} checks'}"
            if self.partial:
                text = f"INCONCLUSIVE: {count} checks passed, the others were not made"
        return f"{text} (partial: the run was stopped)." if self.partial else f"{text}."

    def as_dict(self) -> dict[str, Any]:
        """A plain structure for JSON."""
        return {
            "verdict": str(self.status),
            "sentence": self.verdict,
            "partial": self.partial,
            "method": self.method,
            "subject": self.subject,
            "checks": [
                {
                    "name": check.name,
                    "status": str(check.status),
                    "summary": check.summary,
                    **check.figures,
                }
                for check in self.checks
            ],
            "limits": self.limits,
        }


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"
