"""What is kept of one request: plain values, as they stand in the file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class SpeculationRecord:
    """What speculation did for a request; the names are those of `outpace.request.Speculation`.

    ``rejections`` and the seconds are None where a server does not tell them.
    """

    target_steps: int
    drafted: int
    accepted: int
    rejections: int | None = None
    drafted_per_position: tuple[int, ...] = ()
    accepted_per_position: tuple[int, ...] = ()
    draft_seconds: float | None = None
    verify_seconds: float | None = None
    rest_seconds: float | None = None
    off_reason: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back, from an engine or a server.

    Attributes:
        content: token ids, or the text where a server gives no ids.
        first_token_seconds: from the time at which the request was due.
        total_seconds: the same, to the last token.
        prompt_tokens, tokens: counts; None where a server does not tell them.
        finish_reason: why it ended.
        guarantee: what is promised about the tokens: see `outpace.request.Speculation`.
        speculation: None where a server does not tell.
    """

    content: tuple[int, ...] | str
    first_token_seconds: float
    total_seconds: float
    prompt_tokens: int | None
    tokens: int | None
    finish_reason: str
    guarantee: str = ""
    speculation: SpeculationRecord | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One request, measured once.

    Attributes:
        prompt: the id of its entry.
        policy, arrival: their names.
        repeat, group, place: where in the run it stood: see `outpace.bench.arrival.Round`.
        due_seconds: when in its group it was sent.
        answer_digest: equal for equal answers, and only for them.
        first_difference: the position of the first token that plain decoding did not give;
            None if there is none or it is not known.
        identical: whether the answer is the plain one; None without a plain run.
    """

    prompt: str
    task: str
    policy: str
    arrival: str
    repeat: int
    group: int
    place: int
    due_seconds: float
    first_token_seconds: float
    total_seconds: float
    prompt_tokens: int | None
    tokens: int | None
    finish_reason: str
    guarantee: str
    answer_digest: str
    identical: bool | None
    first_difference: int | None
    speculation: SpeculationRecord | None

    def as_dict(self) -> dict[str, Any]:
        """A plain structure for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Any) -> Record:
        """Read what `as_dict` wrote.

        Raises:
            ValueError: something is missing or of another kind.
        """
        try:
            plain = {field.name: value[field.name] for field in fields(cls)}
            if plain["speculation"] is not None:
                inner = dict(plain["speculation"])
                for name in ("drafted_per_position", "accepted_per_position"):
                    inner[name] = tuple(inner[name])
                plain["speculation"] = SpeculationRecord(**inner)
            for name in ("due_seconds", "first_token_seconds", "total_seconds"):
                plain[name] = float(plain[name])
            return cls(**plain)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"a request is not whole: {error!r}") from error


def digest(content: Sequence[int] | str) -> str:
    """Return a short text that two answers share only if they are equal."""
    text = content if isinstance(content, str) else ",".join(map(str, content))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def first_difference(one: Sequence[int] | str, other: Sequence[int] | str) -> int | None:
    """Return where two answers part, None if nowhere."""
    for i, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return i
    return None if len(one) == len(other) else min(len(one), len(other))
