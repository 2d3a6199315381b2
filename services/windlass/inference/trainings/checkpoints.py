"""Checkpoints of trained engines that become models of their project."""

from dataclasses import dataclass

import grpc

from windlass.api.models.v1 import models_pb2
from windlass.api.models.v1.models_pb2_grpc import ModelsInternalServiceAsyncStub
from windlass.core.errors import FailedPrecondition, from_rpc
from windlass.core.objects import ObjectMismatch, ObjectNotFound, ObjectStore
from windlass.inference.trainings.training import EngineTraining
from windlass.inference.trainings.workload import TrainingWorkloads, delta_of, prefix_of
from windlass.modelfiles import PREFIX_BYTES, header_bytes
from windlass.modelfiles.naming import tuned_model_id
from windlass.weight_versions import WeightsRefused
from windlass.weight_versions.file_delta import applied_delta


@dataclass(frozen=True, kw_only=True)
class NamedCheckpoint:
    """The model that a checkpoint became, the bytes of its weights, and those that came of them."""

    model: str
    weight_bytes: int
    uploaded_bytes: int


class CheckpointModels:
    """Names what an engine's agent has uploaded, once it is what it should be.

    The agent gives weights alone: by names, sizes and headers they are those of the model that the
    engine loaded. All other files are the model's own.
    """

    def __init__(
        self,
        workloads: TrainingWorkloads,
        objects: ObjectStore,
        models: ModelsInternalServiceAsyncStub,
    ):
        self._workloads = workloads
        self._objects = objects
        self._models = models

    async def register(
        self, training: EngineTraining, digests: dict[str, bytes]
    ) -> NamedCheckpoint:
        """Makes a checkpoint a model; a repeat answers the first.

        Raises FailedPrecondition for what is not as it should be, NotFound for a model that is
        gone, and errors of the store that later may differ.
        """
        model, weights = await self._workloads.weights(training)
        names, prefix = {one.path for one in weights}, prefix_of(training)
        files, uploaded = [], 0
        for one in model.manifest.files:
            source = model.object_prefix + one.path
            if one.path in names:
                digest = digests.get(one.path, b"")
                uploaded += await self._take(training, source, one, digest)
                files.append(
                    models_pb2.ManifestEntry(path=one.path, bytes=one.bytes, sha256=digest)
                )
            else:
                stored = await self._objects.put(prefix + one.path, self._objects.get(source))
                if stored.sha256 != one.sha256:
                    raise _differs(one.path)
                files.append(one)
        name = await self._named(training, model.model, models_pb2.Manifest(files=files))
        total = sum(one.bytes for one in weights)
        return NamedCheckpoint(model=name, weight_bytes=total, uploaded_bytes=uploaded)

    async def _take(
        self, training: EngineTraining, source: str, file: models_pb2.ManifestEntry, digest: bytes
    ) -> int:
        """Returns the bytes that came of a file, which is whole in its place then.

        Raises FailedPrecondition unless it is the model's with other weights, of that digest.
        """
        key, expected = prefix_of(training) + file.path, training.deltas.get(file.path)
        delta = delta_of(training, file.path)
        info = await self._objects.head(delta) if expected else None
        try:
            if info is None:
                await self._check(key, source, file, digest)
                return int(file.bytes)
            if info.bytes != expected or len(digest) != 32:
                raise _differs(file.path)
            content = applied_delta(
                self._objects.get(source), self._objects.get(delta), size=file.bytes
            )
            await self._objects.put(key, content, bytes=file.bytes, sha256=digest)
        except (ObjectNotFound, ObjectMismatch, WeightsRefused) as error:
            raise _differs(file.path) from error
        return info.bytes

    async def _check(
        self, key: str, source: str, file: models_pb2.ManifestEntry, digest: bytes
    ) -> None:
        """Raises unless an object that came whole has the size, the digest and the header."""
        info = await self._objects.head(key)
        if info is None or info.bytes != file.bytes or await self._objects.digest(key) != digest:
            raise _differs(file.path)
        start = await self._read(source, PREFIX_BYTES)
        end = PREFIX_BYTES + header_bytes(file.path, start, file.bytes)
        if await self._read(key, end) != await self._read(source, end):
            raise _differs(file.path)

    async def _read(self, key: str, end: int) -> bytes:
        return b"".join([part async for part in self._objects.get(key, end=end)])

    async def _named(
        self, training: EngineTraining, model: models_pb2.Model, manifest: models_pb2.Manifest
    ) -> str:
        root = model.base_model or model.id
        name = tuned_model_id(root, training.organization_id, training.suffix, training.id[-8:])
        request = models_pb2.RegisterModelRequest(
            id=name,
            organization_id=training.organization_id,
            project_id=training.project_id,
            kind=models_pb2.MODEL_KIND_FINE_TUNED,
            base_version_id=model.version_id,
            object_prefix=prefix_of(training),
            manifest=manifest,
            source=f"{training.project_id}/{training.id}",
            parent=model.id,
        )
        try:
            return str((await self._models.RegisterModel(request)).id)
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from error


def _differs(path: str) -> FailedPrecondition:
    return FailedPrecondition(
        f"{path} is not the model's file with other weights.", reason="upload_mismatch"
    )
