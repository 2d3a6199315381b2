"""Versions of the weights: the agent's routes, and what each request is told and may demand."""

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Middleware

from windlass.inference_api.errors import bad_value
from windlass.inference_api.requests import UpdateWeightsRequest, parse
from windlass.inference_api.routes import WEIGHT_VERSION
from windlass_agent.engines.boundary import Handler, json_response
from windlass_agent.engines.builtin.service import EngineService
from windlass_agent.engines.versioned.gate import check_version, demanded_version

_ANSWERS = web.RequestKey("weight_version", int)
Find = Callable[[web.Request], EngineService]


def versioned(find: Find, paths: Collection[str]) -> Middleware:
    """Middleware that holds each request of such paths to one version, which it may demand."""

    @web.middleware
    async def hold(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path not in paths:
            return await handler(request)
        demanded = demanded_version(request.headers.get(WEIGHT_VERSION))
        versions = find(request).versions
        async with versions.gate.request():
            request[_ANSWERS] = versions.version
            check_version(demanded, versions.version)
            return await handler(request)

    return hold


async def tell_version(request: web.Request, response: web.StreamResponse) -> None:
    """Names the version in the headers of an answer, streams too."""
    if _ANSWERS in request:
        response.headers[WEIGHT_VERSION] = str(request[_ANSWERS])


def weight_routes(find: Find) -> list[web.RouteDef]:
    """Routes that the agent alone asks for, none of which the gateway passes on."""

    async def update(request: web.Request) -> web.Response:
        body = parse(UpdateWeightsRequest, await request.read())
        root = Path(body.path)
        if not root.is_absolute():
            raise bad_value("path must be absolute", "path")
        # Shielded: a caller that leaves must not leave it open which version answers.
        await asyncio.shield(_update(find(request), body, root))
        return json_response({"version": body.version})

    async def version(request: web.Request) -> web.Response:
        return json_response({"version": find(request).versions.version})

    return [web.post("/update_weights", update), web.get("/weight_version", version)]


async def _update(service: EngineService, body: UpdateWeightsRequest, root: Path) -> None:
    async with service.sleep.awake():
        await service.versions.update(body.version, root, body.wait_seconds)
