"""The type of a request: the client's label if there is one, else the first rule that holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outpace.config import check_integer
from outpace.control.features import Features
from outpace.control.rules import BUILT_IN, NAME, NAME_IN_WORDS, Rule, names
from outpace.errors import InvalidValueError
from outpace.request import OTHER


@dataclass(frozen=True, slots=True)
class Typed:
    """A request's type, and in words why it is that."""

    name: str
    reason: str


class RequestTypes:
    """Gives each request one of a bounded number of types.

    Everything that is learned or shown by type has a row for each, so their number must not
    grow with what clients write: labels that no rule knows are taken as they come until
    ``most_labels`` different ones have been seen; from then on a further one is ``other``.

    Args:
        rules: one's own, asked before those that are built in.
        most_labels: different labels beyond the names of rules; 0 takes only those.
    """

    def __init__(self, rules: Sequence[Rule] = (), most_labels: int = 16) -> None:
        check_integer("most_labels", most_labels, 0, 256)
        self._rules = (*rules, *BUILT_IN)
        self._names = [*names(self._rules), OTHER]
        self._most = len(self._names) + most_labels
        self.refused_labels = 0

    @property
    def names(self) -> tuple[str, ...]:
        """All types that requests have had or can have by rule."""
        return tuple(self._names)

    def of(self, features: Features) -> Typed:
        """The type of a request.

        Raises:
            InvalidValueError: the label is not written as one.
        """
        if features.label is not None:
            return self._labelled(features.label)
        for rule in self._rules:
            if rule.holds(features):
                return Typed(rule.name, f"the rule for {rule.name} holds")
        return Typed(OTHER, "no rule holds")

    def _labelled(self, label: str) -> Typed:
        name = label.strip().lower() if isinstance(label, str) else ""
        if not NAME.fullmatch(name):
            raise InvalidValueError("request_type", label, NAME_IN_WORDS)
        if name not in self._names:
            if len(self._names) >= self._most:
                self.refused_labels += 1
                return Typed(OTHER, f"there are {self._most} types already, so {name} is none")
            self._names.append(name)
        return Typed(name, "the client's label")
