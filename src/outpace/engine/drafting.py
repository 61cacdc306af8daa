"""The engine's side of drafting: who is asked, and what is told to whom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from outpace.control.controller import Budget
from outpace.engine.scheduler import Scheduled
from outpace.engine.sequence import Sequence as EngineSequence
from outpace.errors import DraftError
from outpace.spec.drafter import Ask, Drafter, Seen
from outpace.spec.lawful import lawful
from outpace.spec.tree import DraftTree
from outpace.spec.verifier import RejectionVerifier


class Drafting:
    """All drafters of an engine; each sequence has one of them.

    A drafter can be replaced while sequences run: those that have begun with it finish with it.

    Args:
        drafters: by name.
        vocab_size: of the target, which must never be asked for a token that it does not have.

    Raises:
        DraftError: two drafters want different hidden states of the target.
    """

    def __init__(self, drafters: Mapping[str, Drafter], vocab_size: int) -> None:
        self._drafters = dict(drafters)
        self._former: dict[int, Drafter] = {}  # by sequence: what was replaced and is still in use
        self._vocab_size = vocab_size
        self.taps = _common_taps(drafters.values())

    def __contains__(self, name: str) -> bool:
        return name in self._drafters

    def propose(self, parts: Sequence[Scheduled], budgets: Mapping[int, Budget]) -> list[DraftTree]:
        """A tree for each part within its budget; an empty one where there is none."""
        trees = [DraftTree()] * len(parts)
        groups: dict[int, list[int]] = {}
        for i, part in enumerate(parts):
            if part.draft_budget > 0:
                groups.setdefault(id(self._drafter(part.sequence)), []).append(i)
        for members in groups.values():
            first = parts[members[0]].sequence
            name, drafter = first.drafter, self._drafter(first)
            asks = [_ask(parts[i], budgets[parts[i].sequence.seq_id]) for i in members]
            for i, tree in zip(members, drafter.propose(asks), strict=True):
                if any(not 0 <= token < self._vocab_size for token in tree.tokens):
                    tree = DraftTree(reason=f"{name} proposed a token outside the vocabulary")
                tree = tree.truncated(parts[i].draft_budget, parts[i].draft_budget)
                trees[i] = tree = lawful(tree, parts[i].sequence.history)
                if len(tree) == 0:
                    reasons = parts[i].sequence.counts.off_reasons
                    reasons[tree.reason or f"{name} had nothing to propose"] += 1
        return trees

    def observe(self, parts: Sequence[Scheduled], seen: Sequence[Seen]) -> None:
        """Tell each drafter what became of its sequences."""
        groups: dict[int, tuple[Drafter, list[Seen]]] = {}
        for part, sight in zip(parts, seen, strict=True):
            drafter = self._drafter(part.sequence)
            groups.setdefault(id(drafter), (drafter, []))[1].append(sight)
        for drafter, sights in groups.values():
            drafter.observe(sights)

    def forget(self, name: str, seq_id: int) -> None:
        """A sequence ended or lost its blocks, or goes on with another drafter."""
        former = self._former.pop(seq_id, None)
        (former or self._drafters[name]).forget(seq_id)
        if former is not None and not self._former:
            self.taps = _common_taps(self._drafters.values())

    def replace(
        self, drafters: Mapping[str, Drafter], running: Iterable[EngineSequence]
    ) -> list[int]:
        """Give names other drafters, between two steps.

        Running sequences finish with what they began with, which is let go of when the last of
        them has ended. One that loses its blocks begins again, with the new one.

        Args:
            drafters: by names that are there, each with the same sources as the one before.
            running: the sequences that have begun.

        Returns:
            The sequences that finish with a drafter that was replaced now.

        Raises:
            DraftError: a name is not there, or what is needed of the target would differ. Nothing
                was replaced.
        """
        for name, new in drafters.items():
            old = self._drafters.get(name)
            if old is None or _manner(old) != _manner(new):
                raise DraftError(f"drafter = {name!r}: nothing of this kind is loaded")
        kept = {
            s.seq_id: self._drafters[s.drafter]
            for s in running
            if s.drafter in drafters and s.seq_id not in self._former
        }
        now, former = {**self._drafters, **drafters}, {**self._former, **kept}
        self.taps = _common_taps([*now.values(), *former.values()])
        self._drafters, self._former = now, former
        return list(kept)

    @property
    def num_former(self) -> int:
        """Sequences that finish with a drafter that was replaced."""
        return len(self._former)

    def _drafter(self, sequence: EngineSequence) -> Drafter:
        return self._former.get(sequence.seq_id) or self._drafters[sequence.drafter]

    def sources(self, name: str) -> tuple[str, ...]:
        """Whose trees a drafter may hand over, in the order in which they are asked."""
        return self._drafters[name].sources

    def choices(self, current: str) -> tuple[str, ...]:
        """The drafters that a running sequence may have.

        One that needs the target's hidden states from the beginning can be left, but not come to.

        Args:
            current: the one that it has.
        """
        return tuple(
            name for name, one in self._drafters.items() if one.taps is None or name == current
        )

    def wants_hidden(self, name: str) -> bool:
        """Whether a drafter looks at the target's hidden states."""
        return self._drafters[name].taps is not None


def _manner(drafter: Drafter) -> tuple[tuple[str, ...], bool]:
    """Under which names its trees come, and whether it looks at the target's states."""
    return drafter.sources, drafter.taps is not None


def _common_taps(drafters: Iterable[Drafter]) -> tuple[int, ...]:
    """The layers that drafters want to see.

    Raises:
        DraftError: they want different ones.
    """
    wanted = {drafter.taps for drafter in drafters if drafter.taps}
    if len(wanted) > 1:
        raise DraftError(
            "drafters want different hidden states of the target (after layers "
            f"{' and '.join(map(str, sorted(wanted)))}); load one of them"
        )
    return next(iter(wanted), ())


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
