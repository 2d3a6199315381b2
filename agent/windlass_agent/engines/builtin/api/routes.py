"""The HTTP routes: vLLM's, as far as this engine goes."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web
from prometheus_client import generate_latest

from windlass.inference_api.errors import asleep, bad_value
from windlass.inference_api.messages import conversation
from windlass.inference_api.requests import (
    AbortRequest,
    LoadAdapterRequest,
    TokenizeRequest,
    UnloadAdapterRequest,
    parse,
)
from windlass.inference_api.routes import ABORT, GENERATE, RERANK
from windlass_agent.engines.boundary import MAX_BODY_BYTES, Handler, boundary, json_response
from windlass_agent.engines.builtin.api.chat import chat_completions
from windlass_agent.engines.builtin.api.completions import completions
from windlass_agent.engines.builtin.api.embeddings import embeddings
from windlass_agent.engines.builtin.api.generate import generate
from windlass_agent.engines.builtin.api.rerank import rerank
from windlass_agent.engines.builtin.api.scores import scores
from windlass_agent.engines.builtin.api.weights import tell_version, versioned, weight_routes
from windlass_agent.engines.builtin.constraints import Grammars
from windlass_agent.engines.builtin.generation.adapter_weights import AdapterWeights, check_adapter
from windlass_agent.engines.builtin.generation.adapters import Adapters, LoadedAdapter
from windlass_agent.engines.builtin.generation.metrics import EngineMetrics
from windlass_agent.engines.builtin.generation.model import LoadedModel
from windlass_agent.engines.builtin.generation.scheduler import SequenceScheduler
from windlass_agent.engines.builtin.generation.sleeping import DroppableWeights, ModelSleep
from windlass_agent.engines.builtin.generation.weight_updates import WeightVersions
from windlass_agent.engines.builtin.service import EngineService, fail_unhealthy
from windlass_agent.engines.builtin.tools.learning import Learner
from windlass_agent.engines.sleep_routes import sleep_routes

SERVICE = web.AppKey("service", EngineService)
OPEN = web.AppKey("open", defaultdict[str, int])
Route = Callable[[web.Request, EngineService], Awaitable[web.StreamResponse]]


def build_app(
    model: LoadedModel,
    *,
    max_adapters: int,
    max_concurrency: int,
    max_waiting: int,
    lost: Callable[[], None] = lambda: None,
) -> web.Application:
    """The application; its scheduler runs from start-up to clean-up, or until `lost` is called."""
    middlewares = [boundary, _counted, versioned(_service, _WORK)]
    app = web.Application(middlewares=middlewares, client_max_size=MAX_BODY_BYTES)

    async def run(_: web.Application) -> AsyncIterator[None]:
        metrics = EngineMetrics()
        droppable, weights = DroppableWeights(model), AdapterWeights(model)
        scheduler = SequenceScheduler(
            model,
            weights,
            max_concurrency=max_concurrency,
            max_waiting=max_waiting,
            metrics=metrics,
            lost=lost,
        )
        adapters = Adapters(model.name, weights, scheduler.call, limit=max_adapters)
        grammars = Grammars(
            model.tokenizer.inner, vocabulary_size=model.vocabulary_size, eos=model.eos
        )
        versions = WeightVersions(droppable.parameters, scheduler)
        ends = tuple(model.tokenizer.token(token) for token in model.eos)
        app[SERVICE] = EngineService(
            model=model,
            scheduler=scheduler,
            adapters=adapters,
            metrics=metrics,
            grammars=grammars,
            tools=Learner(model.tokenizer.render, ends=ends),
            sleep=ModelSleep(droppable, scheduler.call, lambda: _opened(app), versions.reset),
            versions=versions,
        )
        yield
        grammars.close()
        await scheduler.stop()
        await model.tokenizer.close()

    app[OPEN] = defaultdict(int)
    app.cleanup_ctx.append(run)
    for method, path, route in _ROUTES:
        app.router.add_route(method, path, _bind(route))
    app.add_routes(sleep_routes(lambda request: _service(request).sleep))
    app.add_routes(weight_routes(_service))
    app.on_response_prepare.append(tell_version)
    return app


def _service(request: web.Request) -> EngineService:
    return request.app[SERVICE]


def _bind(route: Route) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        return await route(request, _service(request))

    return handle


@web.middleware
async def _counted(request: web.Request, handler: Handler) -> web.StreamResponse:
    opened = request.app[OPEN]
    opened[request.path] += 1
    try:
        return await handler(request)
    finally:
        opened[request.path] -= 1


async def _health(_: web.Request, service: EngineService) -> web.Response:
    fail_unhealthy(service)
    return web.Response()


async def _load(request: web.Request, _: EngineService) -> web.Response:
    """Answers how many requests are open that an end would cut."""
    return json_response({"server_load": _opened(request.app)})


def _opened(app: web.Application) -> int:
    return sum(app[OPEN][path] for path in _WORK)


async def _models(_: web.Request, service: EngineService) -> web.Response:
    base = service.model
    data: list[dict[str, Any]] = [_model(base.name, base, None)]
    data += [_model(adapter.name, base, adapter) for adapter in service.adapters.loaded()]
    return json_response({"object": "list", "data": data})


def _model(name: str, base: LoadedModel, adapter: LoadedAdapter | None) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": adapter.loaded_at if adapter else base.loaded_at,
        "owned_by": "windlass",
        "root": str(adapter.path) if adapter else base.name,
        "parent": base.name if adapter else None,
        "max_model_len": base.context_length,
    }


async def _load_adapter(request: web.Request, service: EngineService) -> web.Response:
    body = parse(LoadAdapterRequest, await request.read())
    if service.sleep.asleep:
        raise asleep()
    path = Path(body.lora_path)
    is_scoring = check_adapter(path)
    # Shielded: a caller that leaves must not leave weights behind that nobody knows of.
    await asyncio.shield(service.adapters.load(body.lora_name, path, scores=is_scoring))
    return web.Response(text=f"Success: LoRA adapter '{body.lora_name}' added successfully.")


async def _unload_adapter(request: web.Request, service: EngineService) -> web.Response:
    body = parse(UnloadAdapterRequest, await request.read())
    await asyncio.shield(service.adapters.unload(body.lora_name))
    return web.Response(text=f"Success: LoRA adapter '{body.lora_name}' removed successfully.")


async def _abort(request: web.Request, service: EngineService) -> web.Response:
    body = parse(AbortRequest, await request.read())
    await service.scheduler.call(partial(service.scheduler.abort, frozenset(body.request_ids)))
    return web.Response()


async def _tokenize(request: web.Request, service: EngineService) -> web.Response:
    body = parse(TokenizeRequest, await request.read())
    with service.adapters.use(body.model or service.model.name):
        tokenizer = service.model.tokenizer
        if body.messages is not None:
            ids = await tokenizer.chat(
                conversation(body.messages), generation_prompt=body.add_generation_prompt
            )
        elif body.prompt is not None:
            ids = await tokenizer.encode(body.prompt, special=body.add_special_tokens)
        else:
            raise bad_value("prompt or messages is required", "prompt")
    limit = service.model.context_length
    return json_response({"count": len(ids), "max_model_len": limit, "tokens": ids})


async def _metrics(_: web.Request, service: EngineService) -> web.Response:
    return web.Response(
        body=generate_latest(service.metrics.registry),
        headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"},
    )


_WORK = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/score", RERANK, GENERATE)
_ROUTES: tuple[tuple[str, str, Route], ...] = (
    ("GET", "/health", _health),
    ("GET", "/load", _load),
    ("GET", "/metrics", _metrics),
    ("GET", "/v1/models", _models),
    ("POST", "/v1/chat/completions", chat_completions),
    ("POST", "/v1/completions", completions),
    ("POST", "/v1/embeddings", embeddings),
    ("POST", "/v1/score", scores),
    ("POST", RERANK, rerank),
    ("POST", "/v1/load_lora_adapter", _load_adapter),
    ("POST", "/v1/unload_lora_adapter", _unload_adapter),
    ("POST", "/tokenize", _tokenize),
    ("POST", ABORT, _abort),
    ("POST", GENERATE, generate),
)
