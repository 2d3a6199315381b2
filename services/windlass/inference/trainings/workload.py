"""A training of an engine as a workload, with fresh URLs of what it reads and writes."""

import hashlib
from collections.abc import AsyncIterator, Iterable

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
            await self._ask_for_checkpoint(made.engine_training, training)
        else:
            made.engine_training.request.CopyFrom(await self._request(training))
        if training.output_bytes:
            key, size = _outputs_key(training), training.output_bytes
            made.engine_training.outputs.CopyFrom(await self._place(key, _OUTPUTS, size))
        return made

    async def outputs(self, training: EngineTraining) -> bytes | None:
        """Returns what a forward pass computed; None where that is not there in full."""
        info = await self._objects.head(_outputs_key(training))
        if info is None or info.bytes != training.output_bytes:
            return None
        return b"".join([part async for part in self._objects.get(_outputs_key(training))])

    async def forget(self, training: EngineTraining) -> None:
        """Removes what a training that is over had been told, or has told, and nobody reads."""
        prefix = _deltas_of(training) if training.is_checkpoint else prefix_of(training)
        await self._objects.delete_prefix(prefix)

    async def weights(
        self, training: EngineTraining
    ) -> tuple[models_pb2.ResolvedModel, list[models_pb2.ManifestEntry]]:
        """The model of a training and the files of its weights; raises NotFound."""
        found = await self._workloads.resolve(training.project_id, training.model)
        if found.model.version_id != training.version_id:
            raise NotFound(f"{training.model} is another version now.", reason="model_not_found")
        return found, [one for one in found.manifest.files if is_weights(one.path)]

    async def announced(
        self, training: EngineTraining, said: Iterable[models_pb2.FileUrl]
    ) -> dict[str, int]:
        """The bytes of deltas that an agent says it has, of files that are larger.

        Raises NotFound for a model that is gone.
        """
        _, weights = await self.weights(training)
        told = {one.path: one.bytes for one in said}
        return {
            one.path: told[one.path] for one in weights if 0 < told.get(one.path, 0) < one.bytes
        }

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

    async def _ask_for_checkpoint(
        self, made: clusters_pb2.EngineTrainingWorkload, training: EngineTraining
    ) -> None:
        """Says where the files of weights are to be put, whole or as deltas to the model's."""
        found, weights = await self.weights(training)
        made.parent_version_id = found.model.version_id
        for one in weights:
            made.parent_files.add(path=one.path, bytes=one.bytes, sha256=one.sha256)
            key = prefix_of(training) + one.path
            made.uploads.append(await self._place(key, one.path, one.bytes))
            if expected := training.deltas.get(one.path):
                key = delta_of(training, one.path)
                made.delta_uploads.append(await self._place(key, one.path, expected))

    async def _place(self, key: str, path: str, size: int) -> models_pb2.FileUrl:
        expires = self._presign_seconds
        url = await self._objects.presign_put(key, expires=expires, bytes=size)
        return models_pb2.FileUrl(path=path, url=url, bytes=size)


def _outputs_key(training: EngineTraining) -> str:
    return prefix_of(training) + _OUTPUTS


def prefix_of(training: EngineTraining) -> str:
    """The folder of the object store that a training has."""
    return f"artifacts/{training.project_id}/{training.id}/"


def delta_of(training: EngineTraining, path: str) -> str:
    """The place of a file's delta until its training is over."""
    return _deltas_of(training) + path


def _deltas_of(training: EngineTraining) -> str:
    return f"artifacts/{training.project_id}/{training.id}.deltas/"


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content
