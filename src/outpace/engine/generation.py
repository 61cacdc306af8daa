"""The drafters of an engine, as they are between two replacements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from outpace.errors import DraftError
from outpace.request import Request
from outpace.spec.drafter import Drafter, Particular
from outpace.spec.drafters.several import Several


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who is told of a sequence: single drafters, and whether one looks at hidden states."""

    drafters: tuple[Drafter, ...]
    want_hidden: bool


class Generation:
    """Drafters by name, and the single ones that they are made of.

    A sequence has one generation from when it begins until it ends or loses its blocks, so that
    whoever drafts for it has listened from the beginning. Two generations may share drafters:
    those that were not replaced between them.

    Args:
        drafters: by name.

    Raises:
        DraftError: two drafters want different hidden states of the target.
    """

    def __init__(self, drafters: Mapping[str, Drafter]) -> None:
        self.drafters = dict(drafters)
        self.taps = common_taps([self])
        self._singles = _singles(self.drafters.values())
        self._listening: dict[tuple[str, ...], Listeners] = {}

    def only(self, names: Iterable[str]) -> Generation:
        """The same without drafters of other names, which it then keeps no hold of."""
        return Generation({name: self.drafters[name] for name in names})

    def replaced(self, drafters: Mapping[str, Drafter]) -> Generation:
        """The next generation, in which some names have other drafters.

        Raises:
            DraftError: a name is not there, or its drafter is of another kind, or wants other
                hidden states than those that stay.
        """
        for name, new in drafters.items():
            old = self.drafters.get(name)
            if old is None or _manner(old) != _manner(new):
                raise DraftError(f"drafter = {name!r}: nothing of this kind is loaded")
        return Generation({**self.drafters, **drafters})

    def listeners(self, choices: tuple[str, ...], drafter: str) -> Listeners:
        """Who is told of a sequence that may have these drafters, and has this one."""
        names = choices or (drafter,)
        found = self._listening.get(names)
        if found is None:
            members = _singles(self.drafters[name] for name in (*names, drafter))
            hidden = any(one.taps is not None for one in members)
            found = self._listening[names] = Listeners(tuple(members), hidden)
        return found

    def idle(self, request: Request) -> frozenset[str]:
        """The sources that have nothing to say for this request.

        Two drafters may hand over trees under one name, as predictions with and without a text
        of their own do: then one that serves is enough.
        """
        serving: set[str] = set()
        silent: set[str] = set()
        for one in self._singles:
            serves = not isinstance(one, Particular) or one.serves(request)
            (serving if serves else silent).update(one.sources)
        return frozenset(silent - serving)

    def forget(self, seq_id: int) -> None:
        """A sequence ended or lost its blocks."""
        for one in self._singles:
            one.forget(seq_id)


def common_taps(generations: Iterable[Generation]) -> tuple[int, ...]:
    """The layers that the drafters of some generations want to see.

    Raises:
        DraftError: they want different ones.
    """
    wanted = {one.taps for each in generations for one in each.drafters.values() if one.taps}
    if len(wanted) > 1:
        raise DraftError(
            "drafters want different hidden states of the target (after layers "
            f"{' and '.join(map(str, sorted(wanted)))}); load one of them"
        )
    return next(iter(wanted), ())


def _manner(drafter: Drafter) -> tuple[tuple[str, ...], bool]:
    """Under which names its trees come, and whether it looks at the target's states."""
    return drafter.sources, drafter.taps is not None


def _singles(drafters: Iterable[Drafter]) -> list[Drafter]:
    """The drafters that are made of no others, each once."""
    found: list[Drafter] = []
    for drafter in drafters:
        parts = _singles(drafter.parts) if isinstance(drafter, Several) else [drafter]
        found += [one for one in parts if all(one is not other for other in found)]
    return found
