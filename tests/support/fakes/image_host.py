"""A host of images over TLS on loopback, with every way to answer or to fail.

It stands for a host on the internet, which no test reaches; what fetches from it is real.
"""

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path

from aiohttp import web
from tests.support.environments.certificates import self_signed

# Of one pixel.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
LOOPBACK = (ip_network("127.0.0.0/8"),)


@dataclass
class ImageHost:
    """A running host: `/image` has one, `/to?where=URL` leads elsewhere."""

    port: int = 0
    trust: ssl.SSLContext = field(default_factory=ssl.create_default_context)
    # Paths with queries, as they arrived.
    asked: list[str] = field(default_factory=list)
    # How many answers are open at once, and were at most.
    active: int = 0
    most_active: int = 0
    released: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"https://{self.name}"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.raw_path)
        self.active += 1
        self.most_active = max(self.most_active, self.active)
        try:
            return await self._answer(request)
        finally:
            self.active -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        match request.path:
            case "/image":
                return web.Response(body=PNG, content_type="application/octet-stream")
            case "/to":
                where = request.query["where"]
                return web.Response(status=302, headers={"Location": where})
            case "/again":
                return web.Response(status=307, headers={"Location": "/again"})
            case "/held":
                await self.released.wait()
                return web.Response(body=PNG)
            case "/endless":
                return await self._endless(request)
            case "/packed":
                return web.Response(body=PNG, headers={"Content-Encoding": "gzip"})
        return web.Response(status=404, text="a secret of the host")

    async def _endless(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            # A connection that is lost lets it write on.
            while request.transport is not None and not request.transport.is_closing():
                await response.write(bytes(2**16))
                await asyncio.sleep(0)
        return response


@asynccontextmanager
async def image_host(folder: Path) -> AsyncIterator[ImageHost]:
    """Serves until the end of the block; `folder` is for its certificate."""
    certificate, key = self_signed(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    host = ImageHost()
    host.trust.load_verify_locations(certificate)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", host.answer)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        host.port = runner.addresses[0][1]
        yield host
    finally:
        host.released.set()
        await runner.cleanup()
