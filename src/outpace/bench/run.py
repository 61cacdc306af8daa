"""The run itself: round after round, keeping what is measured whatever happens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from outpace.bench.arrival import Asked, Round
from outpace.bench.policy import Policy
from outpace.bench.record import Answer, Record, digest, first_difference
from outpace.errors import OutpaceError


class Target(Protocol):
    """Whatever answers: an engine in this process, or servers."""

    def run(self, asked: Sequence[Asked], policy: Policy) -> list[Answer]:
        """Run a group of requests under a policy; answers in the order of ``asked``."""
        ...


@dataclass(slots=True)
class Measured:
    """What a run brought.

    Attributes:
        records: of whole groups only: a group that was broken off measured nothing.
        stopped: why the run did not reach its end; empty if it did.
    """

    records: list[Record] = field(default_factory=list)
    stopped: str = ""


@dataclass(frozen=True, slots=True)
class _Taken:
    round: Round
    asked: Asked
    answer: Answer


def measure(
    target: Target,
    policies: Sequence[Policy],
    plan: Iterable[Round],
    on_round: Callable[[], None] = lambda: None,
) -> Measured:
    """Run all rounds and hold the answers against those of plain decoding.

    A Ctrl-C or an error of the target ends the run; what was measured until then is returned
    and marked. The answer that counts as plain is the first that plain decoding gave to a
    prompt, in whatever company: company must not change it either.
    """
    taken: list[_Taken] = []
    stopped = ""
    try:
        for one in plan:
            answers = target.run(one.asked, policies[one.policy])
            pairs = zip(one.asked, answers, strict=True)
            taken.extend(_Taken(one, asked, answer) for asked, answer in pairs)
            on_round()
    except KeyboardInterrupt:
        stopped = "interrupted"
    except OutpaceError as error:
        if not taken:
            raise
        stopped = str(error)
    return Measured(_records(taken, policies), stopped)


def warm_up(target: Target, policies: Sequence[Policy], asked: Sequence[Asked]) -> None:
    """Run some requests under every policy, one after the other, without counting them."""
    for policy in policies:
        for one in asked:
            target.run([Asked(one.entry)], policy)


def _records(taken: Sequence[_Taken], policies: Sequence[Policy]) -> list[Record]:
    plain: dict[str, tuple[int, ...] | str] = {}
    for one in taken:
        if policies[one.round.policy].plain:
            plain.setdefault(one.asked.entry.id, one.answer.content)
    return [_record(one, policies, plain) for one in taken]


def _record(
    taken: _Taken, policies: Sequence[Policy], plain: dict[str, tuple[int, ...] | str]
) -> Record:
    where, entry, answer = taken.round, taken.asked.entry, taken.answer
    reference = plain.get(entry.id)
    return Record(
        prompt=entry.id,
        task=entry.task,
        policy=policies[where.policy].name,
        arrival=where.arrival.name,
        repeat=where.repeat,
        group=where.group,
        place=where.place,
        due_seconds=taken.asked.due,
        first_token_seconds=answer.first_token_seconds,
        total_seconds=answer.total_seconds,
        prompt_tokens=answer.prompt_tokens,
        tokens=answer.tokens,
        finish_reason=answer.finish_reason,
        guarantee=answer.guarantee,
        answer_digest=digest(answer.content),
        identical=None if reference is None else answer.content == reference,
        first_difference=(
            None if reference is None else first_difference(answer.content, reference)
        ),
        speculation=answer.speculation,
    )
