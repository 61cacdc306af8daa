"""Where an answer stands in a text that it is expected to follow."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from outpace.spec.retrieval.candidates import END, LONGEST_MATCH, Candidates, Tokens
from outpace.spec.retrieval.lookup import longest_match

# Tokens in a row that may stand for others, once as many were as expected.
MOST_REPLACED = 3
# Within so many tokens ahead, one less has to agree to find back, and two less where the text has
# these tokens nowhere else.
_NEAR = 48
# The longest draft behind a token that stands for another.
_CAREFUL = 6
# What stands for something else is expected to do so again, up to this length.
_LONGEST_SUBSTITUTE, _MOST_GROWTH = 8, 2
# Of tokens that come all at once, as after a pause, only the last so many teach a change.
_FRESH = 64
# A text that is followed says as much as a match of so many tokens: behind a token that stands
# for another, and how much more than by the tokens that agree.
_REPLACED, _IN_PLACE = 3, 4


@dataclass(slots=True)
class Place:
    """How far an answer has got in its text, of which ``next`` is the index expected next.

    Where something stands for something else, a name or a number, the rest of the text is
    expected with the same change.

    Attributes:
        text: what is expected as a whole.
        known: tokens of the answer that were looked at.
        next: index in the text.
        trust: grows with each token that is as expected and falls with each other one; below 0
            the place is lost.
        found: whether it had to be found, since the answer left the text.
        replaced: whether the last token was another one.
        run: tokens in a row that were as expected.
    """

    text: Tokens
    known: int = 0
    next: int = 0
    trust: int = 0
    found: bool = False
    replaced: bool = False
    run: int = 0
    _left: tuple[int, int] | None = None  # where the text and the answer began to differ
    _longest: int = field(init=False)

    def __post_init__(self) -> None:
        # Changes that make a text longer, and are changed again, could double it each time.
        self._longest = _MOST_GROWTH * max(len(self.text), _NEAR)

    @property
    def lost(self) -> bool:
        """Whether nobody knows how the text goes on."""
        return self.trust < 0

    def ahead(self, most: int) -> Tokens:
        """The tokens expected next, at most so many; fewer where it is not sure."""
        if self.lost:
            return self.text[:0]
        most = min(most, _CAREFUL) if self.replaced else most
        return self.text[self.next : self.next + most]

    def candidates(self, depth: int) -> Candidates:
        """The same as an occurrence beside others."""
        ahead = self.ahead(depth)
        if len(ahead) == 0:
            return Candidates.none(depth)
        following = np.full((1, depth), END, dtype=np.int64)
        following[0, : len(ahead)] = ahead
        length = _REPLACED if self.replaced else min(self.run + _IN_PLACE, LONGEST_MATCH)
        return Candidates.here(np.array([length], dtype=np.int64), following)

    def advance(self, answer: Tokens, least: int) -> None:
        """Move over the tokens of the answer that came since the last time.

        Args:
            answer: all of it.
            least: tokens that must agree to find back.
        """
        before = self.next
        for index in range(self.known, len(answer)):
            if not self.lost:
                self._follow(index, answer)
        self.known = len(answer)
        if self.lost or self.replaced:
            self._find_back(before, answer, least)

    def _follow(self, index: int, answer: Tokens) -> None:
        """A token stands in the place of the one that was expected."""
        as_expected = self.next < len(self.text) and self.text[self.next] == answer[index]
        if as_expected:
            if len(answer) - index <= _FRESH:
                self._substitute(self.next, answer[:index])
            self._left = None
        elif self._left is None:
            self._left = self.next, index
        self.next += 1
        self.replaced = not as_expected
        self.run = self.run + 1 if as_expected else 0
        self.trust = min(self.trust + 1, MOST_REPLACED) if as_expected else self.trust - 1

    def _find_back(self, before: int, answer: Tokens, least: int) -> None:
        ends, length = longest_match(self.text, answer, LONGEST_MATCH)
        # Prefer to move forward: a text that repeats itself is usually copied in order.
        ahead = ends[ends >= before]
        near = len(ahead) > 0 and int(ahead[0]) < before + _NEAR
        if near:
            least -= 2 if len(ends) == 1 else 1
        if length >= max(least, 1):
            self.next = int(ahead[0] if len(ahead) else ends[-1]) + 1
            self.trust, self.replaced, self.found = MOST_REPLACED, False, True
            self.run = length
            self._substitute(self.next - length, answer[: len(answer) - length])

    def _substitute(self, end: int, answer: Tokens) -> None:
        """Text and answer agree again, from these ends on: expect what differed to recur."""
        if self._left is None:
            return
        begun, at = self._left
        self._left = None
        old, new = self.text[begun:end], answer[at:]
        if not (0 < len(old) <= _LONGEST_SUBSTITUTE and 0 < len(new) <= _LONGEST_SUBSTITUTE):
            return
        rest = self.text[self.next :]
        changed = replaced(rest, old, new)
        if changed is not rest and self.next + len(changed) <= self._longest:
            self.text = np.concatenate([self.text[: self.next], changed])


def replaced(text: Tokens, old: Tokens, new: Tokens) -> Tokens:
    """A text with every occurrence of some tokens replaced by others, from the left.

    Args:
        text: ``[n]`` token ids.
        old: ``[>= 1]`` those that are replaced.
        new: what stands in their place.

    Returns:
        The text itself if they do not occur in it.
    """
    starts = np.flatnonzero(text[: max(len(text) - len(old) + 1, 0)] == old[0])
    for i in range(1, len(old)):
        starts = starts[text[starts + i] == old[i]]
    pieces, end = [], 0
    for start in starts.tolist():
        if start >= end:  # else it overlaps the one before
            pieces += [text[end:start], new]
            end = start + len(old)
    return np.concatenate([*pieces, text[end:]]) if pieces else text
