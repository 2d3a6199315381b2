"""The keeper's HTTP routes: vLLM's, as far as llama.cpp goes; no other reaches its server."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from windlass.inference_api.errors import ApiError
from windlass.inference_api.requests import (
    ChatRequest,
    CompletionRequest,
    LoadAdapterRequest,
    StreamOptions,
    UnloadAdapterRequest,
    parse,
)
from windlass_agent.engines.boundary import MAX_BODY_BYTES, boundary, event_stream, json_response
from windlass_agent.engines.llamacpp import answers
from windlass_agent.engines.llamacpp.bodies import (
    SaltedChat,
    SaltedCompletion,
    chat_body,
    completion_body,
    placed,
)
from windlass_agent.engines.llamacpp.conversion import ConversionFailure
from windlass_agent.engines.llamacpp.keeper import Keeper
from windlass_agent.engines.llamacpp.server import ServerFailure

KEEPER = web.AppKey("keeper", Keeper)
STARTED = web.AppKey("started", int)


def build_app(keeper: Keeper) -> web.Application:
    """The application around a keeper that has started."""
    app = web.Application(middlewares=[boundary], client_max_size=MAX_BODY_BYTES)
    app[KEEPER], app[STARTED] = keeper, int(time.time())
    app.add_routes(
        [
            web.get("/health", _health),
            web.get("/load", _load),
            web.get("/metrics", _metrics),
            web.get("/v1/models", _models),
            web.post("/v1/chat/completions", _chat),
            web.post("/v1/completions", _completion),
            web.post("/v1/load_lora_adapter", _load_adapter),
            web.post("/v1/unload_lora_adapter", _unload_adapter),
        ]
    )
    return app


async def _health(request: web.Request) -> web.Response:
    return web.Response(status=200 if await request.app[KEEPER].answers() else 503)


async def _load(request: web.Request) -> web.Response:
    """Answers how many requests are open that an end would cut."""
    return json_response({"server_load": request.app[KEEPER].open})


async def _metrics(request: web.Request) -> web.Response:
    """Answers the server's own page, which the agent alone asks for."""
    try:
        page = await request.app[KEEPER].metrics()
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        return web.Response(text=repr(error), status=503)
    return web.Response(body=page, content_type="text/plain")


async def _models(request: web.Request) -> web.Response:
    keeper = request.app[KEEPER]
    shared = {
        "object": "model",
        "created": request.app[STARTED],
        "owned_by": "windlass",
        "max_model_len": keeper.settings.context,
    }
    data: list[dict[str, Any]] = [{**shared, "id": keeper.model, "parent": None}]
    data += [{**shared, "id": name, "parent": keeper.model} for name in keeper.adapters]
    return json_response({"object": "list", "data": data})


async def _load_adapter(request: web.Request) -> web.Response:
    body = parse(LoadAdapterRequest, await request.read())
    keeper = request.app[KEEPER]
    if body.lora_name in (keeper.model, *keeper.adapters):
        raise ApiError(f"The adapter `{body.lora_name}` is loaded.", code="adapter_exists")
    if len(keeper.adapters) >= keeper.max_adapters:
        raise ApiError(
            f"All {keeper.max_adapters} places for adapters are in use.",
            status=503,
            code="adapters_in_use",
        )
    try:
        # Shielded: a caller that leaves must not leave a server behind that nobody knows of.
        await asyncio.shield(keeper.load(body.lora_name, Path(body.lora_path)))
    except (ConversionFailure, ServerFailure) as error:
        raise ApiError(str(error), code="invalid_adapter") from error
    return web.Response(text=f"Success: LoRA adapter '{body.lora_name}' added successfully.")


async def _unload_adapter(request: web.Request) -> web.Response:
    body = parse(UnloadAdapterRequest, await request.read())
    if not request.app[KEEPER].unload(body.lora_name):
        raise ApiError(
            f"The adapter `{body.lora_name}` is not loaded.", status=404, code="adapter_not_found"
        )
    return web.Response(text=f"Success: LoRA adapter '{body.lora_name}' removed successfully.")


async def _chat(request: web.Request) -> web.StreamResponse:
    asked = parse(SaltedChat, await request.read())
    keeper = request.app[KEEPER]
    body = chat_body(asked, context=keeper.settings.context, renders=keeper.renders)
    top = (asked.top_logprobs or 0) if asked.logprobs else None
    return await _answer(request, asked, body, top=top)


async def _completion(request: web.Request) -> web.StreamResponse:
    asked = parse(SaltedCompletion, await request.read())
    body = completion_body(asked, context=request.app[KEEPER].settings.context)
    return await _answer(request, asked, body)


async def _answer(
    request: web.Request,
    asked: ChatRequest | CompletionRequest,
    body: dict[str, Any],
    *,
    top: int | None = None,
) -> web.StreamResponse:
    """Waits for a slot and passes the server's answer on; both end when the client leaves."""
    options = asked.stream_options or StreamOptions()
    shape = answers.AnswerShape(
        model=asked.model, every_usage=options.continuous_usage_stats, top=top
    )
    async with _response(request, asked, body) as response:
        if not asked.stream:
            return json_response(answers.whole(await response.read(), shape))
        return await event_stream(request, answers.chunks(response.content, shape))


@asynccontextmanager
async def _response(
    request: web.Request, asked: ChatRequest | CompletionRequest, body: dict[str, Any]
) -> AsyncIterator[aiohttp.ClientResponse]:
    """The server's response to a request, which has its slot until the end; raises ApiError."""
    keeper = request.app[KEEPER]
    salt = getattr(asked, "cache_salt", None) or ""
    async with keeper.turn(asked.model, salt) as turn:
        content = placed(
            body,
            slot=turn.slot,
            continued=turn.continued,
            adapter=turn.adapter,
            adapters=len(turn.server.adapters),
        )
        try:
            async with turn.server.session.post(
                request.path,
                data=msgspec.json.encode(content),
                headers={"Content-Type": "application/json"},
            ) as response:
                if not response.ok:
                    raise answers.refusal(await response.json(), response.status)
                yield response
        except aiohttp.ClientError as error:
            raise answers.broken_off(error) from error
