"""Suffix decoding: the request itself and earlier outputs foretell what comes next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from outpace.config import SuffixConfig
from outpace.spec.drafter import Ask, Seen
from outpace.spec.retrieval.candidates import LONG, REACH, Candidates
from outpace.spec.retrieval.growth import grow
from outpace.spec.retrieval.own import look_back
from outpace.spec.retrieval.store import OutputStore
from outpace.spec.tree import DraftTree

# Sequences that were taken out and may come back (a preemption); more of them are not kept.
_RESTING = 1024
# Tokens in a row that may differ from an earlier text before the place is lost.
_LARGEST_GAP = 6
# A match of fewer tokens may be one by chance.
_LEAST_MATCH = 3


@dataclass(slots=True)
class _Output:
    """The output of a sequence as far as it is known; ``stored`` tokens of it are in the store.

    ``copies`` is whether it has followed an earlier text for long, up to a gap at most.
    """

    tenant: str
    num_prompt: int
    stored: int = 0
    tokens: list[int] = field(default_factory=list)
    copies: bool = False

    def extend(self, start: int, tokens: Sequence[int]) -> None:
        """Known tokens of the sequence, from position ``start`` on."""
        skip = self.num_prompt + len(self.tokens) - start
        if 0 <= skip < len(tokens):
            self.tokens += tokens[skip:]


class SuffixDrafter:
    """Continues as the same words were continued in this request and in earlier outputs.

    A tree of the likeliest continuations (SuffixDecoding: Oliaro et al. 2024, arXiv 2411.04975).
    Outputs are remembered when their request ends, and are found by requests of the same tenant
    only. A request is learned from whether or not it was drafted for. Where an answer that followed
    an earlier text for long has another token, it goes on behind that one.
    """

    name = "suffix"
    sources: tuple[str, ...] = ("suffix",)
    taps: tuple[int, ...] | None = None

    def __init__(self, config: SuffixConfig) -> None:
        self._config = config
        self._store = OutputStore(config.max_tokens)
        self._outputs: dict[int, _Output] = {}
        self._resting: dict[int, int] = {}

    def propose(self, asks: Sequence[Ask]) -> list[DraftTree]:
        """A tree of at most ``budget`` nodes where there is a match."""
        return [self._draft(ask) for ask in asks]

    def _draft(self, ask: Ask) -> DraftTree:
        self._note(ask)
        found = self._places(ask, 0, ask.budget)
        longest = int(found.lengths.max(initial=0))
        output = self._outputs[ask.seq_id]
        if longest < _LEAST_MATCH and output.copies:
            behind = self._behind_a_gap(ask)
            output.copies = len(behind) > 0
            found = Candidates.joined([found, behind])
        elif longest >= LONG:
            output.copies = True
        return grow(found, ask.budget, self._config.min_probability, self.name)

    def _places(self, ask: Ask, gap: int, depth: int) -> Candidates:
        """Where the text without its last ``gap`` tokens occurred, in itself and in others."""
        text = ask.token_ids[: len(ask.token_ids) - gap]
        return Candidates.joined(
            [
                look_back(text, self._config.min_match, depth),
                self._store.look_up(ask.tenant, text, depth),
            ]
        )

    def _behind_a_gap(self, ask: Ask) -> Candidates:
        for gap in range(1, min(_LARGEST_GAP, len(ask.token_ids) - 1) + 1):
            places = self._places(ask, gap, ask.budget + REACH)
            found = places.behind_a_gap(ask.token_ids[-gap:])
            if len(found):
                return found
        return Candidates.none(ask.budget)

    def _output(self, seq_id: int, tenant: str, num_prompt: int) -> _Output:
        output = self._outputs.get(seq_id)
        if output is None:
            stored = self._resting.pop(seq_id, 0)
            output = self._outputs[seq_id] = _Output(tenant, num_prompt, stored)
        return output

    def _note(self, ask: Ask) -> None:
        output = self._output(ask.seq_id, ask.tenant, ask.num_prompt)
        known = ask.num_prompt + len(output.tokens)
        if known < len(ask.token_ids):
            output.extend(known, ask.token_ids[known:].tolist())

    def observe(self, seen: Sequence[Seen]) -> None:
        """The outputs grow."""
        for one in seen:
            output = self._outputs.get(one.seq_id)
            if output is None and one.num_prompt is not None:
                output = self._output(one.seq_id, one.tenant, one.num_prompt)
            if output is not None:
                output.extend(one.start, one.token_ids)

    def forget(self, seq_id: int) -> None:
        """What the sequence said becomes an earlier output."""
        output = self._outputs.pop(seq_id, None)
        if output is None:
            return
        fresh = output.tokens[output.stored :]
        self._store.add(output.tenant, np.array(fresh, dtype=np.int64))
        self._resting[seq_id] = len(output.tokens)
        if len(self._resting) > _RESTING:
            del self._resting[next(iter(self._resting))]
