"""Changes that an attempt reports, refused once another has taken its place."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.core.errors import FailedPrecondition
from windlass.core.killpoints import reach
from windlass.jobs.attempts.artifacts import Artifact, ArtifactStore
from windlass.jobs.domain.job import ArtifactKind, Effect, EffectKind, Job
from windlass.jobs.domain.reports import RunEvent, reported
from windlass.jobs.domain.transitions import Finish, finished
from windlass.jobs.storage.store import JobStore, Locked


def require_attempt(job: Job | None, cluster_id: str, attempt: int, *, ended: bool = False) -> Job:
    """The job if this cluster holds this attempt of it, or, with `ended`, held it last.

    Raises FailedPrecondition `attempt_superseded`, for an unknown job too.
    """
    if job is not None and job.attempt == attempt:
        if job.held and job.cluster_id == cluster_id and job.finished_attempt != attempt:
            return job
        if ended and job.workload_cluster == cluster_id:
            return job
    raise FailedPrecondition(
        "This attempt has ended or was replaced by another.", reason="attempt_superseded"
    )


class AttemptStore:
    """Operations for the holder of an attempt."""

    def __init__(self, jobs: JobStore, artifacts: ArtifactStore, *, max_attempts: int):
        self._jobs = jobs
        self._artifacts = artifacts
        self._max_attempts = max_attempts

    async def get(self, cluster_id: str, run: pb.Run, *, ended: bool = False) -> Job:
        """The attempt's job; raises FailedPrecondition `attempt_superseded`."""
        found = await self._jobs.find([run.job_id])
        return require_attempt(found.get(run.job_id), cluster_id, run.attempt, ended=ended)

    @asynccontextmanager
    async def locked(self, cluster_id: str, run: pb.Run) -> AsyncIterator[Locked]:
        """The attempt's job with its row locked; raises FailedPrecondition likewise."""
        await self.get(cluster_id, run)
        async with self._jobs.locked(run.job_id) as locked:
            require_attempt(locked.job, cluster_id, run.attempt)
            yield locked

    async def report(
        self, cluster_id: str, run: pb.Run, events: Sequence[RunEvent], now: int
    ) -> Job:
        """Appends events; the job says how far they are stored."""
        async with self.locked(cluster_id, run) as locked:
            job = await locked.apply(reported(locked.job, events, now))
        reach("jobs.reported")
        return job

    async def finish(self, cluster_id: str, run: pb.Run, finish: Finish, now: int) -> None:
        """Stores the end of the attempt; a repeat of it is no error.

        Raises FailedPrecondition `artifact_missing` when it claims success without a model.
        """
        known = await self.get(cluster_id, run, ended=True)
        if known.finished_attempt == run.attempt:
            return
        async with self.locked(cluster_id, run) as locked:
            owed: tuple[Effect, ...] = ()
            if finish.outcome == "succeeded":
                owed = await self._owed(locked)
            change = finished(
                locked.job, finish, owed=owed, now=now, max_attempts=self._max_attempts
            )
            await locked.apply(change)
        reach("jobs.finished")

    async def _owed(self, locked: Locked) -> tuple[Effect, ...]:
        job = locked.job
        final = await self._artifacts.committed(locked.connection, job, ArtifactKind.FINAL)
        if final is None:
            raise FailedPrecondition(
                "The attempt did not commit a final model.", reason="artifact_missing"
            )
        effects = [_register(EffectKind.REGISTER_MODEL, final)]
        merged = await self._artifacts.committed(locked.connection, job, ArtifactKind.MERGED)
        if merged is not None:
            effects.append(_register(EffectKind.REGISTER_MERGED, merged))
        result = await self._artifacts.committed(locked.connection, job, ArtifactKind.RESULT_FILE)
        if result is not None:
            effects.append(_register(EffectKind.REGISTER_RESULT, result))
        return tuple(effects)


def _register(kind: EffectKind, artifact: Artifact) -> Effect:
    return Effect(
        kind=kind,
        attempt=artifact.attempt,
        step=artifact.step,
        payload={"artifact_id": artifact.id},
    )
