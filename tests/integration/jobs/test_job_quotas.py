"""Quotas of jobs and of their event streams: kept, told, and of one tenant alone."""

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.support.services.jobs_plane import Tenant, running_jobs_plane
from tests.support.waiting import until

from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.core.errors import from_rpc

BOUNDS = {"quotas": {"jobs": 4, "running_jobs": 2, "event_streams": 1}}


async def test_jobs_and_streams_have_a_bound_for_each_project(
    database_url: str, tmp_path: Path
) -> None:
    async with running_jobs_plane(database_url, tmp_path / "data", BOUNDS) as plane:
        mine, theirs = await plane.tenant(), await plane.tenant("proj_b", "org-Other1")
        agent = await plane.agent()
        file = (await mine.put_file()).id
        made = await asyncio.gather(
            *(mine.create(training_file=file) for _ in range(10)), return_exceptions=True
        )
        refused = [one for one in made if isinstance(one, grpc.aio.AioRpcError)]
        jobs = [one for one in made if isinstance(one, pb.Job)]
        assert (len(jobs), len(refused)) == (4, 6)
        error = from_rpc(refused[0])
        assert (error.code, error.reason) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "quota_exceeded",
        )
        assert error.message == (
            "The project would have 5 jobs that have not ended; its quota is 4."
        )
        other = await theirs.create()

        async def waiting() -> list[pb.Job]:
            found = [await mine.job(job.id) for job in jobs]
            return [job for job in found if "running jobs" in job.queue.reason]

        held = await until(waiting, holds=lambda found: len(found) == 2)
        assert "3 running jobs; its quota is 2" in held[0].queue.reason
        told = await mine.call("ExplainJob", pb.ExplainJobRequest(job_id=held[0].id))
        assert told.summary == ("It waits. The project would have 3 running jobs; its quota is 2.")
        placed = [job for job in jobs if job.id not in {one.id for one in held}]
        await agent.wants(other.id)
        # One that ends makes room for one that waits, and for a new one.
        await mine.call("CancelJob", pb.CancelJobRequest(job_id=held[0].id))
        assert await mine.create(training_file=file)
        for job in placed:
            await agent.wants(job.id)

        stream = watch(mine, jobs[0])
        await stream.initial_metadata()
        with pytest.raises(grpc.aio.AioRpcError, match="2 event streams at once; its quota is 1"):
            await anext(aiter(watch(mine, jobs[1])))
        assert await anext(aiter(watch(theirs, other)))
        stream.cancel()

        async def follows() -> bool:
            try:
                return bool(await anext(aiter(watch(mine, jobs[1]))))
            except grpc.aio.AioRpcError:
                return False

        await until(follows)


def watch(tenant: Tenant, job: pb.Job) -> Any:
    request = pb.WatchEventsRequest(job_id=job.id)
    return tenant.plane.jobs.WatchEvents(request, metadata=tenant.metadata)
