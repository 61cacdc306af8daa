"""Settings in TOML files of the user's."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from outpace.errors import InvalidValueError


def read_toml(name: str, path: str | Path) -> dict[str, Any]:
    """The content of a TOML file.

    Args:
        name: what the file is, for the error.
        path: of the file.

    Raises:
        InvalidValueError: it cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidValueError(name, str(path), f"cannot be read: {reason}") from error
