"""Agents and runners that report what cannot be: nobody else's jobs notice."""

import math
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError
from tests.support.services.jobs_plane import JobsPlane, ScriptedAgent, Tenant

from windlass.api.clusters.v1 import clusters_pb2, clusters_pb2_grpc
from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.api.runner.v1 import runner_pb2
from windlass.jobs.domain.reports import MAX_TOKENS
from windlass.jobs.effects.statuses import JobStatuses
from windlass.jobs.storage.store import JobStore
from windlass.workload_statuses import StatusFollower

NUL = "torn\0apart"
HUGE = 2**63 - 1


@pytest.fixture
async def agent(plane: JobsPlane) -> AsyncIterator[ScriptedAgent]:
    """One with room for all jobs of a test."""
    made = await plane.agent(slots=100)
    yield made
    await made.close()


async def test_what_no_column_holds_keeps_no_other_status_from_its_job(
    tenant: Tenant, agent: ScriptedAgent
) -> None:
    lies: tuple[dict[str, Any], ...] = (
        {"phase": "PENDING", "message": NUL},
        {"phase": "PENDING", "queue": NUL},
        {"phase": "FAILED", "reason": NUL},
        {"phase": "FAILED", "message": NUL},
        {"phase": "RUNNING", "observations": [clusters_pb2.Observation(key=NUL, message=NUL)]},
        {"phase": "PENDING", "message": "x" * 2_000_000},
    )
    for said in lies:
        lied, honest = await tenant.create(), await tenant.create()
        await agent.wants(lied.id)
        await agent.wants(honest.id)
        await agent.says(lied.id, **said)
        await agent.says(honest.id, "RUNNING")
        await tenant.wait_for(honest.id, "RUNNING")
        seen = await tenant.job(lied.id)
        assert len(seen.SerializeToString()) < 20_000, said.keys()


async def test_a_status_that_cannot_be_applied_keeps_no_other_from_its_job(
    plane: JobsPlane, tenant: Tenant, agent: ScriptedAgent
) -> None:
    jobs = [await tenant.create() for _ in range(2)]
    statuses = [
        clusters_pb2.WorkloadStatus(
            workload_id=job.id,
            cluster_id=agent.cluster_id,
            generation=(await agent.wants(job.id)).generation,
            phase=clusters_pb2.PHASE_PENDING,
            # As an earlier release may have stored it.
            message=said,
        )
        for job, said in zip(jobs, (NUL, "It waits."), strict=True)
    ]
    job_statuses = JobStatuses(JobStore(plane.app.database, plane.app.wake), max_attempts=3)
    with pytest.raises(DBAPIError):
        await job_statuses.apply(statuses)
    clusters = clusters_pb2_grpc.ClustersInternalServiceStub(plane.channel)
    follower = StatusFollower("jobs", clusters, job_statuses.apply)
    await follower.take(clusters_pb2.StatusDelta(statuses=statuses))
    assert (await tenant.job(jobs[1].id)).queue.reason == "It waits."


async def test_numbers_that_cannot_be_are_stored_as_far_as_they_can(
    tenant: Tenant, agent: ScriptedAgent
) -> None:
    impossible: tuple[dict[str, Any], ...] = (
        {"values": {NUL: 1.0}},
        {"step": HUGE, "total_steps": HUGE},
        {"step": -HUGE, "total_steps": -HUGE},
        {"step": 2, "total_steps": HUGE},
        {"trained_tokens": HUGE},
        {"trained_tokens": -HUGE},
        {"epoch": math.nan, "values": {"train_loss": math.inf, "tokens_per_second": math.nan}},
    )
    for metrics in impossible:
        job = await tenant.create()
        await agent.wants(job.id)
        run, said = agent.run(job.id), runner_pb2.StepMetrics(**metrics)
        await run.step(1)
        await run.report(runner_pb2.RunEvent(metrics=said, at_ms=-HUGE))
        await run.report(runner_pb2.RunEvent(metrics=said, at_ms=HUGE))
        await run.step(3)
        await run.upload("FINAL", 1)
        await run.finish(trained_tokens=metrics.get("trained_tokens", 0))
        ended = await tenant.wait_for(job.id, "SUCCEEDED")
        assert 0 <= ended.trained_tokens <= MAX_TOKENS, metrics


async def test_the_names_of_a_checkpoints_numbers_are_storable(
    tenant: Tenant, agent: ScriptedAgent
) -> None:
    job = await tenant.create()
    await agent.wants(job.id)
    run = agent.run(job.id)
    content = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"weights"}
    begun = await run.begin_upload("CHECKPOINT", 1, content)
    await agent.plane.upload(begun.uploads, content)
    artifact = runner_pb2.CommitArtifactRequest(
        artifact_id=begun.artifact_id, metrics={NUL: 1.0, "train_loss": math.nan}
    )
    await run.call("CommitArtifact", pb.RunCommitArtifactRequest(artifact=artifact))
    listed = await tenant.call("ListCheckpoints", pb.ListCheckpointsRequest(job_id=job.id))
    assert [dict(one.metrics) for one in listed.checkpoints] == [{"tornapart": 1.0}]
