"""What a client is told when something goes wrong, in the shape that OpenAI's clients read."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from outpace.engine.loop import LoopOverError
from outpace.errors import InvalidValueError, OutpaceError

_LOG = logging.getLogger("outpace")
_LONGEST = 600
_KIND = re.compile(r"str|int|float|bool|[a-z-]+\[.*\]", re.DOTALL)


class ApiError(Exception):
    """An answer other than the one that was asked for.

    Args:
        status: of HTTP.
        message: for people, one line.
        code: for programs.
        param: the field of the request that is to blame, if one is.
        retry_after: seconds after which it may be worth trying again.
        retry: whether the official clients, which repeat most failures by themselves, should.
    """

    def __init__(
        self,
        status: int,
        message: str,
        code: str,
        *,
        param: str | None = None,
        retry_after: int | None = None,
        retry: bool = True,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self._retry_after = retry_after
        self._retry = retry

    @property
    def body(self) -> dict[str, Any]:
        """The error object in OpenAI's shape."""
        error = {
            "message": readable(self.message),
            "type": _type(self.status),
            "param": None if self.param is None else readable(self.param),
            "code": self.code,
        }
        return {"error": error}

    @property
    def headers(self) -> dict[str, str]:
        """What HTTP should say beside it."""
        headers = {}
        if self._retry_after is not None:
            headers["Retry-After"] = str(self._retry_after)
        if not self._retry:
            headers["X-Should-Retry"] = "false"
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return headers


def _type(status: int) -> str:
    if status == 401:
        return "authentication_error"
    if status == 429:
        return "rate_limit_error"
    if status == 408:
        return "timeout_error"
    return "invalid_request_error" if status < 500 else "server_error"


def readable(text: str) -> str:
    """Valid Unicode, without control characters, and not endless."""
    text = text.encode("utf-8", "backslashreplace").decode("utf-8")
    text = "".join(c if c.isprintable() else " " for c in text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def bad_request(param: str, message: str, code: str = "invalid_value") -> ApiError:
    """A field that cannot be honoured; ``message`` begins with the field."""
    return ApiError(400, message, code, param=param)


def as_api_error(error: BaseException) -> ApiError:
    """What the client hears of an exception; only what it can do something about."""
    match error:
        case ApiError():
            return error
        case InvalidValueError():
            return bad_request(error.field, str(error))
        case LoopOverError():
            return ApiError(503, str(error), "engine_unavailable", retry_after=5)
        case OutpaceError():
            return ApiError(400, str(error), "invalid_request")
        case _:
            _LOG.error("a request failed", exc_info=error)
            return ApiError(
                500, f"{type(error).__name__} while answering; the log says more", "internal_error"
            )


def validation_error(errors: Sequence[Mapping[str, Any]]) -> ApiError:
    """A body that does not have the right form: the first thing that is wrong with it."""
    first: Mapping[str, Any] = max(errors, key=lambda error: len(error["loc"]), default={"loc": ()})
    field = _path(first["loc"])
    message = str(first.get("msg", "is not valid"))
    if first.get("type") == "extra_forbidden":
        message = "this field is not supported here; leave it out"
    elif first.get("type") == "model_attributes_type" and isinstance(first.get("input"), bytes):
        # What does not say that it is JSON is not read as JSON; curl says something else itself.
        field, message = "body", "was not read as JSON; send Content-Type: application/json"
    elif first.get("type") == "json_invalid":
        field, message = "body", f"is not JSON: {first.get('ctx', {}).get('error', message)}"
    return bad_request(field, f"{field}: {message}", "invalid_body")


def unreadable_body(error: BaseException) -> ApiError:
    """A body that the reader of JSON gave up on without saying where."""
    reason = "its numbers are too long, or it is not UTF-8"
    if isinstance(error, RecursionError):
        reason = "it is nested too deeply"
    return bad_request("body", f"body: cannot be read as JSON: {reason}", "invalid_body")


def _path(loc: Sequence[str | int]) -> str:
    """``messages[0].role`` of ``("body", "messages", 0, "role")``.

    Where a field may be of several kinds, the kind that was tried is in between, and left out.
    """
    path = ""
    for part in loc[1:] if loc and loc[0] == "body" else loc:
        if isinstance(part, str) and path and _KIND.fullmatch(part):
            continue
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path or "body"
