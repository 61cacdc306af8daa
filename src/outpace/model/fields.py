"""Reading values out of a ``config.json`` that may hold anything."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NoReturn

from outpace.errors import CheckpointError

_MAX_INTEGER = 2**31 - 1


class Fields:
    """Typed access to a JSON object; each failure is one line with the field and its value."""

    def __init__(self, raw: Mapping[str, Any], where: str = "config.json") -> None:
        if not isinstance(raw, Mapping):
            raise CheckpointError(f"{where} must hold an object, not {type(raw).__name__}")
        self.raw = raw
        self.where = where

    def fail(self, field: str, value: object, why: str) -> NoReturn:
        """Raise the CheckpointError that says what is wrong with ``field``."""
        shown = repr(value)
        if len(shown) > 120:
            shown = f"{shown[:100]}…"
        raise CheckpointError(f"{self.where}: {field} = {shown}: {why}")

    def has(self, field: str) -> bool:
        """Whether the field is there, be it null."""
        return field in self.raw

    def get(self, field: str, default: object = None) -> Any:
        """Return the raw value."""
        return self.raw.get(field, default)

    def integer(
        self,
        field: str,
        default: int | None = None,
        minimum: int = 1,
        maximum: int = _MAX_INTEGER,
    ) -> int:
        """Read an integer from ``minimum`` to ``maximum``; null and missing mean ``default``."""
        value = self._value(field, default)
        if isinstance(value, bool) or not isinstance(value, int):
            self.fail(field, value, "must be an integer")
        if not minimum <= value <= maximum:
            self.fail(field, value, f"must be from {minimum} to {maximum}")
        return value

    def number(self, field: str, default: float | None = None) -> float:
        """Read a finite number above 0; null and missing mean ``default``."""
        value = self._value(field, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.fail(field, value, "must be a number")
        if not 0 < value <= 1e30 or not math.isfinite(value):
            self.fail(field, value, "must be a finite number above 0")
        return float(value)

    def boolean(self, field: str, default: bool = False) -> bool:
        """Read a truth value; null and missing mean ``default``."""
        value = self._value(field, default)
        if not isinstance(value, bool):
            self.fail(field, value, "must be true or false")
        return value

    def token_ids(self, field: str) -> tuple[int, ...]:
        """Read a token id, a list of them, or null, as a tuple."""
        value = self.raw.get(field)
        if value is None:
            return ()
        ids = value if isinstance(value, list) else [value]
        for token in ids:
            if isinstance(token, bool) or not isinstance(token, int) or token < 0:
                self.fail(field, value, "must be a token id or a list of token ids")
        return tuple(ids)

    def _value(self, field: str, default: object) -> Any:
        value = self.raw.get(field)
        if value is None:
            if default is None:
                what = "is null" if field in self.raw else "is missing"
                raise CheckpointError(f"{self.where}: {field} {what}")
            return default
        return value
