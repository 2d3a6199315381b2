"""POST /v1/rerank: texts by how well they fit a query, as vLLM answers it."""

from functools import partial
from uuid import uuid4

from aiohttp import web

from windlass.inference_api.errors import not_served, too_long
from windlass.inference_api.requests import RerankRequest, check_rerank, parse
from windlass.inference_api.routes import RERANK
from windlass_agent.engines.boundary import json_response
from windlass_agent.engines.builtin.api.embeddings import BATCH, embed
from windlass_agent.engines.builtin.generation.pooling import similarities
from windlass_agent.engines.builtin.service import EngineService


async def rerank(request: web.Request, service: EngineService) -> web.Response:
    """Ranks documents: by a cross-encoder, or by the vectors of an embedder."""
    body = parse(RerankRequest, await request.read())
    check_rerank(body)
    with service.use(body.model, "embed", "score") as adapter:
        if adapter is None and service.model.task == "embed":
            found, tokens = await _by_vectors(service, body)
        elif adapter is None and service.model.classifies:
            found, tokens = await _by_pairs(service, body)
        else:
            # It was trained on answers, not on texts that are searched.
            raise not_served(RERANK)
    ranked = sorted(enumerate(found), key=lambda one: -one[1])[: body.top_n]
    return json_response(
        {
            "id": f"rerank-{uuid4().hex}",
            "model": body.model,
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            "results": [
                {
                    "index": index,
                    "document": {"text": body.documents[index]},
                    "relevance_score": score,
                }
                for index, score in ranked
            ],
        }
    )


async def _by_vectors(service: EngineService, body: RerankRequest) -> tuple[list[float], int]:
    texts = [body.query, *body.documents]
    inputs = [await service.model.tokenizer.encode(text) for text in texts]
    for number, ids in enumerate(inputs):
        _fits(service, ids, number - 1)
    query, *vectors = await embed(service, inputs, None)
    return similarities(vectors, query), sum(map(len, inputs))


async def _by_pairs(service: EngineService, body: RerankRequest) -> tuple[list[float], int]:
    # Alone first: it is a part of every pair.
    _fits(service, await service.model.tokenizer.encode(body.query), -1)
    found: list[float] = []
    tokens = 0
    for start in range(0, len(body.documents), BATCH):
        pairs = []
        for number, text in enumerate(body.documents[start : start + BATCH], start):
            pair = await service.model.tokenizer.pair(body.query, text)
            _fits(service, pair.ids, number)
            pairs.append(pair)
        tokens += sum(len(pair.ids) for pair in pairs)
        found += await service.passed(partial(service.scheduler.classify, pairs))
    return found, tokens


def _fits(service: EngineService, ids: list[int], number: int) -> None:
    limit = service.model.context_length
    where = f"documents[{number}]" if number >= 0 else "query"
    service.check_tokens(ids, param=where)
    if len(ids) > limit:
        raise too_long(len(ids), 0, limit=limit, param=where)
