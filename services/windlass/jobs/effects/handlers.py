"""Handlers that deliver a job's effects; every receiver is idempotent."""

from collections.abc import Mapping

from windlass.api.clusters.v1 import clusters_pb2, clusters_pb2_grpc
from windlass.api.files.v1 import files_pb2, files_pb2_grpc
from windlass.api.jobs.v1 import jobs_pb2
from windlass.api.models.v1 import models_pb2, models_pb2_grpc
from windlass.api.usage.v1 import usage_pb2, usage_pb2_grpc
from windlass.backends.methods import SCORING
from windlass.core.clock import now_ms
from windlass.core.errors import AppError, Internal
from windlass.core.objects import ObjectStore
from windlass.jobs.attempts import manifests
from windlass.jobs.attempts.artifacts import Artifact, ArtifactStore
from windlass.jobs.attempts.retention import Retention, checkpoint_source
from windlass.jobs.domain import transitions
from windlass.jobs.domain.job import (
    CLOSING_KINDS,
    PURGE_ALL,
    ArtifactKind,
    Change,
    EffectKind,
    Job,
    JobFailure,
    JobState,
    Level,
    NewEvent,
    ProjectPlacement,
)
from windlass.jobs.storage.outbox import Decision, Deliver, Owed
from windlass.residency.rule import MISMATCH

RESULT_PURPOSE = "fine-tune-results"
MAX_RESULTS = 8
# The usage record's `status`, in the words of HTTP.
_STATUS = {JobState.FAILED: 500, JobState.CANCELLED: 499}


class EffectHandlers:
    """Calls to clusters, models, files and usage, and to the object store."""

    def __init__(
        self,
        artifacts: ArtifactStore,
        objects: ObjectStore,
        clusters: clusters_pb2_grpc.ClustersInternalServiceAsyncStub,
        models: models_pb2_grpc.ModelsInternalServiceAsyncStub,
        files: files_pb2_grpc.FilesInternalServiceAsyncStub,
        usage: usage_pb2_grpc.UsageInternalServiceAsyncStub,
        retention: Retention,
        *,
        max_attempts: int,
    ):
        self._artifacts = artifacts
        self._objects = objects
        self._clusters = clusters
        self._models = models
        self._files = files
        self._usage = usage
        self._retention = retention
        self._max_attempts = max_attempts

    def workloads(self) -> Mapping[EffectKind, Deliver]:
        """Deliveries that a cluster must receive at once."""
        return {EffectKind.WORKLOAD: self.put_workload}

    def others(self) -> Mapping[EffectKind, Deliver]:
        """Deliveries that may be slow."""
        return {
            EffectKind.REGISTER_CHECKPOINT: self.register_checkpoint,
            EffectKind.REGISTER_MODEL: self.register_model,
            EffectKind.REGISTER_MERGED: self.register_merged,
            EffectKind.REGISTER_RESULT: self.register_result,
            EffectKind.RECORD_USAGE: self.record_usage,
            EffectKind.PURGE: self.purge,
        }

    async def put_workload(self, owed: Owed, job: Job) -> None:
        """Says what should run now, whatever it was when the row was written."""
        if job.generation > owed.step:
            return
        await self._clusters.PutWorkload(clusters_pb2.PutWorkloadRequest(workload=workload(job)))

    async def register_checkpoint(self, owed: Owed, job: Job) -> None:
        """Makes a checkpoint a model of its own, which may take an older one's place."""
        artifact = await self._artifact(owed)
        name = f"{job.model_name}:ckpt-step-{owed.step}"
        await self._register(job, artifact, name, source=checkpoint_source(artifact))
        if await self._artifacts.is_listed(artifact):
            await self._retention.apply(job, now_ms())
        else:
            # A later one was quicker, and took its place already.
            await self._retention.retire(artifact)

    async def register_model(self, owed: Owed, job: Job) -> Decision:
        """Makes the result a model."""
        artifact = await self._artifact(owed)
        source = _final_source(job, artifact)
        model = await self._register(job, artifact, job.model_name, source=source)
        return lambda job: transitions.registered(job, model.id, now_ms())

    async def register_merged(self, owed: Owed, job: Job) -> Decision:
        """Makes the result's complete weights a model beside it."""
        artifact = await self._artifact(owed)
        source = f"{job.id}/{artifact.attempt}/merged"
        model = await self._register(
            job,
            artifact,
            f"{job.model_name}:merged",
            source=source,
            merged_of=_final_source(job, artifact),
        )
        return lambda job: transitions.merged(job, model.id, now_ms())

    async def _register(
        self, job: Job, artifact: Artifact, name: str, *, source: str, merged_of: str = ""
    ) -> models_pb2.Model:
        kind = (
            models_pb2.MODEL_KIND_ADAPTER
            if artifact.is_adapter
            else models_pb2.MODEL_KIND_FINE_TUNED
        )
        return await self._models.RegisterModel(
            models_pb2.RegisterModelRequest(
                id=name,
                organization_id=job.organization_id,
                project_id=job.project_id,
                kind=kind,
                base_version_id=job.spec.model_version_id,
                object_prefix=artifact.prefix,
                manifest=manifests.manifest(artifact.manifest),
                job_id=job.id,
                is_checkpoint=artifact.kind is ArtifactKind.CHECKPOINT,
                task=_task(job),
                source=source,
                parent=job.spec.model,
                merged_of=merged_of,
            )
        )

    async def register_result(self, owed: Owed, job: Job) -> Decision:
        """Makes the table of metrics, and what else is about them, files of the project."""
        artifact = await self._artifact(owed)
        # The table first: OpenAI's clients read the first.
        entries = sorted(artifact.manifest, key=lambda entry: not entry.path.endswith(".csv"))
        filed = []
        for number, entry in enumerate(entries[:MAX_RESULTS]):
            file = await self._files.RegisterFile(
                files_pb2.RegisterFileRequest(
                    project_id=job.project_id,
                    organization_id=job.organization_id,
                    filename=entry.path,
                    purpose=RESULT_PURPOSE,
                    object_key=f"{artifact.prefix}{entry.path}",
                    bytes=entry.size,
                    sha256=entry.sha256,
                    source=f"{job.id}/{artifact.attempt}/result" + (f"-{number}" if number else ""),
                )
            )
            filed.append(file.id)
        return lambda job: transitions.results_filed(job, filed)

    async def record_usage(self, owed: Owed, job: Job) -> None:
        """Accounts for the tokens of one attempt."""
        record = usage_pb2.UsageRecord(
            id=f"{job.id}/{owed.attempt}",
            at_ms=now_ms(),
            organization_id=job.organization_id,
            project_id=job.project_id,
            model=job.spec.model,
            kind=usage_pb2.USAGE_KIND_TRAINING,
            input_tokens=owed.payload["tokens"],
            status=_STATUS.get(job.state, 200),
        )
        await self._usage.Record(usage_pb2.RecordRequest(records=[record]))

    async def purge(self, owed: Owed, job: Job) -> None:
        """Removes training states that nobody will resume from."""
        below = None if owed.step == PURGE_ALL else owed.step
        for artifact in await self._artifacts.purgeable(job.id, below_step=below):
            await self._objects.delete_prefix(artifact.prefix)
            await self._artifacts.purged(artifact, now_ms())
        # The weights that belonged to such a state need not stay for it any more.
        await self._retention.apply(job, now_ms())

    async def _artifact(self, owed: Owed) -> Artifact:
        artifact = await self._artifacts.by_id(owed.payload["artifact_id"])
        if artifact is None:
            raise Internal(f"The artifact of {owed.job_id} does not exist.")
        return artifact

    def refused(self, owed: Owed, job: Job, error: AppError) -> Change:
        """The change that a receiver's refusal makes to the job."""
        now = now_ms()
        if owed.kind is EffectKind.REGISTER_MODEL:
            failure = JobFailure(code="model_registration_failed", message=error.message)
            return transitions.failed(job, failure, now)
        if owed.kind is EffectKind.WORKLOAD and error.reason == "cluster_not_found":
            return transitions.agent_lost(job, now=now, max_attempts=self._max_attempts)
        # It was placed before this was known here.
        if owed.kind is EffectKind.WORKLOAD and error.reason == MISMATCH:
            most = self._max_attempts
            return transitions.displaced(job, error.message, now=now, max_attempts=most)
        if owed.kind in CLOSING_KINDS:
            text = f"{owed.kind.replace('_', ' ').capitalize()} was refused: {error.message}"
            event = NewEvent(message=text, level=Level.WARN, at_ms=now)
            return Change(job=job, events=() if job.ended else (event,))
        return Change(job=job)


def _final_source(job: Job, artifact: Artifact) -> str:
    """The source of the result of the attempt that made an artifact."""
    return f"{job.id}/{artifact.attempt}/final"


def _task(job: Job) -> models_pb2.ModelTask.ValueType:
    scores = job.spec.method in SCORING
    return models_pb2.MODEL_TASK_SCORING if scores else models_pb2.MODEL_TASK_GENERATION


def workload(job: Job) -> clusters_pb2.Workload:
    """The workload that the job's cluster should run, with its namespace and queue."""
    plan = job.plan
    return clusters_pb2.Workload(
        id=job.id,
        kind=clusters_pb2.WORKLOAD_KIND_RUN_TO_COMPLETION,
        owner="jobs",
        organization_id=job.organization_id,
        project_id=job.project_id,
        cluster_id=job.workload_cluster,
        generation=job.generation,
        desired=clusters_pb2.DesiredState.ValueType(job.desired),
        resources=jobs_pb2.Resources(
            gpus=job.spec.resources.gpus,
            memory_bytes=job.spec.resources.memory_bytes,
            cpus=job.spec.resources.cpus,
            processes=job.spec.resources.processes,
        ),
        placement=None if job.place is None else _placement(job.place),
        job=clusters_pb2.JobWorkload(
            job_id=job.id,
            attempt=job.attempt,
            backend=job.spec.backend,
            framework="" if plan is None else plan.framework,
            num_nodes=1 if plan is None else plan.num_nodes,
        ),
    )


def _placement(place: ProjectPlacement) -> clusters_pb2.Placement:
    return clusters_pb2.Placement(
        namespace=place.namespace,
        queue=place.queue,
        priority_class=place.priority_class,
        node_selector=place.node_selector,
    )
