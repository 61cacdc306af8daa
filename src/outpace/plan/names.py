"""Looking up a name in a table, and saying what would have worked."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from outpace.errors import InvalidValueError


@cache
def table(file: str) -> Mapping[str, Mapping[str, Any]]:
    """Return a table that the package ships, by name."""
    return tomllib.loads((files("outpace.plan") / file).read_text("utf-8"))


def plain(name: str) -> str:
    """A name as the tables spell it: lower case, words joined by a hyphen."""
    return "-".join(name.strip().lower().replace("_", " ").split())


def unknown(field: str, name: str, choices: list[str], otherwise: str) -> InvalidValueError:
    """The error for a name that is in no table: with the nearest ones, or all if none is near."""
    near = difflib.get_close_matches(plain(name), choices, n=3, cutoff=0.5)
    known = f"did you mean {', '.join(near)}?" if near else f"known are {', '.join(choices)};"
    return InvalidValueError(field, name, f"{known} {otherwise}")
