"""Engines that may get a request, of those that have its model loaded."""

from collections.abc import Callable
from typing import NamedTuple

from windlass.api.usage.v1 import usage_pb2
from windlass.gateway.errors import HttpError
from windlass.gateway.inference.head import BodyJudge
from windlass.gateway.inference.routes import EngineEndpoint
from windlass.gateway.inference.waiting import Served
from windlass.inference_api import routes

CHAT, COMPLETION = usage_pb2.USAGE_KIND_CHAT, usage_pb2.USAGE_KIND_COMPLETION
EMBEDDING, SCORE = usage_pb2.USAGE_KIND_EMBEDDING, usage_pb2.USAGE_KIND_SCORE
KINDS: dict[str, int] = {
    routes.CHAT: CHAT,
    routes.COMPLETIONS: COMPLETION,
    routes.EMBEDDINGS: EMBEDDING,
    routes.SCORE: SCORE,
    routes.RERANK: SCORE,
}
GENERATES = (CHAT, COMPLETION)
Endpoints = tuple[EngineEndpoint, ...]


class Offer(NamedTuple):
    """Engines that have a model loaded, and those of them that may get a request."""

    served: Served
    able: Endpoints


def offered(
    endpoints: Callable[[str], Endpoints], version_id: str, path: str, judge: BodyJudge
) -> Endpoints:
    """The engines that serve a version and a request of the path at this moment."""
    try:
        return offering(endpoints(version_id), path, judge)
    except HttpError:
        return ()


def is_salted(judge: BodyJudge, offer: Offer) -> bool:
    """Returns True if the engines keep the prompts of organizations apart by a salt."""
    return judge.check.salted or offer.able[0].cache_salt


def offering(endpoints: Endpoints, path: str, judge: BodyJudge) -> Endpoints:
    """The engines that serve a request of the path.

    Raises HttpError 404 when none does, 400 when none reads its images. Where some keep the
    prompts of organizations apart, there are no others among them.
    """
    kind = KINDS.get(path)
    if kind in GENERATES:
        able = [endpoint for endpoint in endpoints if not endpoint.task]
    elif kind == EMBEDDING:
        able = [endpoint for endpoint in endpoints if endpoint.embeddings]
    else:
        able = [endpoint for endpoint in endpoints if path in endpoint.routes]
    if not able and endpoints:
        raise HttpError(404, f"The model does not support {path}.", param="model")
    if able and judge.images:
        able = [endpoint for endpoint in able if endpoint.vision]
        if not able:
            raise judge.no_images()
    endpoints = tuple(able)
    salted = [endpoint for endpoint in endpoints if endpoint.cache_salt]
    return tuple(salted) if salted else endpoints
