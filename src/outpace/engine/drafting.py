"""The engine's side of drafting: who is asked, and what is told to whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from outpace.control.controller import Budget
from outpace.engine.scheduler import Scheduled
from outpace.errors import DraftError
from outpace.spec.drafter import Ask, Drafter, Seen
from outpace.spec.lawful import lawful
from outpace.spec.tree import DraftTree
from outpace.spec.verifier import RejectionVerifier


class Drafting:
    """All drafters of an engine; each sequence has one of them.

    Args:
        drafters: by name.
        vocab_size: of the target, which must never be asked for a token that it does not have.

    Raises:
        DraftError: two drafters want different hidden states of the target.
    """

    def __init__(self, drafters: Mapping[str, Drafter], vocab_size: int) -> None:
        self._drafters = drafters
        self._vocab_size = vocab_size
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
        """Tell each drafter what became of its sequences."""
        groups: dict[str, list[Seen]] = {}
        for part, sight in zip(parts, seen, strict=True):
            groups.setdefault(part.sequence.drafter, []).append(sight)
        for name, sights in groups.items():
            self._drafters[name].observe(sights)

    def forget(self, name: str, seq_id: int) -> None:
        """A sequence ended or lost its blocks."""
        self._drafters[name].forget(seq_id)

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
