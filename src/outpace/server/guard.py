"""The outermost layer: who asks, under which identifier, and how much; before a body is read."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outpace.server.admin_key import PATHS as ADMIN_PATHS
from outpace.server.errors import ApiError
from outpace.server.keys import ApiKeys

# What load balancers and browsers ask for without a key; none of it tells of requests. The pages
# are the same for everybody: what they show they fetch with the key that they were given.
OPEN_PATHS = frozenset(
    {"/", "/dashboard", "/dashboard/", "/health", "/ready", "/version", "/openapi.json"}
)
CALLER = "outpace.caller"


class Guard:
    """Lets requests with a key and a body of bearable size pass, and names them.

    Args:
        app: what is guarded; it finds the caller in the scope.
        keys: who may ask.
        max_body_bytes: of a request.
        refused: told the status of requests that do not pass.
        admin: who may use the admin's paths; None: they are paths like others.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: ApiKeys,
        max_body_bytes: int,
        refused: Callable[[int], None],
        admin: ApiKeys | None = None,
    ) -> None:
        self._app = app
        self._keys = keys
        self._admin = admin
        self._most = max_body_bytes
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        door = _Door(receive, send, self._most)
        try:
            self._check(scope, door)
            await self._app(scope, door.receive, door.send)
        except ApiError as error:
            if door.started:
                raise
            door.refusal = error
        refusal, door.refusal = door.refusal, None
        if refusal is not None and not door.started:
            self._refused(refusal.status)
            headers = {**refusal.headers, "Connection": "close"}  # the body was not read
            await JSONResponse(refusal.body, refusal.status, headers)(scope, receive, door.send)

    def _check(self, scope: Scope, door: _Door) -> None:
        headers = Headers(scope=scope)
        if self._admin is not None and scope["path"].startswith(ADMIN_PATHS):
            scope[CALLER] = self._admin.caller(headers.get("authorization"))
        elif scope["path"] not in OPEN_PATHS:
            scope[CALLER] = self._keys.caller(headers.get("authorization"))
        stated = headers.get("content-length", "")
        if stated.isascii() and stated.isdigit() and int(stated[:18]) > self._most:
            raise door.too_large()


class _Door:
    """The two directions of one request, counted and named."""

    def __init__(self, receive: Receive, send: Send, most: int) -> None:
        self._receive = receive
        self._send = send
        self._most = self._left = most
        self._request_id = uuid4().hex
        self.started = False
        self.refusal: ApiError | None = None

    def too_large(self) -> ApiError:
        return ApiError(413, f"body: more than {self._most} bytes; send less", "body_too_large")

    async def receive(self) -> Message:
        """Bodies may come without their length, or with a wrong one."""
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            self.refusal = self.too_large()
            raise self.refusal
        return message

    async def send(self, message: Message) -> None:
        """Pass an answer on, unless the request was refused: then it is about half a body."""
        if self.refusal is not None:
            return
        if message["type"] == "http.response.start":
            self.started = True
            headers = MutableHeaders(scope=message)
            headers["X-Request-Id"] = self._request_id
            headers["X-Content-Type-Options"] = "nosniff"
        await self._send(message)
