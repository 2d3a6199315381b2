"""The keeper's HTTP routes: vLLM's, as far as SGLang goes; no other reaches its server."""

from typing import Any

import aiohttp
from aiohttp import web

from windlass.core.telemetry import request_id
from windlass.inference_api.requests import (
    AbortRequest,
    ChatRequest,
    CompletionRequest,
    parse,
)
from windlass.inference_api.routes import ABORT, CHAT, COMPLETIONS
from windlass_agent.engines.boundary import event_stream
from windlass_agent.engines.kept.events import broken_off
from windlass_agent.engines.kept.routes import kept_app
from windlass_agent.engines.sglang import answers
from windlass_agent.engines.sglang.bodies import (
    SaltedChat,
    SaltedCompletion,
    chat_body,
    completion_body,
)
from windlass_agent.engines.sglang.keeper import SglangKeeper

KEEPER = web.AppKey("keeper", SglangKeeper)


def build_app(keeper: SglangKeeper) -> web.Application:
    """The application around a keeper."""
    app = kept_app(keeper, {CHAT: _chat, COMPLETIONS: _completion, ABORT: _abort})
    app[KEEPER] = keeper
    return app


async def _chat(request: web.Request) -> web.StreamResponse:
    asked = parse(SaltedChat, await request.read())
    return await _answer(request, asked, chat_body(asked))


async def _completion(request: web.Request) -> web.StreamResponse:
    asked = parse(SaltedCompletion, await request.read())
    return await _answer(request, asked, completion_body(asked))


async def _abort(request: web.Request) -> web.Response:
    """Answers 404 where it can end none of the requests, so that nobody waits for their end."""
    asked = parse(AbortRequest, await request.read())
    return web.Response(status=200 if await request.app[KEEPER].abort(asked.request_ids) else 404)


async def _answer(
    request: web.Request, asked: ChatRequest | CompletionRequest, body: dict[str, Any]
) -> web.StreamResponse:
    """Passes the server's answer on; the work on it ends when the client leaves."""
    keeper = request.app[KEEPER]
    body |= keeper.fields(asked.model)
    identifier = request_id.get()
    public = f"chatcmpl-{identifier}" if request.path == CHAT else f"cmpl-{identifier}-0"
    try:
        async with keeper.posted(request.path, body, public) as response:
            if not response.ok:
                raise answers.refusal(await response.read(), response.status)
            if not asked.stream:
                content = answers.whole(await response.read(), asked.model)
                return web.Response(body=content, content_type="application/json")
            return await event_stream(request, answers.chunks(response.content, asked.model))
    except aiohttp.ClientError as error:
        raise broken_off(error) from error
