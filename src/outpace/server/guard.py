"""The outermost layer: who asks, under which identifier, and how much; before a body is read."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outpace.server.errors import ApiError
from outpace.server.keys import ApiKeys

# What load balancers and browsers ask for without a key; none of it tells of requests.
OPEN_PATHS = frozenset({"/", "/health", "/ready", "/version", "/openapi.json"})
CALLER = "outpace.caller"


class Guard:
    """Lets requests with a key and a body of bearable size pass, and names them.

    Args:
        app: what is guarded; it finds the caller in the scope.
        keys: who may ask.
        max_body_bytes: of a request.
        refused: told the status of requests that do not pass.
    """

    def __init__(
        self, app: ASGIApp, keys: ApiKeys, max_body_bytes: int, refused: Callable[[int], None]
    ) -> None:
        self._app = app
        self._keys = keys
        self._most = max_body_bytes
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def send_named(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = request_id
                headers["X-Content-Type-Options"] = "nosniff"
            await send(message)

        request_id = uuid4().hex
        too_large = ApiError(
            413, f"body: more than {self._most} bytes; send less", "body_too_large"
        )
        try:
            self._check(scope, too_large)
            await self._app(scope, self._counted(receive, too_large), send_named)
        except ApiError as error:
            if started:
                raise
            self._refused(error.status)
            headers = {**error.headers, "Connection": "close"}  # the body was not read
            await JSONResponse(error.body, error.status, headers)(scope, receive, send_named)

    def _check(self, scope: Scope, too_large: ApiError) -> None:
        headers = Headers(scope=scope)
        if scope["path"] not in OPEN_PATHS:
            scope[CALLER] = self._keys.caller(headers.get("authorization"))
        stated = headers.get("content-length", "")
        if stated.isascii() and stated.isdigit() and int(stated[:18]) > self._most:
            raise too_large

    def _counted(self, receive: Receive, too_large: ApiError) -> Receive:
        """Bodies may come without their length, or with a wrong one."""
        left = self._most

        async def counted() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise too_large
            return message

        return counted
