"""The HTTP listener: uvicorn inside the process's own loop, without its signal handlers."""

import asyncio
import contextlib
import gc
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn

from windlass.core.config import Http

BACKLOG = 2048
GRACE_SECONDS = 8
KEEP_ALIVE_SECONDS = 75


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The process has its own."""
        yield


class HttpServer:
    """Serves an ASGI application; binds at once, so that a taken port fails the start."""

    def __init__(self, application: Any, settings: Http):
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
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS,
            **_tls(settings),
        )
        self._server = _Uvicorn(config)

    @property
    def port(self) -> int:
        """The bound port, of use when 0 was asked for."""
        return int(self._socket.getsockname()[1])

    def announce(self, path: Path, url: str) -> None:
        """Leaves the address in a file, for commands on the same machine."""
        path.write_text(url + "\n")

    async def run(self) -> None:
        """Serves until cancelled; open requests then have some seconds to end."""
        # What the start has made stays: collections that walk it again and again would
        # cost an eighth of the token path's time.
        gc.collect()
        gc.freeze()
        serving = asyncio.create_task(self._server.serve(sockets=[self._socket]), name="uvicorn")
        try:
            await asyncio.shield(serving)
        finally:
            self._server.should_exit = True
            await asyncio.wait([serving], timeout=GRACE_SECONDS + 2)


def _tls(settings: Http) -> dict[str, Any]:
    tls = settings.tls
    if not tls.enabled:
        return {}
    options: dict[str, Any] = {"ssl_certfile": str(tls.certificate), "ssl_keyfile": str(tls.key)}
    if tls.client_ca is not None:
        options |= {"ssl_ca_certs": str(tls.client_ca), "ssl_cert_reqs": ssl.CERT_REQUIRED}
    return options
