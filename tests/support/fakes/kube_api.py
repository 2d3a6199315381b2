"""Scripted responses of a Kubernetes API server.

A fake, for what a real server does not do when asked to: a version that expires in the midst
of a list, a stream cut in the midst of a line, a bookmark that goes backwards, a 429. What a
server does of its own is tested against the real one, in tests/cluster.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from windlass_agent.kube import Access, Kube

Object = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def kube_api(handler: Handler, *, token: str = "t") -> AsyncIterator[Kube]:
    """Yields a client of a server whose every path `handler` serves."""
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]

    async def authorization() -> str:
        return f"Bearer {token}"

    try:
        async with Kube(Access(f"http://127.0.0.1:{port}", None, authorization)) as kube:
            yield kube
    finally:
        await runner.cleanup()


def pod(name: str, version: int | str, *, namespace: str = "team", **labels: str) -> Object:
    """Returns the part of a pod that these tests read."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "resourceVersion": str(version),
            "labels": labels,
        },
    }


def listed(*items: Object, version: int | str, more: str = "") -> web.Response:
    """Returns a list, or a page of one."""
    metadata = {"resourceVersion": str(version)} | ({"continue": more} if more else {})
    return web.json_response({"kind": "PodList", "metadata": metadata, "items": list(items)})


def status(code: int, reason: str, message: str = "") -> Object:
    """Returns a Status instead of an object."""
    return {
        "kind": "Status",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
    }


def refused(code: int, reason: str, message: str = "") -> web.Response:
    """Returns an error response."""
    return web.json_response(status(code, reason, message), status=code)


class Watched:
    """A collection whose lists and watches a test plays one after the other.

    Each list takes the next of `lists`; each watch becomes a Stream of `streams`.
    """

    def __init__(self) -> None:
        self.lists: asyncio.Queue[web.Response] = asyncio.Queue()
        self.streams: asyncio.Queue[Stream] = asyncio.Queue()
        self.listings = 0

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Handles a request of `kube_api`."""
        if "watch" not in request.query:
            self.listings += 1
            return await self.lists.get()
        stream = Stream(request)
        await self.streams.put(stream)
        return await stream.serve()


class Stream:
    """One watch, from the server's side."""

    def __init__(self, request: web.Request) -> None:
        self.version = request.query["resourceVersion"]
        self._request = request
        self._parts: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._abort = False

    def event(self, kind: str, item: Object) -> None:
        """Sends an event."""
        self.raw(json.dumps({"type": kind, "object": item}).encode() + b"\n")

    def bookmark(self, version: int | str) -> None:
        """Sends a bookmark with the server's version."""
        metadata = {"resourceVersion": str(version)}
        self.event("BOOKMARK", {"kind": "Pod", "metadata": metadata})

    def raw(self, part: bytes) -> None:
        """Sends bytes as they are."""
        self._parts.put_nowait(part)

    def end(self) -> None:
        """Ends the watch as a server does after its timeout."""
        self._parts.put_nowait(None)

    def cut(self) -> None:
        """Ends the watch as a killed server does."""
        self._abort = True
        self._parts.put_nowait(None)

    async def serve(self) -> web.StreamResponse:
        """Sends what the test says."""
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        answer.enable_chunked_encoding()
        await answer.prepare(self._request)
        while (part := await self._parts.get()) is not None:
            await answer.write(part)
        if self._abort and self._request.transport is not None:
            self._request.transport.abort()
        return answer
