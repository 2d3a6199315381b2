"""POST /v1/score: how good answers are, by a reward model."""

import time
from functools import partial
from typing import Any
from uuid import uuid4

from aiohttp import web

from windlass.inference_api.errors import ApiError, bad_value, too_long
from windlass.inference_api.messages import conversation
from windlass.inference_api.requests import MAX_INPUTS, ScoreRequest, parse
from windlass_agent.engines.boundary import json_response
from windlass_agent.engines.builtin.api.embeddings import BATCH
from windlass_agent.engines.builtin.generation.adapters import LoadedAdapter
from windlass_agent.engines.builtin.service import EngineService

Messages = list[dict[str, Any]]


async def scores(request: web.Request, service: EngineService) -> web.Response:
    """Scores one or more texts or conversations, each as the model was trained to read it."""
    body = parse(ScoreRequest, await request.read())
    with service.use(body.model, "score") as adapter:
        inputs = [await _ids(service, one, where) for where, one in _split(body)]
        found = await _score(service, inputs, adapter)
    tokens = sum(len(ids) for ids in inputs)
    return json_response(
        {
            "id": f"score-{uuid4().hex}",
            "object": "list",
            "created": int(time.time()),
            "model": body.model,
            "data": [
                {"object": "score", "index": index, "score": score}
                for index, score in enumerate(found)
            ],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }
    )


def _split(body: ScoreRequest) -> list[tuple[str, str | Messages]]:
    """Every input with its name in the request; raises ApiError."""
    given = body.input
    if isinstance(given, str):
        return [("input", given)]
    messages = [one for one in given if isinstance(one, dict)]
    if not given or len(given) > MAX_INPUTS:
        raise bad_value(f"input needs 1 to {MAX_INPUTS} texts or conversations", "input")
    if len(messages) == len(given):
        return [("input", messages)]
    if messages:
        raise bad_value("input must be one conversation, or a list of them or of texts", "input")
    return [
        (f"input[{index}]", one) for index, one in enumerate(given) if not isinstance(one, dict)
    ]


async def _ids(service: EngineService, one: str | Messages, where: str) -> list[int]:
    if not one:
        raise bad_value(f"{where} must not be empty", where)
    tokenizer, limit = service.model.tokenizer, service.model.context_length
    if isinstance(one, str):
        ids = await tokenizer.ended(one)
    else:
        try:
            ids = await tokenizer.chat(conversation(one), generation_prompt=False)
        except ApiError as error:
            error.param = (error.param or "messages").replace("messages", where, 1)
            raise
    service.check_tokens(ids, param=where)
    if len(ids) > limit:
        raise too_long(len(ids), 0, limit=limit, param=where)
    return ids


async def _score(
    service: EngineService, inputs: list[list[int]], adapter: LoadedAdapter | None
) -> list[float]:
    found: list[float] = []
    for start in range(0, len(inputs), BATCH):
        batch = inputs[start : start + BATCH]
        work = partial(service.scheduler.score, batch, adapter.key if adapter else None)
        found += await service.passed(work)
    return found
