"""uvicorn in the process's event loop, with our connections and no signal handlers."""

import asyncio
import contextlib
import gc
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn

from windlass.core.addresses import ClientAddresses
from windlass.core.config import HttpSection
from windlass.gateway.listener.bounds import ListenerBounds, raise_file_limit
from windlass.gateway.listener.connection_limiter import ConnectionLimiter
from windlass.gateway.listener.handshake import TlsServer
from windlass.gateway.listener.protocol import BoundedProtocol

BACKLOG = 2048
# Objects that are left of those made since the last collection, and how many of a generation
# make one of the next.
COLLECT_AT = (50_000, 20, 100)
GRACE_SECONDS = 8
_ASKING = {"required": ssl.CERT_REQUIRED, "optional": ssl.CERT_OPTIONAL}


class _Uvicorn(uvicorn.Server):
    def __init__(
        self, config: uvicorn.Config, listening: socket.socket, limiter: ConnectionLimiter
    ):
        super().__init__(config)
        self._listening = listening
        self._limiter = limiter
        self.listens = asyncio.Event()
        self._leaving = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listens with connections of our own; those with TLS are counted before they speak it."""
        context, backlog = self.config.ssl, self.config.backlog
        if context is not None:
            server: Any = TlsServer(
                self._listening, context, self._limiter, self._protocol, backlog=backlog
            )
        else:
            loop = asyncio.get_running_loop()
            server = await loop.create_server(self._protocol, sock=self._listening, backlog=backlog)
        self.servers = [server]
        self.started = True
        self.listens.set()

    def _protocol(self) -> BoundedProtocol:
        return BoundedProtocol(
            self._limiter, config=self.config, server_state=self.server_state, app_state={}
        )

    async def main_loop(self) -> None:
        """Waits until told to leave."""
        # uvicorn's own looks ten times a second, and renews the date of answers, also in a process
        # that nobody asks.
        await self._leaving.wait()

    def leave(self) -> None:
        """Ends what is open and returns from `serve`."""
        self.should_exit = True
        self._leaving.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The process has its own."""
        yield


class HttpServer:
    """Serves an ASGI application; binds at once, so that a taken port fails the start."""

    def __init__(self, application: Any, settings: HttpSection):
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((settings.host, settings.port))
        except OSError as error:
            self._socket.close()
            raise OSError(
                error.errno, f"cannot listen on {settings.host}:{settings.port}: {error.strerror}"
            ) from error
        config = uvicorn.Config(
            application,
            loop="none",
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=BACKLOG,
            timeout_keep_alive=settings.keep_alive_seconds,
            timeout_graceful_shutdown=GRACE_SECONDS,
            **_tls(settings),
        )
        raise_file_limit()
        self._limiter = ConnectionLimiter(
            ListenerBounds.of(settings), ClientAddresses(settings.trusted_proxies)
        )
        self._server = _Uvicorn(config, self._socket, self._limiter)

    @property
    def port(self) -> int:
        """The bound port, of use when 0 was asked for."""
        return int(self._socket.getsockname()[1])

    def announce(self, path: Path, url: str) -> None:
        """Writes the address to a file for commands on the same machine."""
        path.write_text(url + "\n")

    @property
    def started(self) -> asyncio.Event:
        """Event that is set once connections are accepted."""
        return self._server.listens

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return self._limiter.count

    async def run(self) -> None:
        """Serves until cancelled; open requests then have some seconds to end."""
        # What the start has made stays: collections that walk it again and again would
        # cost an eighth of the token path's time.
        gc.collect()
        gc.freeze()
        # Open requests are no garbage: a collection for each 700 of their objects would walk them
        # all the time, which takes a fifteenth of a chat.
        gc.set_threshold(*COLLECT_AT)
        serving = asyncio.create_task(self._server.serve(), name="uvicorn")
        sweeping = asyncio.create_task(self._limiter.sweep(), name="connections")
        try:
            await asyncio.shield(serving)
        finally:
            self._server.leave()
            await asyncio.wait([serving], timeout=GRACE_SECONDS + 2)
            sweeping.cancel()


def _tls(settings: HttpSection) -> dict[str, Any]:
    tls = settings.tls
    if not tls.enabled:
        return {}
    options: dict[str, Any] = {"ssl_certfile": str(tls.certificate), "ssl_keyfile": str(tls.key)}
    if tls.client_ca is not None:
        options |= {"ssl_ca_certs": str(tls.client_ca), "ssl_cert_reqs": _ASKING[tls.clients]}
    return options
