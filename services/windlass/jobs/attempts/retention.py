"""Retention of a job's checkpoints: the latest, the best, and what it can resume from."""

from collections.abc import Mapping, Sequence

import grpc

from windlass.api.models.v1 import models_pb2, models_pb2_grpc
from windlass.core.config import JobsSection
from windlass.jobs.attempts.artifacts import Artifact, ArtifactStore
from windlass.jobs.domain.job import Checkpoint, Job, Keep

# What a checkpoint is judged by, the first that it has; -1 where less is better.
_MEASURES = (
    ("full_valid_mean_reward", 1),
    ("full_valid_loss", -1),
    ("train_mean_reward", 1),
    ("train_loss", -1),
)


def installed(settings: JobsSection) -> Keep:
    """The installation's retention, for jobs that set none."""
    return Keep(last=settings.keep_last_checkpoints, best=settings.keep_best_checkpoints)


def dropped(keep: Keep, checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
    """The checkpoints to delete, earliest first."""
    if not keep.last:
        return []
    by_step = sorted(checkpoints, key=lambda one: one.step)
    # Of two that are as good the later is better.
    by_score = sorted(by_step, key=lambda one: (score(one.metrics), one.step), reverse=True)
    kept = {one.id for one in (*by_step[-keep.last :], *by_score[: keep.best])}
    return [one for one in by_step if one.id not in kept]


def score(metrics: Mapping[str, float]) -> tuple[int, float]:
    """The rank of a checkpoint; of those with different measures, the better measure's wins."""
    for rank, (name, sign) in enumerate(_MEASURES):
        if name in metrics:
            return -rank, sign * metrics[name]
    return -len(_MEASURES), 0.0


class Retention:
    """Takes dropped checkpoints away: the model, its files, and their place in the list."""

    def __init__(
        self,
        artifacts: ArtifactStore,
        models: models_pb2_grpc.ModelsInternalServiceAsyncStub,
        default: Keep,
    ):
        self._artifacts = artifacts
        self._models = models
        self._default = default

    async def apply(self, job: Job, now: int) -> None:
        """Drops what need not stay, as the job says or else the installation.

        One that is in use stays until the next time, and so does the one whose training state
        an attempt would go on from: without its weights the state is nothing.
        """
        keep = job.spec.keep or self._default
        if not keep.last:
            return
        listed = await self._artifacts.checkpoints(job.id)
        resumable = await self._artifacts.resumable_steps(job.id)
        for checkpoint in dropped(keep, listed):
            artifact = await self._artifacts.by_id(checkpoint.artifact_id)
            if artifact is None or checkpoint.step in resumable:
                continue
            if await self.retire(artifact):
                await self._artifacts.unlist(checkpoint, now)

    async def retire(self, artifact: Artifact) -> bool:
        """Deletes a checkpoint's model; False while it is in use."""
        request = models_pb2.RetireModelRequest(source=checkpoint_source(artifact))
        try:
            await self._models.RetireModel(request)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.FAILED_PRECONDITION:
                raise
            return False
        return True


def checkpoint_source(artifact: Artifact) -> str:
    """The source under which a checkpoint's model is registered."""
    return f"{artifact.job_id}/{artifact.attempt}/{artifact.step}"
