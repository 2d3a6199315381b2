"""Start of a job's training: complete weights, and the adapter that it continues."""

from dataclasses import dataclass, field
from typing import Any

from windlass.api.models.v1 import models_pb2
from windlass.backends import LLMBackend
from windlass.backends.adapters import ROLE, AdapterShape
from windlass.core.errors import InvalidArgument
from windlass.core.objects import ObjectStore
from windlass.jobs.creation.document_jobs import AT
from windlass.jobs.domain.job import Companion, Spec
from windlass.jobs.scheduling.cluster_snapshot import ClusterSnapshot

_CONFIG = "adapter_config.json"
_MAX_BYTES = 2**20
_OURS = "windlass.backends."


@dataclass(frozen=True, slots=True)
class Start:
    """A job's model as it was resolved; `shape` is of the adapter that it is, if it is one."""

    name: str
    model: models_pb2.Model
    weights: models_pb2.Model
    shape: dict[str, Any] = field(default_factory=dict)

    @property
    def companions(self) -> tuple[Companion, ...]:
        """The adapter, as a model that the job needs beside the weights."""
        if not self.shape:
            return ()
        return (Companion(role=ROLE, model=self.name, version_id=self.model.version_id),)


async def start_of(name: str, found: models_pb2.ResolvedModel, objects: ObjectStore) -> Start:
    """The start that a model is; raises InvalidArgument for an adapter that no job continues."""
    if found.model.kind != models_pb2.MODEL_KIND_ADAPTER:
        return Start(name, found.model, found.model)
    shape = await _shape(name, found, objects)
    return Start(name, found.model, found.base.model, shape.to_document())


async def _shape(name: str, found: models_pb2.ResolvedModel, objects: ObjectStore) -> AdapterShape:
    sizes = {file.path: file.bytes for file in found.manifest.files}
    try:
        if sizes.get(_CONFIG, _MAX_BYTES) >= _MAX_BYTES:
            raise ValueError(f"no {_CONFIG} of a usual size")
        chunks = [chunk async for chunk in objects.get(found.object_prefix + _CONFIG)]
        return AdapterShape.parse(b"".join(chunks))
    except ValueError as error:
        raise InvalidArgument(
            f"{name!r} is an adapter of a form that cannot be trained further: {error}.",
            reason="model_not_tunable",
            param="model",
        ) from error


def require_weights(name: str, model: models_pb2.Model, param: str) -> None:
    """Raises InvalidArgument for a model whose weights are somebody else's."""
    if model.kind == models_pb2.MODEL_KIND_ADOPTED:
        raise InvalidArgument(
            f"{name!r} is served by a serving stack that Windlass does not run; its weights are "
            "not here. Import or fetch the model under another name.",
            reason="model_not_tunable",
            param=param,
        )


def require_known_type(
    start: Start, backend: type[LLMBackend], snapshot: ClusterSnapshot | None, project_id: str
) -> None:
    """Raises InvalidArgument for weights of a type that no trainer of the project can load.

    A backend of another package may load it, and an image of a cluster, which may also be away.
    """
    # That nothing of this release loads it is all that a model is warned of.
    if not start.weights.warnings or not backend.__module__.startswith(_OURS):
        return
    if snapshot is None or snapshot.lacks_one_of(project_id):
        return
    offering = [one for one in snapshot.visible(project_id) if backend.name in one.backends]
    if offering and all(cluster.is_machine for cluster in offering):
        raise InvalidArgument(
            f"{start.name!r} cannot be trained here. {' '.join(start.weights.warnings)}",
            reason="unknown_model_type",
            param="model",
        )


def require_continuing(backend: type[LLMBackend], spec: Spec) -> None:
    """Raises InvalidArgument where the backend cannot train the adapter that a job's model is."""
    if spec.adapter and not backend.continues_adapters:
        raise InvalidArgument(
            f"{spec.model!r} is an adapter, which the backend {spec.backend!r} cannot train "
            "further. Use the backend 'trl', or a model that was exported as merged.",
            reason="model_not_tunable",
            param="model",
        )


def require_adapter(backend: LLMBackend, spec: Spec) -> None:
    """Raises InvalidArgument where a document and its job's model disagree about an adapter."""
    if backend.from_adapter == bool(spec.adapter):
        return
    param = f"{AT}.from_adapter"
    needed, kind = ("true", "an adapter") if spec.adapter else ("false", "a complete model")
    raise InvalidArgument(f"{param}: must be {needed}: {spec.model!r} is {kind}.", param=param)
