"""A runner whose clock is wrong: its events still come in the order in which they were told."""

import time

import pytest
from tests.support.services.jobs_plane import JobsPlane, Tenant

from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.api.runner.v1 import runner_pb2

HOUR_MS = 3_600_000


@pytest.mark.parametrize("off_ms", [HOUR_MS, -HOUR_MS])
async def test_no_event_is_earlier_than_the_one_before_it(
    plane: JobsPlane, tenant: Tenant, off_ms: int
) -> None:
    agent = await plane.agent("east")
    job = await tenant.create(suffix="s")
    await agent.wants(job.id)
    await agent.says(job.id, "RUNNING")
    run = agent.run(job.id)
    at = int(time.time() * 1000) + off_ms
    await run.report(*(runner_pb2.RunEvent(message=f"{n}", at_ms=at - n) for n in range(3)))
    await run.report(runner_pb2.RunEvent(message="last", at_ms=at))
    page = await tenant.call("ListEvents", pb.ListEventsRequest(job_id=job.id, limit=100))
    told = [event.created_at_ms for event in reversed(page.events)]
    said = [event.message for event in page.events]
    assert [message for message in said if message in ("0", "1", "2", "last")] == ["last", *"210"]
    assert told == sorted(told)
    assert told[0] >= job.created_at * 1000
