"""Which drafters a controller may choose between, by what a request brings."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from outpace.request import Request

# Whether a request brings a prediction, and whether it has a grammar.
Brings = tuple[bool, bool]


@dataclass(frozen=True, slots=True)
class Menu:
    """The choice that a request has.

    Attributes:
        names: drafters by what a request brings; what is missing has the choice of ``(False,
            False)``.
        leaving_it_open: names by which a request may ask for "whoever is best" in so many words.
    """

    names: Mapping[Brings, tuple[str, ...]]
    leaving_it_open: Collection[str] = field(default_factory=frozenset)

    def of(self, request: Request) -> tuple[str, ...]:
        """The drafters that a request may be given; none where its client chose."""
        if request.drafter is not None and request.drafter not in self.leaving_it_open:
            return ()
        brings = bool(request.prediction), request.params.grammar is not None
        return self.names.get(brings, self.usual)

    @property
    def usual(self) -> tuple[str, ...]:
        """The choice of a request that brings nothing."""
        return self.names[False, False]

    @property
    def everybody(self) -> tuple[str, ...]:
        """All drafters that any request may be given, each once."""
        return tuple(dict.fromkeys(name for some in self.names.values() for name in some))
