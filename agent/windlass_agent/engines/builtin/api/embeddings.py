"""POST /v1/embeddings: vectors as an embedder makes them, else the mean of the hidden states."""

import base64
from array import array
from functools import partial
from typing import Any

from aiohttp import web

from windlass.inference_api.errors import bad_value, too_long, unsupported
from windlass.inference_api.requests import MAX_INPUTS, EmbeddingRequest, parse
from windlass_agent.engines.boundary import json_response
from windlass_agent.engines.builtin.api.completions import tokenize
from windlass_agent.engines.builtin.generation.adapters import LoadedAdapter
from windlass_agent.engines.builtin.service import EngineService

# Inputs of one forward pass: running streams wait for it.
BATCH = 8


async def embeddings(request: web.Request, service: EngineService) -> web.Response:
    """Embeds one or more inputs."""
    body = parse(EmbeddingRequest, await request.read())
    if body.dimensions is not None:
        raise unsupported("dimensions", "this model's vectors have one length")
    with service.use(body.model, "generate", "embed") as adapter:
        inputs = await tokenize(service, body.input, param="input")
        if len(inputs) > MAX_INPUTS:
            raise bad_value(f"must hold at most {MAX_INPUTS} inputs", "input")
        limit = service.model.context_length
        for ids in inputs:
            if len(ids) > limit:
                raise too_long(len(ids), 0, limit=limit, param="input")
        vectors = await embed(service, inputs, adapter)
    tokens = sum(len(ids) for ids in inputs)
    packed = body.encoding_format == "base64"
    return json_response(
        {
            "object": "list",
            "model": body.model,
            "data": [_item(index, vector, packed) for index, vector in enumerate(vectors)],
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }
    )


async def embed(
    service: EngineService, inputs: list[list[int]], adapter: LoadedAdapter | None
) -> list[list[float]]:
    """The vectors of inputs, in batches between which others have their turn."""
    vectors: list[list[float]] = []
    for start in range(0, len(inputs), BATCH):
        batch = inputs[start : start + BATCH]
        work = partial(service.scheduler.embed, batch, adapter.key if adapter else None)
        vectors += await service.passed(work)
    return vectors


def _item(index: int, vector: list[float], packed: bool) -> dict[str, Any]:
    encoded = base64.b64encode(array("f", vector).tobytes()).decode() if packed else vector
    return {"object": "embedding", "index": index, "embedding": encoded}
