"""A fake of the front of a serving stack: OpenAI's routes, answered as a test says.

Real fronts are in the tests as well (another Windlass, vLLM's router); this one lies, breaks off
and hangs, which those do not do on demand.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Handler = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


@dataclass
class FakeStack:
    """A stack that runs; `asked` has the bodies of requests, `keys` what they were sent with."""

    url: str = ""
    models: list[dict[str, Any]] = field(default_factory=lambda: [{"id": "theirs"}])
    # The only key that it takes; empty for any.
    key: str = ""
    # Its answer to a question for its models, where that is no list.
    list_status: int = 200
    handler: Handler | None = None
    # Answers for its models in its place.
    list_held: Callable[[web.Request], Awaitable[web.Response]] | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)

    async def list(self, request: web.Request) -> web.Response:
        """Answers GET /v1/models."""
        if self.list_held is not None:
            return await self.list_held(request)
        if self.key and request.headers.get("Authorization") != f"Bearer {self.key}":
            return web.json_response({"error": {"message": "bad key"}}, status=401)
        return web.json_response({"data": self.models}, status=self.list_status)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answers every other route."""
        body = await request.json()
        self.asked.append(body)
        self.keys.append(request.headers.get("Authorization", ""))
        try:
            if self.handler is not None:
                return await self.handler(request, body)
            return web.json_response({"model": body["model"], "choices": []})
        except asyncio.CancelledError:
            self.left.set()
            raise


@asynccontextmanager
async def running_stack() -> AsyncIterator[FakeStack]:
    """Runs one at a free port of this machine."""
    stack = FakeStack()
    app = web.Application()
    app.add_routes([web.get("/v1/models", stack.list), web.post("/{path:.*}", stack.answer)])
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    stack.url = f"http://{host}:{port}"
    try:
        yield stack
    finally:
        await runner.cleanup()


def streaming(*parts: bytes, ends: bool = True) -> Handler:
    """A handler that sends parts of an event stream, and breaks off unless it `ends`."""

    async def handler(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for part in parts:
            await response.write(part)
        if not ends:
            assert request.transport is not None
            request.transport.abort()
        return response

    return handler
