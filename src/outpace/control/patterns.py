"""Regular expressions of an operator's over texts of anybody's: searched for so long at most."""

from __future__ import annotations

import logging
from collections.abc import Callable

import regex

# Seconds for one search. A nested repetition could take forever over the right 40 letters.
_LONGEST = 0.02
_LOG = logging.getLogger("outpace")


def searcher(pattern: str) -> Callable[[str], bool]:
    """Whether a pattern is found in a text; not, if that takes longer than a search should.

    The first search that takes too long is told in the log.

    Raises:
        ValueError: it is no regular expression.
    """
    try:
        compiled = regex.compile(pattern)
    except (regex.error, TypeError, OverflowError, RecursionError, MemoryError) as error:
        raise ValueError(str(error) or type(error).__name__) from error
    told = False

    def found(text: str) -> bool:
        nonlocal told
        try:
            return compiled.search(text, timeout=_LONGEST) is not None
        except TimeoutError:
            if not told:
                told = True
                _LOG.warning(
                    "the pattern %r took more than %.0f ms over a prompt and counts as not found "
                    "there; write it without a repetition within a repetition",
                    pattern,
                    _LONGEST * 1e3,
                )
            return False

    return found
