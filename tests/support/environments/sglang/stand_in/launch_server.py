"""Takes SGLang's flags and answers at its routes, as `sglang.launch_server` of 0.5.23 does.

What it does not do: it runs no model, so `stop`, sampling and rules of an answer mean nothing.
"""

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from aiohttp import web
from pydantic import ValidationError
from sglang.forms import Answer, ChatAnswer, CompletionAnswer
from sglang.srt.entrypoints.openai import protocol
from sglang.srt.server_args import prepare_server_args
from sglang.srt.utils.auth import AuthLevel, decide_request_auth
from sglang.words import Refused, WordModel, Work

# SGLang looks for clients that have left after such a pause (`create_abort_task`).
_DISCONNECT_SECONDS = 60.0
_ADMIN = ("/load_lora_adapter", "/unload_lora_adapter", "/abort_request")
MODEL = web.AppKey("model", WordModel)
ARGUMENTS = web.AppKey("arguments", object)


def build(arguments: Any) -> web.Application:
    """The server of these flags."""
    folder = Path(arguments.model_path)
    config = json.loads((folder / "config.json").read_bytes())
    app = web.Application(middlewares=[_key(arguments.api_key)])
    app[ARGUMENTS] = arguments
    app[MODEL] = WordModel(
        context=arguments.context_length or config["max_position_embeddings"],
        running=arguments.max_running_requests or 16,
        queued=arguments.max_queued_requests,
        max_rank=arguments.max_lora_rank,
        model=folder,
    )
    app.add_routes(
        [
            web.get("/ready", _ok),
            web.get("/health_generate", _ok),
            web.get("/metrics", _metrics),
            web.get("/v1/models", _models),
            web.post("/load_lora_adapter", _load),
            web.post("/unload_lora_adapter", _unload),
            web.post("/abort_request", _abort),
            web.post("/v1/chat/completions", _chat),
            web.post("/v1/completions", _completion),
        ]
    )
    return app


def _key(key: str | None) -> Any:
    @web.middleware
    async def checked(request: web.Request, handler: Any) -> web.StreamResponse:
        level = AuthLevel.ADMIN_OPTIONAL if request.path in _ADMIN else AuthLevel.NORMAL
        decision = decide_request_auth(
            method=request.method,
            path=request.path,
            authorization_header=request.headers.get("Authorization"),
            api_key=key,
            admin_api_key=None,
            auth_level=level,
        )
        if not decision.allowed:
            return web.json_response({"error": "Unauthorized"}, status=decision.error_status_code)
        return await handler(request)

    return checked


async def _ok(_: web.Request) -> web.Response:
    return web.Response()


async def _metrics(request: web.Request) -> web.Response:
    model = request.app[MODEL]
    values = {
        "num_running_reqs": model.running,
        "num_queue_reqs": model.waiting,
        "token_usage": model.running / model.places,
        "prompt_tokens_total": model.counts["prompt"],
        "generation_tokens_total": model.counts["generation"],
    }
    lines = [f'sglang:{name}{{priority=""}} {float(one)}' for name, one in values.items()]
    # Those of each priority are in the first ones too.
    lines.append(f'sglang:num_running_reqs{{priority="0"}} {float(model.running)}')
    cached = model.counts["cached"]
    lines.append(f'sglang:cached_tokens_total{{cache_source="device"}} {float(cached)}')
    return web.Response(text="\n".join([*lines, ""]))


async def _models(request: web.Request) -> web.Response:
    model, arguments = request.app[MODEL], request.app[ARGUMENTS]
    name = arguments.served_model_name
    cards = [protocol.ModelCard(id=name, root=name, max_model_len=model.context)]
    cards += [
        protocol.ModelCard(id=one, root=str(path), parent=name)
        for one, (path, _) in model.adapters.items()
    ]
    return _json(protocol.ModelList(data=cards))


async def _load(request: web.Request) -> web.Response:
    body, model = await request.json(), request.app[MODEL]
    return await _updated(model, lambda: model.load(body["lora_name"], Path(body["lora_path"])))


async def _unload(request: web.Request) -> web.Response:
    body, model = await request.json(), request.app[MODEL]
    return await _updated(model, lambda: model.unload(body["lora_name"]))


async def _updated(model: WordModel, change: Callable[[], Any]) -> web.Response:
    said = None
    try:
        if (waiting := change()) is not None:
            await waiting
    except Refused as refused:
        said = refused.message
    except OSError as error:
        said = f"Failed to load: {error}"
    loaded = {name: str(path) for name, (path, _) in model.adapters.items()}
    answer = {"success": said is None, "error_message": said, "loaded_adapters": loaded}
    return web.json_response(answer, status=400 if said else 200)


async def _abort(request: web.Request) -> web.Response:
    request.app[MODEL].abort((await request.json()).get("rid", ""))
    return web.Response()


async def _chat(request: web.Request) -> web.StreamResponse:
    return await _answered(request, protocol.ChatCompletionRequest, ChatAnswer)


async def _completion(request: web.Request) -> web.StreamResponse:
    return await _answered(request, protocol.CompletionRequest, CompletionAnswer)


async def _answered(request: web.Request, kind: Any, form: type[Answer]) -> web.StreamResponse:
    try:
        asked = kind.model_validate_json(await request.read())
    except ValidationError as error:
        return _refusal(str(error), "Bad Request", 400)
    answer = form(request.app[MODEL], asked)
    leaving = asyncio.create_task(_left(request, answer.work))
    try:
        async with contextlib.aclosing(answer.words()) as words:
            if asked.stream:
                return await _streamed(request, answer, words)
            async for _ in words:
                pass
            return _json(answer.whole())
    except Refused as refused:
        return _refusal(refused.message, "BadRequestError", refused.status)
    finally:
        leaving.cancel()


async def _left(request: web.Request, work: Work) -> None:
    while request.transport is not None and not request.transport.is_closing():
        await asyncio.sleep(0.05)
    await asyncio.sleep(_DISCONNECT_SECONDS)
    work.aborted.set()


async def _streamed(
    request: web.Request, answer: Answer, words: AsyncIterator[str]
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    try:
        async for word in words:
            for event in answer.chunks(word):
                await _write(request, response, event)
    except Refused as refused:
        if refused.status == 400:
            raise
        # As SGLang's scheduler refuses: in the stream, whose headers say that all is well.
        error = protocol.ErrorResponse(
            message=refused.message, type="SERVICE_UNAVAILABLE", code=refused.status
        )
        await _write(request, response, f"data: {json.dumps({'error': error.model_dump()})}\n\n")
    else:
        for event in answer.closing():
            await _write(request, response, event)
    await _write(request, response, "data: [DONE]\n\n")
    return response


async def _write(request: web.Request, response: web.StreamResponse, event: str) -> None:
    # Who has left is noticed later.
    with contextlib.suppress(ConnectionResetError):
        if not response.prepared:
            await response.prepare(request)
        await response.write(event.encode())


def _json(body: Any) -> web.Response:
    return web.Response(body=body.model_dump_json(), content_type="application/json")


def _refusal(message: str, kind: str, status: int) -> web.Response:
    error = protocol.ErrorResponse(message=message, type=kind, code=status)
    return web.Response(
        body=error.model_dump_json(), status=status, content_type="application/json"
    )


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    _arguments = prepare_server_args(sys.argv[1:])
    web.run_app(
        build(_arguments), host=_arguments.host, port=_arguments.port, print=None, access_log=None
    )
