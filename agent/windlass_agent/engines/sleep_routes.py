"""Routes of sleep, as vLLM has them, for our own engine and those with a keeper."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from aiohttp import web

from windlass_agent.engines.boundary import json_response


class Sleeper(Protocol):
    """An engine that gives its device's memory back and takes it again."""

    @property
    def asleep(self) -> bool:
        """True from the beginning of a sleep until it has woken; then it refuses requests."""

    async def sleep(self) -> None:
        """Returns once it sleeps: what is open ends first. One that sleeps sleeps on."""

    async def wake(self) -> None:
        """Returns once it answers again; raises whatever hinders it, and sleeps on."""


def sleep_routes(find: Callable[[web.Request], Sleeper]) -> list[web.RouteDef]:
    """Routes that the agent alone asks for, none of which the gateway passes on."""

    async def sleep(request: web.Request) -> web.Response:
        # Shielded: a caller that leaves must not leave a half of it behind.
        await asyncio.shield(find(request).sleep())
        return json_response({"status": "sleeping"})

    async def wake(request: web.Request) -> web.Response:
        await asyncio.shield(find(request).wake())
        return json_response({"status": "awake"})

    async def is_sleeping(request: web.Request) -> web.Response:
        return json_response({"is_sleeping": find(request).asleep})

    return [
        web.post("/sleep", sleep),
        web.post("/wake_up", wake),
        web.get("/is_sleeping", is_sleeping),
    ]
