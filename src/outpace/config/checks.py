"""Checks of single values: what is wrong is refused by name, with the way out."""

from __future__ import annotations

from types import UnionType
from urllib.parse import urlsplit

from outpace.errors import InvalidValueError


def spelled_out_dtype(dtype: str) -> str:
    """``bf16`` and ``fp32`` are accepted everywhere, and everywhere mean the same."""
    dtype = {"bf16": "bfloat16", "fp32": "float32"}.get(dtype, dtype)
    check_choice("dtype", dtype, ("auto", "bfloat16", "float32"))
    return dtype


def check_choice(name: str, value: object, choices: tuple[str | int, ...]) -> None:
    """Refuse anything but one of the choices."""
    if isinstance(value, bool) or value not in choices:
        raise InvalidValueError(name, value, f"choose one of {', '.join(map(str, choices))}")


def check_quantization(name: str, value: object) -> None:
    """Refuse anything but a quantization."""
    check_choice(name, value, ("none", "int8", "int4"))


def check_type(name: str, value: object, kind: type | UnionType, wanted: str) -> None:
    """Refuse what is not of a kind; ``wanted`` says in words what is."""
    if not isinstance(value, kind):
        raise InvalidValueError(name, value, f"must be {wanted}")


def check_integer(name: str, value: object, low: int, high: int | None = None) -> None:
    """Refuse anything but an integer within [low, high]; a bool is not an integer here."""
    wanted = f"must be an integer of at least {low}"
    if high is not None:
        wanted = f"must be an integer from {low} to {high}"
    if not isinstance(value, int) or isinstance(value, bool):
        raise InvalidValueError(name, value, wanted)
    if value < low or (high is not None and value > high):
        raise InvalidValueError(name, value, wanted)


def check_number(name: str, value: object, wanted: str, low: float, high: float) -> None:
    """Refuse anything but a finite number within [low, high]."""
    if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:
        return  # a NaN is not within any bounds
    raise InvalidValueError(name, value, wanted)


def server_root(name: str, url: str) -> str:
    """The address of a server without a final ``/`` and ``/v1``, to which paths are added.

    Raises:
        InvalidValueError: it is no address of HTTP.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname)
        _ = parts.port  # raises where it is no number
    except ValueError:
        usable = False
    if not usable or any(c.isspace() or c in "?#" for c in url):
        raise InvalidValueError(name, url, "is no address; write http://HOST:PORT or https://HOST")
    return url.rstrip("/").removesuffix("/v1").rstrip("/")
