"""Uploads of an attempt: what is missing, and whether all has arrived."""

import asyncio
from collections.abc import Sequence

from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.core.errors import FailedPrecondition
from windlass.core.ids import new_id
from windlass.core.killpoints import reach
from windlass.core.objects import ObjectStore
from windlass.jobs.attempts.artifacts import (
    Artifact,
    ArtifactStore,
    Entry,
    new_artifact,
    valid_manifest,
)
from windlass.jobs.attempts.store import AttemptStore
from windlass.jobs.domain.job import (
    ArtifactKind,
    Change,
    Checkpoint,
    Effect,
    EffectKind,
    Job,
)
from windlass.jobs.domain.reports import MAX_VALUES

HEADS = 16
# A larger file is trusted by its size: reading it back would cost more than it
# could ever tell, and a folder's signed URL took it by its digest anyway.
DIGEST_BYTES = 64 * 2**20


class Uploads:
    """Artifacts between the promise and the commit."""

    def __init__(self, attempts: AttemptStore, artifacts: ArtifactStore, objects: ObjectStore):
        self._attempts = attempts
        self._artifacts = artifacts
        self._objects = objects

    async def begin(
        self,
        cluster_id: str,
        run: pb.Run,
        kind: ArtifactKind,
        *,
        step: int,
        entries: Sequence[Entry],
        now: int,
    ) -> tuple[Artifact, list[Entry]]:
        """Begins an artifact; returns it with its missing files; raises InvalidArgument."""
        manifest = valid_manifest(entries)
        async with self._attempts.locked(cluster_id, run) as locked:
            wanted = new_artifact(locked.job, kind, step=step, manifest=manifest, now=now)
            artifact, fresh = await self._artifacts.promise(locked.connection, wanted)
        if artifact.committed_at_ms:
            return artifact, []
        # Of another promise for the same step something else may lie there.
        return artifact, list(manifest) if fresh else await self._missing(artifact)

    async def _missing(self, artifact: Artifact) -> list[Entry]:
        limit = asyncio.Semaphore(HEADS)

        async def is_missing(entry: Entry) -> bool:
            key = f"{artifact.prefix}{entry.path}"
            async with limit:
                info = await self._objects.head(key)
                if info is None or info.bytes != entry.size:
                    return True
                small = entry.size <= DIGEST_BYTES
                return small and await self._objects.digest(key) != entry.sha256

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(is_missing(entry)) for entry in artifact.manifest]
        return [
            entry for entry, task in zip(artifact.manifest, tasks, strict=True) if task.result()
        ]

    async def commit(
        self,
        cluster_id: str,
        run: pb.Run,
        artifact_id: str,
        *,
        metrics: dict[str, float],
        is_adapter: bool,
        now: int,
    ) -> None:
        """Takes an artifact; idempotent; raises FailedPrecondition `upload_incomplete`."""
        await self._attempts.get(cluster_id, run)
        artifact = await self._artifacts.get(run.job_id, run.attempt, artifact_id)
        if artifact.committed_at_ms:
            return
        if missing := await self._missing(artifact):
            raise FailedPrecondition(
                f"{missing[0].path!r} is missing or differs from what was announced.",
                reason="upload_incomplete",
            )
        reach("jobs.artifact_complete")
        async with self._attempts.locked(cluster_id, run) as locked:
            if not await self._artifacts.commit(
                locked.connection, artifact, is_adapter=is_adapter, now=now
            ):
                return
            change = Change(job=locked.job)
            if artifact.kind is ArtifactKind.CHECKPOINT:
                checkpoint = new_checkpoint(locked.job, artifact, metrics, now)
                if await self._artifacts.add_checkpoint(locked.connection, checkpoint):
                    change = Change(job=locked.job, effects=(_register(artifact),))
            elif artifact.kind is ArtifactKind.TRAINING_STATE:
                change = Change(job=locked.job, effects=(_supersede(artifact),))
            await locked.apply(change)
        reach("jobs.artifact_committed")


def new_checkpoint(job: Job, artifact: Artifact, metrics: dict[str, float], now: int) -> Checkpoint:
    """The checkpoint that the API lists for a committed artifact."""
    return Checkpoint(
        id=new_id("ftckpt_"),
        job_id=job.id,
        step=artifact.step,
        created_at_ms=now,
        model_name=f"{job.model_name}:ckpt-step-{artifact.step}",
        # Neither NaN nor infinity, which no JSON can say.
        metrics={
            name[:64]: value
            for name, value in sorted(metrics.items())[:MAX_VALUES]
            if abs(value) < 2**53
        },
        artifact_id=artifact.id,
    )


def _register(artifact: Artifact) -> Effect:
    return Effect(
        kind=EffectKind.REGISTER_CHECKPOINT,
        attempt=artifact.attempt,
        step=artifact.step,
        payload={"artifact_id": artifact.id},
    )


def _supersede(artifact: Artifact) -> Effect:
    return Effect(
        kind=EffectKind.PURGE,
        attempt=artifact.attempt,
        step=artifact.step,
    )
