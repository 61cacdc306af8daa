"""API keys: who may ask, and whose state a request may use."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from outpace.errors import InvalidValueError
from outpace.server.errors import ApiError

VARIABLE = "OUTPACE_API_KEYS"
_SHORTEST = 8


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request.

    Attributes:
        name: for logs and limits; empty where no keys are in use. Never the key itself.
    """

    name: str = ""


class ApiKeys:
    """The keys that are accepted; without any, everybody is.

    Args:
        keys: names by key.
    """

    def __init__(self, keys: Mapping[str, str] | None = None) -> None:
        # Digests have one length, so that comparing them tells nothing about a key's.
        self._names = {_digest(key): name for key, name in (keys or {}).items()}

    def __len__(self) -> int:
        return len(self._names)

    @classmethod
    def load(cls, file: Path | None, environment: Mapping[str, str] | None = None) -> ApiKeys:
        """Read keys from a file, a line each, and from ``OUTPACE_API_KEYS``, between commas.

        A line is ``KEY`` or ``NAME KEY``; ``#`` begins a comment. Without a name a key is called
        by the beginning of its digest.

        Raises:
            InvalidValueError: the file cannot be read or holds no key, or a key is too short.
        """
        keys = _named(_lines(file), str(file)) if file is not None else {}
        if file is not None and not keys:
            raise InvalidValueError("api_key_file", str(file), "holds no key; write one a line")
        variable = (os.environ if environment is None else environment).get(VARIABLE, "")
        parts = [part.strip() for part in variable.split(",") if part.strip()]
        return cls(keys | _named(parts, VARIABLE))

    def knows(self, key: str) -> bool:
        """Whether a key is one of these."""
        return _digest(key) in self._names

    def caller(self, authorization: str | None) -> Caller:
        """Who sent a header ``Authorization: Bearer KEY``.

        Raises:
            ApiError: no key, or one that is not accepted.
        """
        if not self._names:
            return Caller()
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            message = "no API key: send it as Authorization: Bearer KEY"
            raise ApiError(401, message, "missing_api_key")
        given, found = _digest(key.strip()), None
        for digest, name in self._names.items():  # all of them, whichever fits
            if hmac.compare_digest(digest, given):
                found = name
        if found is None:
            raise ApiError(401, "this API key is not accepted", "invalid_api_key")
        return Caller(found)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _lines(file: Path) -> list[str]:
    try:
        text = file.read_text("utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise InvalidValueError("api_key_file", str(file), f"cannot be read: {reason}") from error
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def _named(entries: Iterable[str], where: str) -> dict[str, str]:
    keys: dict[str, str] = {}
    for entry in entries:
        *names, key = entry.split()
        if len(names) > 1:
            raise InvalidValueError("api_key", where, "write KEY or NAME KEY, a line each")
        if len(key) < _SHORTEST:
            wanted = f"holds a key of fewer than {_SHORTEST} characters; make a longer one"
            raise InvalidValueError("api_key", where, wanted)
        keys[key] = names[0] if names else f"key-{_digest(key).hex()[:8]}"
    if len(set(keys.values())) < len(keys):
        raise InvalidValueError("api_key", where, "two keys have the same name; give each its own")
    return keys
