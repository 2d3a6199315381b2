"""Fencing of attempts whose job continued elsewhere: refused on every path."""

from collections.abc import Awaitable, Callable

import grpc
import pytest
import sqlalchemy as sa
from tests.support.services.jobs_plane import JobsPlane, ScriptedAgent, Tenant
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.core.errors import from_rpc

CONTENT = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"stale"}


async def reason(call: Awaitable[object]) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    return from_rpc(refused.value).reason


async def silence(plane: JobsPlane, agent: ScriptedAgent) -> None:
    """As if its last heartbeat had been an hour ago."""
    async with plane.app.database.begin() as connection:
        query = "UPDATE clusters_clusters SET last_seen_at = now() - interval '1 hour' WHERE id = "
        await connection.execute(sa.text(f"{query} '{agent.cluster_id}'"))


async def test_a_stale_attempt_changes_nothing_on_any_path(
    plane: JobsPlane, tenant: Tenant
) -> None:
    east = await plane.agent("east")
    job = await tenant.create(suffix="s")
    await east.wants(job.id)
    await east.says(job.id, "RUNNING")
    stale = east.run(job.id)
    await stale.step(3, tokens=30)
    await stale.upload("CHECKPOINT", 2)
    await stale.upload("TRAINING_STATE", 2, {"optimizer.pt": b"two"})
    final = await stale.begin_upload("FINAL", 3, CONTENT)
    old = east.desired[job.id]
    await east.close()
    await silence(plane, east)
    west = await plane.agent("west")
    assert (await west.wants(job.id)).job.attempt == 2

    # URLs that were signed before outlive the attempt; nobody reads what comes by them.
    await plane.upload(final.uploads, CONTENT)
    calls: dict[str, Callable[[], Awaitable[object]]] = {
        "GetAssignment": stale.assignment,
        "Report": lambda: stale.step(4, tokens=4000),
        "CreateArtifact": lambda: stale.begin_upload("CHECKPOINT", 4, CONTENT),
        "CommitArtifact": lambda: stale.commit(final.artifact_id),
        "Finish": lambda: stale.finish(trained_tokens=4000),
        "Grade": lambda: stale.call("Grade", pb.RunGradeRequest()),
        "AppendLog": lambda: stale.log(0, b"stale\n"),
    }
    methods = pb.DESCRIPTOR.services_by_name["JobsAgentService"].methods
    assert set(calls) == {method.name for method in methods}
    for name, call in calls.items():
        assert await reason(call()) == "attempt_superseded", name
    # Nor by naming the attempt that took its place, nor by its cluster's old status.
    usurper = east.run(job.id, attempt=2)
    assert await reason(usurper.finish()) == "attempt_superseded"
    fresh = west.run(job.id)
    assert await reason(fresh.commit(final.artifact_id)) != "", "an artifact of another attempt"
    await east.connect()
    east.desired[job.id] = old
    await east.says(job.id, "SUCCEEDED")
    await east.says(job.id, "FAILED", reason="OutOfMemory")

    assert (await fresh.assignment()).resume.step == 2
    await west.says(job.id, "RUNNING")
    await fresh.step(3, tokens=50)
    await fresh.upload("FINAL", 3)
    await fresh.finish(trained_tokens=50)
    done = await tenant.wait_for(job.id, "SUCCEEDED")
    assert (done.attempt, done.trained_tokens) == (2, 50)
    await until(lambda: _settled(plane))
    rows = await _rows(plane, "SELECT id, input_tokens FROM usage_records ORDER BY id")
    assert rows == [(f"{job.id}/1", 30), (f"{job.id}/2", 20)]
    (prefix,) = await _rows(
        plane, "SELECT object_prefix FROM models_versions WHERE job_id <> '' AND NOT is_checkpoint"
    )
    assert f"/{job.id}/2/final-3/" in str(prefix[0])
    left = [item.key async for item in plane.app.objects.list("artifacts/")]
    assert not [key for key in left if "/1/final-3/" in key], "what was promised in vain is removed"
    stream = plane.jobs.ReadLog(pb.ReadLogRequest(job_id=job.id), metadata=tenant.metadata)
    assert b"stale" not in b"".join([chunk.data async for chunk in stream])
    await east.close()
    await west.close()


async def test_a_job_that_waits_for_its_next_place_takes_nothing_either(
    plane: JobsPlane, tenant: Tenant
) -> None:
    east = await plane.agent("east")
    job = await tenant.create()
    await east.wants(job.id)
    run = east.run(job.id)
    await run.step(1)
    await east.close()
    await silence(plane, east)
    await until(lambda: _lost(tenant, job.id))
    for call in (
        run.assignment(),
        run.step(2),
        run.finish(),
        run.begin_upload("FINAL", 1, CONTENT),
    ):
        assert await reason(call) == "attempt_superseded"
    # Back before another cluster took it, it is told to end what it has, and may begin anew.
    await east.connect()
    again = await east.wants(job.id, attempt=2)
    assert again.generation > 2
    assert again.desired == clusters_pb2.DESIRED_STATE_RUNNING
    await east.close()


async def _lost(tenant: Tenant, job_id: str) -> bool:
    return (await tenant.job(job_id)).cluster_id == ""


async def _rows(plane: JobsPlane, query: str) -> list[tuple[object, ...]]:
    async with plane.app.database.autocommit() as connection:
        return [tuple(row) for row in await connection.execute(sa.text(query))]


async def _settled(plane: JobsPlane) -> bool:
    return await _rows(plane, "SELECT count(*) FROM jobs_outbox WHERE NOT done") == [(0,)]
