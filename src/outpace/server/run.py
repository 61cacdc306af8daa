"""Running a server until it is told to stop, and stopping so that nothing is lost."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from outpace.errors import InvalidValueError
from outpace.llm import LLM
from outpace.server.app import Service, make_app
from outpace.server.desk import Desk
from outpace.server.keys import ApiKeys
from outpace.server.settings import ServerSettings

_CLOSING_SECONDS = 10  # for responses whose client reads slowly
# For which a connection may be idle. Clients let go after 5 seconds as a rule; a server that does
# so too now and then closes one while the next request is on its way.
_IDLE_SECONDS = 30


def serve(
    llm: LLM,
    settings: ServerSettings,
    keys: ApiKeys,
    announce: Callable[[str], None],
    admin_key: str = "",
) -> None:
    """Serve a model until SIGTERM or Ctrl-C; a second one does not wait for anybody.

    Args:
        llm: the model.
        settings: of the server.
        keys: who may ask.
        announce: called with the server's address when it answers.
        admin_key: for what changes the server; empty: nobody may.

    Raises:
        InvalidValueError: the address cannot be listened on.
    """
    service = Service(llm, settings, keys, admin_key)
    with _listening(settings.host, settings.port) as listener:
        asyncio.run(_serve(service, listener, announce))


async def _serve(
    service: Service, listener: socket.socket, announce: Callable[[str], None]
) -> None:
    config = uvicorn.Config(
        make_app(service),
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_CLOSING_SECONDS,
        timeout_keep_alive=_IDLE_SECONDS,
    )
    server = _Server(config, lambda: announce(address(listener)))
    stopper = _Stopper(server, service.desk, service.settings.drain_seconds)
    event_loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        event_loop.add_signal_handler(number, stopper.stop)
    await server.serve(sockets=[listener])


class _Server(uvicorn.Server):
    """A server that says when it answers, and leaves signals to us.

    uvicorn would close the door at once; here unfinished requests are answered first.
    """

    def __init__(self, config: uvicorn.Config, on_start: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_start = on_start

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        if self.started:
            self._on_start()


class _Stopper:
    """Turns the first signal into a drain and the second into an end."""

    def __init__(self, server: uvicorn.Server, desk: Desk, seconds: float) -> None:
        self._server = server
        self._desk = desk
        self._seconds = seconds
        self._drain: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """A signal to stop arrived."""
        if self._drain is None:
            self._drain = asyncio.ensure_future(self._finish())
        else:
            self._server.should_exit = self._server.force_exit = True

    async def _finish(self) -> None:
        await self._desk.drain(self._seconds)
        self._server.should_exit = True


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, UnicodeError) as error:
        raise InvalidValueError("host", host, f"is no address of this machine: {error}") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
    except OSError as error:
        listener.close()
        wanted = f"cannot be listened on at {host}: {error.strerror}; choose another --port"
        raise InvalidValueError("port", port, wanted) from error
    return listener


def address(listener: socket.socket) -> str:
    """The URL of a listening socket, as one can ask it from this machine."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
