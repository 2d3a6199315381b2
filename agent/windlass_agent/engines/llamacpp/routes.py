"""The keeper's HTTP routes: vLLM's, as far as llama.cpp goes; no other reaches its server."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from windlass.inference_api.requests import ChatRequest, CompletionRequest, StreamOptions, parse
from windlass_agent.engines.boundary import event_stream, json_response
from windlass_agent.engines.kept.events import broken_off
from windlass_agent.engines.kept.routes import kept_app
from windlass_agent.engines.llamacpp import answers
from windlass_agent.engines.llamacpp.bodies import (
    SaltedChat,
    SaltedCompletion,
    chat_body,
    completion_body,
    placed,
)
from windlass_agent.engines.llamacpp.keeper import Keeper
from windlass_agent.engines.sleep_routes import sleep_routes

KEEPER = web.AppKey("keeper", Keeper)


def build_app(keeper: Keeper) -> web.Application:
    """The application around a keeper."""
    app = kept_app(keeper, {"/v1/chat/completions": _chat, "/v1/completions": _completion})
    app.add_routes(sleep_routes(lambda _: keeper))
    app[KEEPER] = keeper
    return app


async def _chat(request: web.Request) -> web.StreamResponse:
    asked = parse(SaltedChat, await request.read())
    keeper = request.app[KEEPER]
    body = chat_body(asked, context=keeper.context, renders=keeper.renders)
    top = (asked.top_logprobs or 0) if asked.logprobs else None
    return await _answer(request, asked, body, top=top)


async def _completion(request: web.Request) -> web.StreamResponse:
    asked = parse(SaltedCompletion, await request.read())
    body = completion_body(asked, context=request.app[KEEPER].context)
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
            raise broken_off(error) from error
