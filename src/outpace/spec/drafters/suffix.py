"""Suffix decoding: the request itself and earlier outputs foretell what comes next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from outpace.config import SuffixConfig
from outpace.spec.drafter import Ask, Seen
from outpace.spec.retrieval.candidates import END, LONG, LONGEST_MATCH, Candidates, Tokens
from outpace.spec.retrieval.growth import grow
from outpace.spec.retrieval.own import look_back
from outpace.spec.retrieval.place import MOST_REPLACED, Place
from outpace.spec.retrieval.store import OutputStore
from outpace.spec.tree import DraftTree

# Sequences that were taken out and may come back (a preemption); more of them are not kept.
_RESTING = 1024
# The longest piece of an earlier text that an answer is expected to follow.
_FOLLOWED = 1024
# Tokens that must agree to find back to it.
_LEAST_MATCH = 3


@dataclass(slots=True)
class _Output:
    """The output of a sequence as far as it is known; ``stored`` tokens of it are in the store.

    ``before`` is the end of the prompt, and ``place`` says where in an earlier text it is, if it
    follows one.
    """

    tenant: str
    num_prompt: int
    before: Tokens
    stored: int = 0
    tokens: list[int] = field(default_factory=list)
    place: Place | None = None

    def extend(self, known: Tokens) -> None:
        """All tokens of the sequence as far as they are known, its prompt first."""
        self.tokens += known[self.num_prompt + len(self.tokens) :].tolist()


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
        output = self._noted(ask)
        own = look_back(ask.token_ids, self._config.min_match, ask.budget)
        others = self._store.look_up(ask.tenant, ask.token_ids, ask.budget)
        found = [own, others]
        answer = ask.token_ids[ask.num_prompt :]
        place = output.place
        if place is not None:
            place.advance(answer, _LEAST_MATCH)
        if (place is None or place.lost) and others.lengths.max(initial=0) >= LONG:
            output.place = self._followed(ask)
        elif place is not None:
            found.append(place.candidates(ask.budget))
        return grow(Candidates.joined(found), ask.budget, self._config.min_probability, self.name)

    def _followed(self, ask: Ask) -> Place:
        """The earlier text that agrees best, which is then followed beyond differences."""
        found = self._store.look_up(ask.tenant, ask.token_ids, _FOLLOWED)
        best = found.following[int(np.argmax(found.lengths))]
        known = len(ask.token_ids) - ask.num_prompt
        return Place(best[best != END], known, trust=MOST_REPLACED, found=True)

    def _output(self, seq_id: int, tenant: str, num_prompt: int, known: Tokens) -> _Output:
        output = self._outputs.get(seq_id)
        if output is None:
            stored = self._resting.pop(seq_id, 0)
            before = known[max(num_prompt - LONGEST_MATCH, 0) : num_prompt]
            output = self._outputs[seq_id] = _Output(tenant, num_prompt, before, stored)
        return output

    def _noted(self, ask: Ask) -> _Output:
        output = self._output(ask.seq_id, ask.tenant, ask.num_prompt, ask.token_ids)
        output.extend(ask.token_ids)
        return output

    def observe(self, seen: Sequence[Seen]) -> None:
        """The outputs grow."""
        for one in seen:
            output = self._outputs.get(one.seq_id)
            if output is None and one.num_prompt is not None:
                output = self._output(one.seq_id, one.tenant, one.num_prompt, one.known)
            if output is not None:
                output.extend(one.known)

    def forget(self, seq_id: int) -> None:
        """What the sequence said becomes an earlier output."""
        output = self._outputs.pop(seq_id, None)
        if output is None:
            return
        fresh = np.array(output.tokens[output.stored :], dtype=np.int64)
        if len(fresh) and not output.stored:
            fresh = np.concatenate([output.before, fresh])
        self._store.add(output.tenant, fresh)
        self._resting[seq_id] = max(output.stored, len(output.tokens))
        if len(self._resting) > _RESTING:
            del self._resting[next(iter(self._resting))]
