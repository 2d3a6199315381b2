"""Checks of a serving whose engine may be trained in its own memory."""

from collections.abc import Iterable

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.inference.v1 import inference_pb2 as pb
from windlass.api.models.v1 import models_pb2
from windlass.bounds import TRAINING_MODES
from windlass.core.errors import InvalidArgument
from windlass.inference.domain import why_none_is_trained

_COMPLETE = (models_pb2.MODEL_KIND_BASE, models_pb2.MODEL_KIND_FINE_TUNED)
_DIVIDING = ("tensor_parallel", "pipeline_parallel")


def require_trainable(
    request: pb.PutServingRequest,
    engine: str,
    resolved: models_pb2.ResolvedModel,
    clusters: Iterable[clusters_pb2.Cluster],
) -> None:
    """Raises InvalidArgument where a serving's engine should be trained, and cannot be."""
    if not request.training:
        return
    if refusal := _refusal(request, engine, resolved) or why_none_is_trained(engine, clusters):
        raise InvalidArgument(refusal, param="training")


def _refusal(request: pb.PutServingRequest, engine: str, resolved: models_pb2.ResolvedModel) -> str:
    model = resolved.model
    if request.training not in TRAINING_MODES:
        return f"training must be one of {', '.join(TRAINING_MODES)}, or empty."
    if engine != "vllm":
        return f"Engines of the kind {engine!r} cannot be trained; those of vllm can."
    if not model.project_id:
        return "An engine of a model for everyone cannot be trained: import the model for yourself."
    if resolved.is_granted:
        return "A model that other projects may use cannot be trained while it serves."
    if model.kind not in _COMPLETE:
        return f"{model.id} is an adapter; only complete weights are trained in their engine."
    replicas = max(request.max_replicas, request.min_replicas)
    if max([replicas, *(one.replicas for one in request.schedule)]) > 1:
        return "An engine that is trained has no replicas: set min_replicas and max_replicas to 1."
    parallel = any(getattr(request.arguments, name) > 1 for name in _DIVIDING)
    if request.gpus > 1 or request.nodes > 1 or parallel:
        return "An engine that is trained has one GPU at most, and one node."
    return _other_uses(request)


def _other_uses(request: pb.PutServingRequest) -> str:
    if request.sleep_seconds:
        return "An engine that is trained does not sleep."
    if request.follow:
        return "An engine that is trained follows no run: both would change its weights."
    if request.arguments.task not in ("", "generate"):
        return "Only an engine that generates text is trained."
    if request.arguments.draft_model or request.arguments.lookup_tokens:
        return "An engine that is trained guesses no tokens."
    return ""
