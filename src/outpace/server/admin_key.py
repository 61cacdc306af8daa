"""The admin key: one key for what changes the server, apart from those that ask it for answers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from outpace.errors import InvalidValueError
from outpace.server.keys import ApiKeys

VARIABLE = "OUTPACE_ADMIN_KEY"
PATHS = "/admin/"
_SHORTEST = 16


def load_admin_key(file: Path | None, environment: Mapping[str, str] | None = None) -> str:
    """Read the key from the only line of a file, or else from ``OUTPACE_ADMIN_KEY``.

    Returns:
        The key; empty if there is none, which turns the admin's paths off.

    Raises:
        InvalidValueError: the file cannot be read, or the key is too short or not one word.
    """
    where = VARIABLE if file is None else str(file)
    if file is None:
        key = (os.environ if environment is None else environment).get(VARIABLE, "").strip()
        if not key:
            return ""
    else:
        try:
            key = file.read_text("utf-8").strip()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8"
            raise InvalidValueError("admin_key_file", where, f"cannot be read: {reason}") from error
    if len(key.split()) != 1 or len(key) < _SHORTEST:
        wanted = f"must hold one key of {_SHORTEST} characters or more, and nothing else"
        raise InvalidValueError("admin_key", where, wanted)
    return key


def admin_keys(key: str, others: ApiKeys) -> ApiKeys | None:
    """Who may use the admin's paths; None: nobody, they are off.

    Raises:
        InvalidValueError: the key also asks for answers: whoever may ask could then change.
    """
    if not key:
        return None
    if others.knows(key):
        raise InvalidValueError("admin_key", "…", "is an API key too; make one of its own")
    return ApiKeys({key: "admin"})
