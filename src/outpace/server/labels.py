"""The kind of a request as its client names it, in a bounded number of names."""

from __future__ import annotations

import re

from outpace.errors import InvalidValueError
from outpace.request import OTHER

HEADER = "X-Outpace-Request-Type"
FIELD = "request_type"
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,31}")


class RequestLabels:
    """Takes labels as they come until there are too many; a further one is ``other``.

    Args:
        most: different labels.
    """

    def __init__(self, most: int = 16) -> None:
        self._most = most
        self._known: set[str] = set()

    def of(self, label: str | None) -> str:
        """The name under which a request is counted.

        Raises:
            InvalidValueError: the label is not written as one.
        """
        if label is None:
            return OTHER
        name = label.strip().lower()
        if not _NAME.fullmatch(name):
            wanted = "use at most 32 letters, digits, '_', '-' and '.', a letter or digit first"
            raise InvalidValueError(FIELD, label, wanted)
        if name not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(name)
        return name
