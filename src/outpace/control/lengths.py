"""How long answers become, by type of request: what is paid once has to pay within one."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise

# Places in an answer between which it is equally likely to end at each token.
EDGES = (0, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048)
_WIDTHS = [after - before for before, after in pairwise(EDGES)] + [2048]
# Before anything is known an answer ends at any token with this probability.
_PRIOR_HAZARD = 1 / 128
# So many answers of the wider group (of all types, and of nobody) count for a type.
_LEANS_ON = 2.0
# An answer counts half after so many further ones of its type.
HALF_LIFE = 64.0
_FADE = 0.5 ** (1 / HALF_LIFE)


@dataclass(slots=True)
class _Seen:
    """For each stretch between edges: answers that reached it, and that ended in it."""

    reached: list[float] = field(default_factory=lambda: [0.0] * len(EDGES))
    ended: list[float] = field(default_factory=lambda: [0.0] * len(EDGES))

    def add(self, length: int, ended: bool) -> None:
        last = bisect_right(EDGES, length) - 1
        for place in range(len(EDGES)):
            # Who was cut off in a stretch says nothing about whether it would have ended there.
            reached = place < last or (ended and place == last)
            self.reached[place] = _FADE * self.reached[place] + reached
            self.ended[place] = _FADE * self.ended[place] + (ended and place == last)

    def ends(self, place: int, otherwise: float) -> float:
        """The chance to end in a stretch once it is reached, leaning on what holds otherwise."""
        return (self.ended[place] + _LEANS_ON * otherwise) / (self.reached[place] + _LEANS_ON)


class AnswerLengths:
    """Learns from answers that ended how many tokens one that goes on may still have.

    The chance to end is estimated for each stretch between `EDGES` from the answers that reached
    it (Kaplan and Meier 1958): an answer that was cut off by a limit says that it did not end
    before, and nothing about where it would have. Within a stretch all tokens are alike.
    """

    def __init__(self) -> None:
        self._types: dict[str, _Seen] = {}
        self._all = _Seen()

    def record(self, request_type: str, length: int, ended: bool) -> None:
        """An answer of ``length`` tokens ended by itself, or else was cut off there."""
        if length < 1:
            return
        self._all.add(length, ended)
        self._types.setdefault(request_type, _Seen()).add(length, ended)

    def expected_more(self, request_type: str, emitted: int, most: int) -> float:
        """Tokens to come after ``emitted`` ones, where there can be ``most`` at most."""
        seen = self._types.get(request_type, _NOTHING)
        expected, going_on, left = 0.0, 1.0, most
        for place in range(bisect_right(EDGES, emitted) - 1, len(EDGES)):
            width = _WIDTHS[place]
            usual = self._all.ends(place, 1 - (1 - _PRIOR_HAZARD) ** width)
            hazard = 1 - (1 - seen.ends(place, usual)) ** (1 / width)
            last = place == len(EDGES) - 1
            stretch = left if last else min(left, EDGES[place] + width - max(emitted, EDGES[place]))
            survive = (1 - hazard) ** stretch
            expected += going_on * (1 - survive) / hazard
            going_on *= survive
            left -= stretch
            if left <= 0:
                break
        return expected


_NOTHING = _Seen()
