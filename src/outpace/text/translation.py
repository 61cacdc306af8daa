"""From one tokenizer's tokens to another's: by the text, and by what both have."""

from __future__ import annotations

from dataclasses import dataclass

from outpace.text.tokenizer import Tokenizer

# So many tokens before the end of a text are encoded anew with what is added to it.
_OVERLAP = 16
# The first tokens of a piece may differ from those of the whole text.
_EDGE = 2
# Put before a text so that it is not encoded as a text's beginning; the first after which a token
# of its own begins is taken.
_FRONTS = ("\n", "a", " ", ".")


class RunningEncoding:
    """The tokens of a growing text, of which only the end is encoded again.

    They are those of the whole text as far as a tokenizer looks at neighbouring words only; the
    seam is where the old and the new tokens agree.

    Args:
        tokenizer: whose tokens.
        text: the beginning; what the tokenizer adds in front of a text is in front of it.
    """

    def __init__(self, tokenizer: Tokenizer, text: str = "") -> None:
        self._tokenizer = tokenizer
        self.text = ""
        self.ids: list[int] = []
        self._starts: list[int] = []
        self.extend(text)

    def extend(self, text: str) -> None:
        """Add text at the end."""
        self.text += text
        if len(self.ids) > 2 * _OVERLAP and self._extend_from(self._starts[-_OVERLAP]):
            return
        tokenizer = self._tokenizer
        pairs = tokenizer.encode_aligned(self.text, special=True)
        if len(pairs) > 1 and pairs[0][0] == pairs[1][0] in tokenizer.all_special_ids:
            del pairs[0]  # the text brought the begin token that is added in front
        self.ids = [token for token, *_ in pairs]
        self._starts = [start for _, start, _ in pairs]

    def _extend_from(self, begin: int) -> bool:
        """Encode from a character on, and join where both agree; False if they nowhere do."""
        old = {
            (self._starts[i], self.ids[i]): i
            for i in range(len(self.ids) - _OVERLAP, len(self.ids))
        }
        spans = self._tokenizer.encode_aligned(self.text[begin:])
        fresh = [(token, begin + start) for token, start, _ in spans]
        for place in range(_EDGE, len(fresh)):
            token, start = fresh[place]
            before = fresh[place - 1]
            seam = old.get((start, token))
            if seam is None or (self.ids[seam - 1], self._starts[seam - 1]) != before:
                continue
            self.ids[seam:] = [token for token, _ in fresh[place:]]
            self._starts[seam:] = [start for _, start in fresh[place:]]
            return True
        return False


def continuation(tokenizer: Tokenizer, before: str, text: str) -> list[int]:
    """The tokens of ``text`` where it goes on after ``before``.

    ``before`` keeps the tokens that it has: where the whole would be encoded across the border,
    ``text`` is encoded for itself, though not as the beginning of a text.
    """
    for front in (before, *_FRONTS) if before else _FRONTS:
        pairs = tokenizer.encode_aligned(front + text)
        border = len(front)
        place = next((i for i, (_, start, _) in enumerate(pairs) if start >= border), None)
        if place is not None and all(end <= border for _, _, end in pairs[:place]):
            return [token for token, *_ in pairs[place:]]
    return []


@dataclass(frozen=True, slots=True)
class SharedTokens:
    """Tokens that two vocabularies have in common.

    Attributes:
        target, draft: their ids in either, at equal places.
        dropped: control tokens of the target that the draft does not have.
        target_end, draft_end: the tokens that end a text, which correspond whatever they are
            called; None where a tokenizer names none.
    """

    target: tuple[int, ...]
    draft: tuple[int, ...]
    dropped: frozenset[int]
    target_end: int | None
    draft_end: int | None

    @classmethod
    def of(cls, target: Tokenizer, draft: Tokenizer) -> SharedTokens:
        """Match tokens by their bytes, control tokens by their names, and the ends."""
        ends = [next(iter(one.eos_token_ids), None) for one in (target, draft)]
        theirs = {spelling: i for i, spelling in sorted(_spellings(draft).items(), reverse=True)}
        mine = _spellings(target)
        pairs: dict[int, int] = {}
        taken: set[int] = set()
        for i in sorted(mine):
            other = theirs.get(mine[i])
            if i in ends[:1] or other is None or other == ends[1] or other in taken:
                continue
            pairs[i] = other
            taken.add(other)
        if ends[0] is not None and ends[1] is not None:
            pairs[ends[0]] = ends[1]
        control = target.all_special_ids - pairs.keys()
        return cls(tuple(pairs), tuple(pairs.values()), control, ends[0], ends[1])


def _spellings(tokenizer: Tokenizer) -> dict[int, tuple[bool, bytes]]:
    """What each token stands for, and whether it is a control token."""
    special = tokenizer.all_special_ids
    return {
        i: (i in special, spelling) for i, spelling in tokenizer.token_bytes().items() if spelling
    }
