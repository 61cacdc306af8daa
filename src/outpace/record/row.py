"""What is kept of one request: plain values, and the way to and from a line of a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, get_type_hints


@dataclass(frozen=True, slots=True)
class Decision:
    """Who was chosen to draft, from which emitted token on, and why, in words."""

    drafter: str
    reason: str
    at_token: int = 0


@dataclass(frozen=True, slots=True)
class DraftCounts:
    """What one drafter did for a request.

    Attributes:
        drafter: its name.
        steps: target steps that yielded tokens.
        emitted: tokens that they yielded.
        asked: draft tokens that the controller allowed.
        drafted: nodes of all drafts.
        accepted: how many of them were emitted.
        rejections: steps at which the target chose otherwise than the draft.
        drafted_at, accepted_at, rejected_at: steps by draft position; index 0 is the first. A
            guess was *tried* at a position if it was accepted or rejected there.
        reasons: why nothing was drafted, with the number of steps.
    """

    drafter: str
    steps: int
    emitted: int
    asked: int = 0
    drafted: int = 0
    accepted: int = 0
    rejections: int = 0
    drafted_at: tuple[int, ...] = ()
    accepted_at: tuple[int, ...] = ()
    rejected_at: tuple[int, ...] = ()
    reasons: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Times of a request's steps; buckets are those of `outpace.spec.pace`.

    Attributes:
        steps, tokens: counts by bucket: of whole steps, and of tokens with their share of a step.
        clean_seconds, clean_steps, clean_tokens: of steps without a piece of a prompt in them.
        sharing: sequences in the clean steps, added up: over ``clean_steps`` it is the load.
        plain_seconds: what the clean tokens would have taken without drafts, by the cost table;
            None without a table.
    """

    steps: Mapping[int, int] = field(default_factory=dict)
    tokens: Mapping[int, int] = field(default_factory=dict)
    clean_seconds: float = 0.0
    clean_steps: int = 0
    clean_tokens: int = 0
    sharing: int = 0
    plain_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One request.

    Attributes:
        request_id: the engine's or the server's.
        arrived: seconds since 1970, UTC.
        first_token_seconds: from the arrival; None if no token came.
        total_seconds: from the arrival to the end.
        request_type: its kind in one word; ``other`` if nobody said.
        drafter: who drafted last.
        model: the target.
        verification, guarantee: see `outpace.request.Speculation`.
        finish_reason: why the first sample ended; ``abort`` also if it was left.
        prompt_tokens, completion_tokens, cached_tokens, samples: counts over all samples.
        preemptions: how often its samples lost their blocks.
        draft_seconds, verify_seconds, rest_seconds: its share of the steps' time.
        features: what is known of it beside, such as the temperature.
        decisions: drafters in the order in which they were chosen.
        drafts: one for each drafter that it had.
        times: of its steps.
        prompt, answer: texts, only where they were asked to be kept.
    """

    request_id: str
    arrived: float
    first_token_seconds: float | None
    total_seconds: float
    request_type: str
    drafter: str
    model: str
    verification: str
    guarantee: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    samples: int = 1
    preemptions: int = 0
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    rest_seconds: float = 0.0
    features: Mapping[str, Any] = field(default_factory=dict)
    decisions: tuple[Decision, ...] = ()
    drafts: tuple[DraftCounts, ...] = ()
    times: StepTimes = field(default_factory=StepTimes)
    prompt: str | None = None
    answer: str | None = None

    def as_plain(self) -> dict[str, Any]:
        """A plain structure for JSON."""
        return asdict(self)

    def as_cells(self) -> list[Any]:
        """The values of `COLUMNS`: numbers and words as they are, everything else as JSON."""
        plain = self.as_plain()
        return [_cell(plain[name]) for name in COLUMNS]


def _cell(value: Any) -> Any:
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, separators=(",", ":"))
    if isinstance(value, str):  # halves of surrogate pairs have no place in a database
        return value.encode("utf-8", "replace").decode("utf-8")
    return value


COLUMNS = tuple(one.name for one in fields(Row))
_KINDS = {float: "REAL", int: "INTEGER", str: "TEXT"}


def column_definitions() -> str:
    """The columns in SQL, in the order of `COLUMNS`."""
    hints = get_type_hints(Row)
    parts = []
    for name in COLUMNS:
        kind = next((sql for kind, sql in _KINDS.items() if hints[name] in (kind, kind | None)), "")
        parts.append(f"{name} {kind or 'TEXT'}")
    return ", ".join(parts)


def from_cells(cells: tuple[Any, ...]) -> Row:
    """Read what `Row.as_cells` wrote.

    Raises:
        ValueError: it is something else.
    """
    try:
        values = dict(zip(COLUMNS, cells, strict=True))
        for name in ("features", "decisions", "drafts", "times"):
            values[name] = json.loads(values[name], parse_constant=_refuse)
        values["decisions"] = tuple(Decision(**one) for one in values["decisions"])
        values["drafts"] = tuple(_counts(one) for one in values["drafts"])
        times = dict(values["times"])
        for name in ("steps", "tokens"):
            times[name] = {int(bucket): int(count) for bucket, count in times[name].items()}
        values["times"] = StepTimes(**times)
        return Row(**values)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"a request is not whole: {error!r}") from error


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number that is ever written")


def _counts(plain: dict[str, Any]) -> DraftCounts:
    positions = {name: tuple(map(int, plain[name])) for name in _POSITIONS}
    return DraftCounts(**plain | positions)


_POSITIONS = ("drafted_at", "accepted_at", "rejected_at")
