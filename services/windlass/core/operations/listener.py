"""The operators' listener of a process: health with its reasons, metrics, and pages for them.

It asks nobody for a key, so it listens on the loopback address unless it is told otherwise.
"""

import socket
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from aiohttp import web

from windlass.core import telemetry
from windlass.core.operations.exposition import CONTENT_TYPE, Exposition

log = telemetry.logger("operations")
STOP_SECONDS = 1.0
DEGRADED, NOT_READY = "degraded", "not ready"
# What may be scraped or shown, by its path.
Page = Callable[[], tuple[bytes, dict[str, str]]]


def status_of(parts: Mapping[str, str]) -> str:
    """The readiness of a process by that of its parts: `ok`, `degraded` or `not ready`."""
    words = {said.partition(":")[0] for said in parts.values()}
    if words <= {"ok"}:
        return "ok"
    return DEGRADED if words <= {"ok", DEGRADED} else NOT_READY


class Operations:
    """Serves `/healthz`, `/readyz`, `/metrics` and what is added to them."""

    def __init__(self, readiness: Callable[[], Awaitable[dict[str, str]]], exposition: Exposition):
        self._readiness = readiness
        self._exposition = exposition
        self._application = web.Application()
        self._application.router.add_get("/healthz", _alive)
        self._application.router.add_get("/readyz", self._ready)
        self._application.router.add_get("/metrics", self._metrics)
        self._runner: web.AppRunner | None = None

    def add(self, path: str, page: Page) -> None:
        """Serve a page as well; before the start."""

        async def show(_: web.Request) -> web.Response:
            body, headers = page()
            return web.Response(body=body, headers=headers)

        self._application.router.add_get(path, show)

    async def start(self, listen: str, announced: Path) -> None:
        """Bind `host:port` and leave the address in a file; raises OSError for a taken port."""
        host, _, port = listen.rpartition(":")
        host = host.strip("[]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, int(port)))
        except OSError as error:
            listener.close()
            raise OSError(error.errno, f"cannot listen on {listen}: {error.strerror}") from error
        self._runner = web.AppRunner(
            self._application, access_log=None, shutdown_timeout=STOP_SECONDS
        )
        await self._runner.setup()
        await web.SockSite(self._runner, listener).start()
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{listener.getsockname()[1]}"
        announced.write_text(address + "\n")
        log.info("operations_listener_started", address=address)

    async def stop(self) -> None:
        """Close it, if it runs."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _ready(self, _: web.Request) -> web.Response:
        parts = await self._readiness()
        return web.json_response(parts, status=503 if status_of(parts) == NOT_READY else 200)

    async def _metrics(self, _: web.Request) -> web.Response:
        body = await self._exposition.render()
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})


async def _alive(_: web.Request) -> web.Response:
    return web.json_response({"status": "ok"})
