"""The engine's side of drafting: who is asked, and what is told to whom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from outpace.control.controller import Budget
from outpace.engine.generation import Generation, Listeners, common_taps
from outpace.engine.menu import Menu
from outpace.engine.scheduler import Scheduled
from outpace.engine.sequence import Sequence as EngineSequence
from outpace.request import Request
from outpace.spec.drafter import Ask, Drafter, Seen, timed
from outpace.spec.lawful import lawful
from outpace.spec.tree import DraftTree
from outpace.spec.verifier import RejectionVerifier


class Drafting:
    """All drafters of an engine; each sequence has one of them.

    Drafters may be made of others, and share them. Told of a sequence is not the drafter that it
    has, but each single one that it may be given, so that a controller can change it at any time:
    a head that has listened from the beginning can draft at once.

    Drafters can be replaced while sequences run: those that have begun finish with the former
    ones, between which a controller goes on to choose.

    Args:
        drafters: by name.
        vocab_size: of the target, which must never be asked for a token that it does not have.
        menu: what a controller may choose between; None: every sequence keeps its own.

    Raises:
        DraftError: two drafters want different hidden states of the target.

    Attributes:
        current: what sequences get that begin now.
        taps: the target's layers whose states anybody wants to see now.
        seconds: by source, of the last `propose`.
    """

    def __init__(
        self, drafters: Mapping[str, Drafter], vocab_size: int, menu: Menu | None = None
    ) -> None:
        self.current = Generation(drafters)
        self._former: dict[int, Generation] = {}  # by sequence: what it finishes with
        self._vocab_size = vocab_size
        self._menu = menu
        self._sources = {name: one.sources for name, one in drafters.items()}
        self.taps = self.current.taps
        self.seconds: dict[str, float] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._sources

    def propose(self, parts: Sequence[Scheduled], budgets: Mapping[int, Budget]) -> list[DraftTree]:
        """A tree for each part within its budget; an empty one where there is none."""
        trees = [DraftTree()] * len(parts)
        groups: dict[tuple[str, int], tuple[Drafter, list[int]]] = {}
        for i, part in enumerate(parts):
            if part.draft_budget > 0:
                name = part.sequence.drafter
                drafter = self._of(part.sequence).drafters[name]
                groups.setdefault((name, id(drafter)), (drafter, []))[1].append(i)
        self.seconds = {}
        for (name, _), (drafter, members) in groups.items():
            asks = [_ask(parts[i], budgets[parts[i].sequence.seq_id]) for i in members]
            proposed = timed(drafter, asks, self.seconds)
            for i, tree in zip(members, proposed, strict=True):
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
        groups: dict[int, tuple[Drafter, list[Seen]]] = {}
        for part, sight in zip(parts, seen, strict=True):
            for one in self._listeners(part.sequence).drafters:
                groups.setdefault(id(one), (one, []))[1].append(sight)
        for drafter, sights in groups.values():
            drafter.observe(sights)

    def forget(self, seq_id: int) -> None:
        """A sequence ended or lost its blocks; where it begins again, it has the current ones."""
        former = self._former.pop(seq_id, None)
        if former is None:
            self.current.forget(seq_id)
            return
        former.forget(seq_id)
        self.taps = common_taps([self.current, *self._former.values()])

    def replace(
        self, drafters: Mapping[str, Drafter], running: Iterable[EngineSequence]
    ) -> list[int]:
        """Give names other drafters, between two steps.

        Running sequences finish with what they began with, which is let go of when the last of
        them has ended. One that loses its blocks begins again, with the new ones.

        Args:
            drafters: by names that are there, each with the same sources as the one before.
                Names that are not among them keep their drafters, also those made of one that
                is replaced: give these too.
            running: the sequences that have begun.

        Returns:
            The sequences that finish with drafters that were replaced now.

        Raises:
            DraftError: a name is not there, or what is needed of the target would differ. Nothing
                was replaced.
        """
        new = self.current.replaced(drafters)
        parts: dict[frozenset[str], Generation] = {}
        kept: dict[int, Generation] = {}
        for sequence in running:
            names = frozenset((*sequence.choices, sequence.drafter))
            if sequence.seq_id in self._former or names.isdisjoint(drafters):
                continue
            if names not in parts:
                parts[names] = self.current.only(names)
            kept[sequence.seq_id] = parts[names]
        former = {**self._former, **kept}
        self.taps = common_taps([new, *former.values()])
        self.current, self._former = new, former
        return list(kept)

    @property
    def num_former(self) -> int:
        """Sequences that finish with drafters that were replaced."""
        return len(self._former)

    def sources(self, name: str) -> tuple[str, ...]:
        """Whose trees a drafter may hand over, in the order in which they are asked."""
        return self._sources[name]

    def idle(self, request: Request) -> frozenset[str]:
        """The sources that have nothing to say for a request, and are not to be asked."""
        return self.current.idle(request)

    def choices(self, request: Request) -> tuple[str, ...]:
        """The drafters that a request may be given; none where it keeps the one that it has."""
        return self._menu.of(request) if self._menu else ()

    @property
    def usual_choices(self) -> tuple[str, ...]:
        """The drafters that a request which brings nothing may be given; none without a choice."""
        return self._menu.usual if self._menu else ()

    def wants_hidden(self, sequence: EngineSequence) -> bool:
        """Whether somebody who listens to a sequence looks at the target's hidden states."""
        return self._listeners(sequence).want_hidden

    def _of(self, sequence: EngineSequence) -> Generation:
        return self._former.get(sequence.seq_id, self.current)

    def _listeners(self, sequence: EngineSequence) -> Listeners:
        return self._of(sequence).listeners(sequence.choices, sequence.drafter)


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
