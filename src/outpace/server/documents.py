"""What the OpenAPI document says about answers."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

_MEANINGS = {
    400: "The request cannot be honoured; the message says why and what would work.",
    401: "No API key, or one that is not accepted.",
    404: "The model, or the path, does not exist.",
    408: "Not finished within the time that the request or the server allows.",
    409: "Another one is under way; try again when it is done.",
    413: "The body is too large.",
    429: "The queue is full, or the key has too many unfinished requests: see Retry-After.",
    500: "A defect; the server's log says more.",
    503: "Going down, or the engine does not work.",
    507: "There is not enough memory for it.",
}


class ErrorDetail(BaseModel):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorBody(BaseModel):
    """An answer that is an error."""

    error: ErrorDetail


def answers(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Errors with their meaning, for a route."""
    return {status: {"model": ErrorBody, "description": _MEANINGS[status]} for status in statuses}


BODY_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The whole reply, or with stream = true its pieces as events.",
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "text/event-stream": {"schema": {"type": "string"}},
        },
    },
    **answers(*(status for status in _MEANINGS if status not in (409, 507))),
}


def describe(app: FastAPI) -> None:
    """Take out of an application's document what its framework only supposes."""
    document = app.openapi()
    for path in document["paths"].values():
        for operation in path.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        document.get("components", {}).get("schemas", {}).pop(name, None)
    document.setdefault("components", {})["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer"}
    }
