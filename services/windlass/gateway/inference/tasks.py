"""Tasks of models, and the routes that are for them."""

from windlass.api.models.v1 import models_pb2 as pb
from windlass.gateway.errors import HttpError
from windlass.inference_api import routes
from windlass.inference_api.errors import wrong_task

_WORDS: dict[int, str] = {
    pb.MODEL_TASK_GENERATION: "generate",
    pb.MODEL_TASK_SCORING: "score",
    pb.MODEL_TASK_EMBEDDING: "embed",
}
# A route that is not here is for whatever model has engines with it.
_FOR: dict[str, set[int]] = {
    routes.CHAT: {pb.MODEL_TASK_GENERATION},
    routes.COMPLETIONS: {pb.MODEL_TASK_GENERATION},
    routes.EMBEDDINGS: {pb.MODEL_TASK_GENERATION, pb.MODEL_TASK_EMBEDDING},
    routes.SCORE: {pb.MODEL_TASK_SCORING},
}


def require_task(model: str, task: int, path: str) -> None:
    """Raises HttpError 400 for a model whose task is not what the route is for."""
    if path in _FOR and task in _WORDS and task not in _FOR[path]:
        refused = wrong_task(model, _WORDS[task])
        raise HttpError(refused.status, refused.message, code=refused.code, param=refused.param)
