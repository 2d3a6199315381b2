"""vLLM's routes that steer an engine, for one that has a keeper; only the agent reaches them."""

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import aiohttp
from aiohttp import web

from windlass.inference_api.errors import ApiError
from windlass.inference_api.requests import LoadAdapterRequest, UnloadAdapterRequest, parse
from windlass_agent.engines.boundary import MAX_BODY_BYTES, Handler, boundary, json_response
from windlass_agent.engines.kept.engine import KeptEngine, KeptFailure

_KEPT = web.AppKey("kept", object)
_STARTED = web.AppKey("started", int)


def kept_app(engine: KeptEngine, answering: Mapping[str, Handler]) -> web.Application:
    """The application of a keeper; `answering` are the POST routes of requests for its models."""
    app = web.Application(middlewares=[boundary], client_max_size=MAX_BODY_BYTES)
    app[_KEPT], app[_STARTED] = engine, int(time.time())
    app.add_routes(
        [
            web.get("/health", _health),
            web.get("/load", _load),
            web.get("/metrics", _metrics),
            web.get("/v1/models", _models),
            web.post("/v1/load_lora_adapter", _load_adapter),
            web.post("/v1/unload_lora_adapter", _unload_adapter),
            *(web.post(path, handler) for path, handler in answering.items()),
        ]
    )
    return app


def _kept(request: web.Request) -> KeptEngine:
    return cast("KeptEngine", request.app[_KEPT])


async def _health(request: web.Request) -> web.Response:
    return web.Response(status=200 if await _kept(request).answers() else 503)


async def _load(request: web.Request) -> web.Response:
    """Answers how many requests are open that an end would cut."""
    return json_response({"server_load": _kept(request).open})


async def _metrics(request: web.Request) -> web.Response:
    """Answers the program's own page, which the agent alone asks for."""
    try:
        page = await _kept(request).metrics()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        return web.Response(text=repr(error), status=503)
    return web.Response(body=page, content_type="text/plain")


async def _models(request: web.Request) -> web.Response:
    engine = _kept(request)
    shared = {
        "object": "model",
        "created": request.app[_STARTED],
        "owned_by": "windlass",
        "max_model_len": engine.context,
    }
    data: list[dict[str, Any]] = [{**shared, "id": engine.model, "parent": None}]
    data += [
        {**shared, "id": name, "parent": engine.model, "root": str(folder)}
        for name, folder in engine.adapters.items()
    ]
    return json_response({"object": "list", "data": data})


async def _load_adapter(request: web.Request) -> web.Response:
    body = parse(LoadAdapterRequest, await request.read())
    engine = _kept(request)
    if body.lora_name in (engine.model, *engine.adapters):
        raise ApiError(f"The adapter `{body.lora_name}` is loaded.", code="adapter_exists")
    if len(engine.adapters) >= engine.max_adapters:
        raise ApiError(
            f"All {engine.max_adapters} places for adapters are in use.",
            status=503,
            code="adapters_in_use",
        )
    try:
        # Shielded: a caller that leaves must not leave a half of it behind that nobody knows of.
        await asyncio.shield(engine.load(body.lora_name, Path(body.lora_path)))
    except KeptFailure as error:
        raise ApiError(str(error), code="invalid_adapter") from error
    return web.Response(text=f"Success: LoRA adapter '{body.lora_name}' added successfully.")


async def _unload_adapter(request: web.Request) -> web.Response:
    body = parse(UnloadAdapterRequest, await request.read())
    if not _kept(request).unload(body.lora_name):
        raise ApiError(
            f"The adapter `{body.lora_name}` is not loaded.", status=404, code="adapter_not_found"
        )
    return web.Response(text=f"Success: LoRA adapter '{body.lora_name}' removed successfully.")
