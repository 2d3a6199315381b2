"""Inputs and outputs of an attempt: URLs, signed on request."""

from collections.abc import Sequence

import grpc
import msgspec

from windlass.api.files.v1 import files_pb2, files_pb2_grpc
from windlass.api.models.v1 import models_pb2, models_pb2_grpc
from windlass.api.runner.v1 import runner_pb2
from windlass.backends import adapters
from windlass.core.errors import FailedPrecondition, from_rpc
from windlass.core.objects import ObjectStore
from windlass.jobs.attempts import manifests
from windlass.jobs.attempts.artifacts import Artifact, ArtifactStore, Entry
from windlass.jobs.domain.job import Companion, Job
from windlass.jobs.tracking.trackers import Trackers
from windlass.jobs_api.request import EVALUATION


class InputGone(FailedPrecondition):
    """An input of the job was deleted: no attempt of it can begin."""


class RunInputs:
    """Assignments and upload URLs; asks files and models where things lie."""

    def __init__(
        self,
        artifacts: ArtifactStore,
        objects: ObjectStore,
        files: files_pb2_grpc.FilesInternalServiceAsyncStub,
        models: models_pb2_grpc.ModelsInternalServiceAsyncStub,
        trackers: Trackers,
        *,
        read_seconds: int,
        write_seconds: int,
    ):
        self._artifacts = artifacts
        self._objects = objects
        self._files = files
        self._models = models
        self._trackers = trackers
        self._read_seconds = read_seconds
        self._write_seconds = write_seconds

    async def assignment(self, job: Job) -> runner_pb2.Assignment:
        """All that the attempt's runner needs; raises InputGone."""
        plan = job.plan
        if plan is None:
            raise FailedPrecondition("The job has no configuration yet.", reason="not_planned")
        weights = await self._weights(job)
        return runner_pb2.Assignment(
            job_id=job.id,
            attempt=job.attempt,
            backend=job.spec.backend,
            schema_version=plan.schema_version,
            config=msgspec.json.encode(plan.config),
            framework=plan.framework,
            num_nodes=plan.num_nodes,
            model_files=await self._urls(
                weights.object_prefix, manifests.entries(weights.manifest)
            ),
            base_model=weights.model.id,
            training_file=await self._file(job, job.spec.training_file, "training_file"),
            validation_file=await self._file(job, job.spec.validation_file, "validation_file"),
            resume=await self._resume(job),
            companions=[
                runner_pb2.Companion(
                    role=each.role,
                    files=await self._companion(job, each),
                )
                for each in job.spec.companions
            ],
            trackers=await self._trackers.told(job),
            model_name=job.model_name,
            exports=[
                runner_pb2.Export.Value(f"EXPORT_{form.upper()}") for form in job.spec.exports
            ],
            evaluation=await self._evaluation(job),
        )

    async def _weights(self, job: Job) -> models_pb2.ResolvedModel | models_pb2.ResolvedBase:
        """The complete weights that training needs: the model's, or of the base that it is on."""
        found = await self._resolve(job, job.spec.model, "model")
        weights = found.base if job.spec.adapter else found
        _require_same(job.spec.model, weights.model, job.spec.model_version_id, "model")
        return weights

    async def _companion(self, job: Job, companion: Companion) -> list[models_pb2.FileUrl]:
        is_start = companion.role == adapters.ROLE
        param = "model" if is_start else f"windlass.config.{companion.role}"
        found = await self._resolve(job, companion.model, param)
        _require_same(companion.model, found.model, companion.version_id, param)
        return await self._urls(found.object_prefix, manifests.entries(found.manifest))

    async def _resolve(self, job: Job, name: str, param: str) -> models_pb2.ResolvedModel:
        request = models_pb2.ResolveModelRequest(project_id=job.project_id, id=name)
        try:
            found: models_pb2.ResolvedModel = await self._models.ResolveModel(request)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:
                raise from_rpc(error) from error
            raise InputGone(
                f"The model {name!r} was deleted, or the project may no longer use it.",
                reason="model_not_found",
                param=param,
            ) from error
        return found

    async def _file(self, job: Job, file_id: str, param: str) -> models_pb2.FileUrl | None:
        if not file_id:
            return None
        request = files_pb2.InternalGetFileRequest(project_id=job.project_id, file_id=file_id)
        try:
            found = await self._files.GetFileObject(request)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:
                raise from_rpc(error) from error
            raise InputGone(
                f"The file {file_id!r} has expired or was deleted.",
                reason="file_gone",
                param=param,
            ) from error
        url = await self._objects.presign_get(found.object_key, expires=self._read_seconds)
        return models_pb2.FileUrl(path=file_id, url=url, bytes=found.bytes, sha256=found.sha256)

    async def _evaluation(self, job: Job) -> runner_pb2.Evaluation | None:
        """The comparison to make; None where an earlier attempt has reported one."""
        asked = job.spec.evaluation
        if asked is None or job.evaluation is not None:
            return None
        return runner_pb2.Evaluation(
            file=await self._file(job, asked.file, f"{EVALUATION}.file"),
            grader=msgspec.json.encode(asked.grader),
            max_examples=asked.max_examples,
            max_completion_tokens=asked.max_completion_tokens,
            temperature=asked.temperature,
            seed=job.spec.seed,
        )

    async def _resume(self, job: Job) -> runner_pb2.Resume | None:
        point = await self._artifacts.resume_point(job)
        if point is None:
            return None
        state, weights = point
        urls = {url.path: url for url in await self._urls(state.prefix, state.manifest)}
        if weights is not None:
            for url in await self._urls(weights.prefix, weights.manifest):
                urls.setdefault(url.path, url)
        return runner_pb2.Resume(step=state.step, files=list(urls.values()))

    async def _urls(self, prefix: str, entries: Sequence[Entry]) -> list[models_pb2.FileUrl]:
        return [
            models_pb2.FileUrl(
                path=entry.path,
                url=await self._objects.presign_get(
                    f"{prefix.rstrip('/')}/{entry.path}", expires=self._read_seconds
                ),
                bytes=entry.size,
                sha256=entry.sha256,
            )
            for entry in entries
        ]

    async def uploads(
        self, artifact: Artifact, missing: Sequence[Entry]
    ) -> list[models_pb2.FileUrl]:
        """Signed URLs to upload each file to."""
        return [
            models_pb2.FileUrl(
                path=entry.path,
                url=await self._objects.presign_put(
                    f"{artifact.prefix}{entry.path}",
                    expires=self._write_seconds,
                    bytes=entry.size,
                    sha256=entry.sha256,
                ),
                bytes=entry.size,
                sha256=entry.sha256,
            )
            for entry in missing
        ]


def _require_same(name: str, found: models_pb2.Model, version_id: str, param: str) -> None:
    if found.version_id != version_id:
        raise InputGone(
            f"The model {name!r} was replaced since the job was created.",
            reason="model_changed",
            param=param,
        )
