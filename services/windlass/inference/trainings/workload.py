"""A training of an engine as a workload, with fresh URLs of what it reads and writes."""

import hashlib
from collections.abc import AsyncIterator

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.models.v1 import models_pb2
from windlass.core.errors import NotFound
from windlass.core.objects import ObjectStore
from windlass.inference.domain import View
from windlass.inference.observed_state import OWNER
from windlass.inference.trainings.training import EngineTraining
from windlass.inference.workloads import Workloads, place
from windlass.modelfiles import is_weights

_OUTPUTS = "outputs.f32"


class TrainingWorkloads:
    """Makes workloads of trainings and checkpoints."""

    def __init__(self, workloads: Workloads, objects: ObjectStore, *, presign_seconds: int):
        self._workloads = workloads
        self._objects = objects
        self._presign_seconds = presign_seconds

    async def make(self, training: EngineTraining, view: View) -> clusters_pb2.Workload:
        """The workload of a training's present generation; one that is over is to be forgotten.

        Raises NotFound for a model that is gone.
        """
        made = clusters_pb2.Workload(
            id=training.id,
            kind=clusters_pb2.WORKLOAD_KIND_ENGINE_TRAINING,
            owner=OWNER,
            organization_id=training.organization_id,
            project_id=training.project_id,
            cluster_id=training.cluster_id,
            generation=training.generation,
            desired=clusters_pb2.DESIRED_STATE_DELETED,
        )
        place(made, view, training.project_id)
        if not training.is_open:
            return made
        made.desired = clusters_pb2.DESIRED_STATE_RUNNING
        if training.is_cancelled:
            made.desired = clusters_pb2.DESIRED_STATE_STOPPED
        made.engine_training.engine_id = training.engine_id
        if training.is_checkpoint:
            made.engine_training.uploads.extend(await self._uploads(training))
        else:
            made.engine_training.request.CopyFrom(await self._request(training))
        if training.output_bytes:
            made.engine_training.outputs.CopyFrom(await self._outputs(training))
        return made

    async def outputs(self, training: EngineTraining) -> bytes | None:
        """What a forward pass computed; None where that is not there in full."""
        info = await self._objects.head(_outputs_key(training))
        if info is None or info.bytes != training.output_bytes:
            return None
        return b"".join([part async for part in self._objects.get(_outputs_key(training))])

    async def forget(self, training: EngineTraining) -> None:
        """Removes the request of a training that is over."""
        if not training.is_checkpoint:
            await self._objects.delete_prefix(prefix_of(training))

    async def weights(
        self, training: EngineTraining
    ) -> tuple[models_pb2.ResolvedModel, list[models_pb2.ManifestEntry]]:
        """The model of a training and the files of its weights; raises NotFound."""
        found = await self._workloads.resolve(training.project_id, training.model)
        if found.model.version_id != training.version_id:
            raise NotFound(f"{training.model} is another version now.", reason="model_not_found")
        return found, [one for one in found.manifest.files if is_weights(one.path)]

    async def _request(self, training: EngineTraining) -> models_pb2.FileUrl:
        key = prefix_of(training) + "request.json"
        # The same bytes at each try.
        await self._objects.put(key, _once(training.body))
        return models_pb2.FileUrl(
            path="request.json",
            url=await self._objects.presign_get(key, expires=self._presign_seconds),
            bytes=len(training.body),
            sha256=hashlib.sha256(training.body).digest(),
        )

    async def _outputs(self, training: EngineTraining) -> models_pb2.FileUrl:
        size = training.output_bytes
        return models_pb2.FileUrl(
            path=_OUTPUTS,
            url=await self._objects.presign_put(
                _outputs_key(training), expires=self._presign_seconds, bytes=size
            ),
            bytes=size,
        )

    async def _uploads(self, training: EngineTraining) -> list[models_pb2.FileUrl]:
        _, weights = await self.weights(training)
        return [
            models_pb2.FileUrl(
                path=one.path,
                url=await self._objects.presign_put(
                    prefix_of(training) + one.path, expires=self._presign_seconds, bytes=one.bytes
                ),
                bytes=one.bytes,
            )
            for one in weights
        ]


def _outputs_key(training: EngineTraining) -> str:
    return prefix_of(training) + _OUTPUTS


def prefix_of(training: EngineTraining) -> str:
    """The folder of the object store that a training has."""
    return f"artifacts/{training.project_id}/{training.id}/"


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content
