"""The engine's side of drafting: who is asked, and what is told to whom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from outpace.control.controller import Budget
from outpace.engine.menu import Menu
from outpace.engine.scheduler import Scheduled
from outpace.engine.sequence import Sequence as EngineSequence
from outpace.errors import DraftError
from outpace.request import Request
from outpace.spec.drafter import Ask, Drafter, Seen
from outpace.spec.drafters.several import Several
from outpace.spec.lawful import lawful
from outpace.spec.tree import DraftTree
from outpace.spec.verifier import RejectionVerifier


class Drafting:
    """All drafters of an engine; each sequence has one of them.

    Drafters may be made of others, and share them. Told of a sequence is not the drafter that it
    has, but each single one that it may be given, so that a controller can change it at any time:
    a head that has listened from the beginning can draft at once.

    Args:
        drafters: by name.
        vocab_size: of the target, which must never be asked for a token that it does not have.
        menu: what a controller may choose between; None: every sequence keeps its own.

    Raises:
        DraftError: two drafters want different hidden states of the target.
    """

    def __init__(
        self, drafters: Mapping[str, Drafter], vocab_size: int, menu: Menu | None = None
    ) -> None:
        self._drafters = drafters
        self._vocab_size = vocab_size
        self._menu = menu
        self._singles = _singles(drafters.values())
        self._sources = {name: one.sources for name, one in drafters.items()}
        self._listening: dict[tuple[str, ...], _Listeners] = {}
        wanted = {d.taps for d in drafters.values() if d.taps}
        if len(wanted) > 1:
            raise DraftError(
                "drafters want different hidden states of the target (after layers "
                f"{' and '.join(map(str, sorted(wanted)))}); load one of them"
            )
        self.taps: tuple[int, ...] = next(iter(wanted), ())

    def __contains__(self, name: str) -> bool:
        return name in self._drafters

    def propose(self, parts: Sequence[Scheduled], budgets: Mapping[int, Budget]) -> list[DraftTree]:
        """A tree for each part within its budget; an empty one where there is none."""
        trees = [DraftTree()] * len(parts)
        groups: dict[str, list[int]] = {}
        for i, part in enumerate(parts):
            if part.draft_budget > 0:
                groups.setdefault(part.sequence.drafter, []).append(i)
        for name, members in groups.items():
            asks = [_ask(parts[i], budgets[parts[i].sequence.seq_id]) for i in members]
            for i, tree in zip(members, self._drafters[name].propose(asks), strict=True):
                if any(not 0 <= token < self._vocab_size for token in tree.tokens):
                    tree = DraftTree(reason=f"{name} proposed a token outside the vocabulary")
                tree = tree.truncated(parts[i].draft_budget, parts[i].draft_budget)
                trees[i] = tree = lawful(tree, parts[i].sequence.history)
                if len(tree) == 0:
                    reasons = parts[i].sequence.counts.off_reasons
                    reasons[tree.reason or f"{name} had nothing to propose"] += 1
        return trees

    def observe(self, parts: Sequence[Scheduled], seen: Sequence[Seen]) -> None:
        """Tell each drafter what became of the sequences that it may have to draft for."""
        groups: dict[int, list[Seen]] = {}
        for part, sight in zip(parts, seen, strict=True):
            for number in self._listeners(part.sequence).numbers:
                groups.setdefault(number, []).append(sight)
        for number, sights in groups.items():
            self._singles[number].observe(sights)

    def forget(self, seq_id: int) -> None:
        """A sequence ended or lost its blocks."""
        for one in self._singles:
            one.forget(seq_id)

    def sources(self, name: str) -> tuple[str, ...]:
        """Whose trees a drafter may hand over, in the order in which they are asked."""
        return self._sources[name]

    def choices(self, request: Request) -> tuple[str, ...]:
        """The drafters that a request may be given; none where it keeps the one that it has."""
        return self._menu.of(request) if self._menu else ()

    def wants_hidden(self, sequence: EngineSequence) -> bool:
        """Whether somebody who listens to a sequence looks at the target's hidden states."""
        return self._listeners(sequence).want_hidden

    def _listeners(self, sequence: EngineSequence) -> _Listeners:
        names = sequence.choices or (sequence.drafter,)
        found = self._listening.get(names)
        if found is None:
            members = _singles([self._drafters[name] for name in (*names, sequence.drafter)])
            places = {id(one): place for place, one in enumerate(self._singles)}
            numbers = tuple(places[id(one)] for one in members)
            hidden = any(one.taps is not None for one in members)
            found = self._listening[names] = _Listeners(numbers, hidden)
        return found


@dataclass(frozen=True, slots=True)
class _Listeners:
    """Who is told of a sequence: their places among all single drafters."""

    numbers: tuple[int, ...]
    want_hidden: bool


def _singles(drafters: Iterable[Drafter]) -> list[Drafter]:
    """The drafters that are made of no others, each once."""
    found: list[Drafter] = []
    for drafter in drafters:
        parts = _singles(drafter.parts) if isinstance(drafter, Several) else [drafter]
        found += [one for one in parts if all(one is not other for other in found)]
    return found


def _ask(part: Scheduled, budget: Budget) -> Ask:
    sequence = part.sequence
    return Ask(
        seq_id=sequence.seq_id,
        token_ids=sequence.tokens.array,
        num_prompt=sequence.num_prompt,
        budget=part.draft_budget,
        block_table=sequence.table.blocks,
        sampler=sequence.sampler,
        history=sequence.history,
        wants_probs=isinstance(sequence.verifier, RejectionVerifier),
        prediction=sequence.request.prediction,
        by_source=budget.by_source,
        tenant=sequence.request.tenant,
    )
