"""Two tenants: what is one's does not exist for the other, on every RPC."""

from typing import Any

import grpc
import pytest
from tests.support.services.jobs_plane import JobsPlane, ScriptedAgent, Tenant

from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.core.rpc.rules import rule_of

STREAMS = ("WatchEvents", "ReadLog")
OF_ONE_JOB = {
    "GetJob": pb.GetJobRequest,
    "CancelJob": pb.CancelJobRequest,
    "PauseJob": pb.PauseJobRequest,
    "ResumeJob": pb.ResumeJobRequest,
    "ExplainJob": pb.ExplainJobRequest,
    "ListEvents": pb.ListEventsRequest,
    "WatchEvents": pb.WatchEventsRequest,
    "ListCheckpoints": pb.ListCheckpointsRequest,
    "ReadLog": pb.ReadLogRequest,
}


def reason(error: grpc.aio.AioRpcError) -> str:
    return str(dict(error.trailing_metadata() or ())["windlass-reason"])


async def call(tenant: Tenant, method: str, request: Any) -> Any:
    if method not in STREAMS:
        return await tenant.call(method, request)
    stream = getattr(tenant.plane.jobs, method)(request, metadata=tenant.metadata, timeout=30)
    return [item async for item in stream]


def test_every_rpc_is_covered() -> None:
    names = {method.name for method in pb.DESCRIPTOR.services_by_name["JobsService"].methods}
    assert names == {*OF_ONE_JOB, "CreateJob", "CheckJob", "ListJobs", "ListRuntimes"}


@pytest.fixture
async def other(plane: JobsPlane) -> Tenant:
    return await plane.tenant("proj_b", "org-Other")


async def test_a_foreign_job_is_not_found_by_any_rpc(tenant: Tenant, other: Tenant) -> None:
    job = await tenant.create()
    sibling = Tenant(tenant.plane, tenant.organization, "proj_sibling")
    for method, request in OF_ONE_JOB.items():
        for stranger in (other, sibling):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(stranger, method, request(job_id=job.id))
            assert refused.value.code() is grpc.StatusCode.NOT_FOUND, method
    assert (await tenant.job(job.id)).state == pb.JOB_STATE_QUEUED


async def test_lists_hold_the_projects_own_jobs_alone(tenant: Tenant, other: Tenant) -> None:
    mine = await tenant.create(metadata={"k": "v"})
    theirs = await other.create(metadata={"k": "v"})
    for metadata in ({}, {"k": "v"}):
        request = pb.ListJobsRequest(metadata=metadata)
        assert [job.id for job in (await tenant.call("ListJobs", request)).jobs] == [mine.id]
        assert [job.id for job in (await other.call("ListJobs", request)).jobs] == [theirs.id]
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await other.call("ListJobs", pb.ListJobsRequest(after=mine.id))
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


async def test_one_projects_request_ids_are_not_anothers(tenant: Tenant, other: Tenant) -> None:
    mine = await tenant.create(request_id="same")
    theirs = await other.create(request_id="same")
    assert mine.id != theirs.id


async def test_foreign_files_and_models_do_not_exist(tenant: Tenant, other: Tenant) -> None:
    file = await other.put_file()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await tenant.create(training_file=file.id)
    assert (refused.value.code(), reason(refused.value)) == (
        grpc.StatusCode.INVALID_ARGUMENT, "file_not_found",
    )  # fmt: skip
    await other.put_model("secret-base")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await tenant.create(model="secret-base")
    assert reason(refused.value) == "model_not_found"


async def test_permissions_decide(tenant: Tenant) -> None:
    job = await tenant.create()
    reader = Tenant(tenant.plane, tenant.organization, tenant.project, frozenset({"jobs.read"}))
    for method, request in OF_ONE_JOB.items():
        rule = rule_of(f"/windlass.api.jobs.v1.JobsService/{method}")
        assert rule is not None
        if rule.permission == "jobs.write":
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await call(reader, method, request(job_id=job.id))
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_an_agent_reaches_its_own_attempts_alone(
    plane: JobsPlane, tenant: Tenant, agent: ScriptedAgent
) -> None:
    job = await tenant.create()
    await agent.wants(job.id)
    stranger = await plane.agent("west", slots=1)
    run = stranger.run(job.id, attempt=1)
    for attempt in (
        run.assignment, lambda: run.step(1), run.finish, lambda: run.log(0, b"x"),
        lambda: run.begin_upload("FINAL", 1, {"a": b"b"}), lambda: run.commit("artifact_1"),
        stranger.run("ftjob-unknown", attempt=1).assignment,
    ):  # fmt: skip
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await attempt()
        assert reason(refused.value) == "attempt_superseded"
    await stranger.close()


async def test_pages_hold_every_job_once_newest_first(tenant: Tenant) -> None:
    file = (await tenant.put_file()).id
    made = [
        (await tenant.create(training_file=file, metadata={"odd": str(i % 2)})).id for i in range(9)
    ]

    async def walk(metadata: dict[str, str]) -> list[str]:
        found: list[str] = []
        while True:
            after = found[-1] if found else ""
            request = pb.ListJobsRequest(after=after, limit=2, metadata=metadata)
            page = await tenant.call("ListJobs", request)
            found += [job.id for job in page.jobs]
            if not page.has_more:
                return found

    assert await walk({}) == made[::-1]
    assert await walk({"odd": "1"}) == made[::-1][1::2]
    assert await walk({"odd": "1", "other": "x"}) == []


async def test_what_a_live_job_uses_cannot_be_deleted(tenant: Tenant) -> None:
    from windlass.api.files.v1 import files_pb2, files_pb2_grpc

    job = await tenant.create()
    stub = files_pb2_grpc.FilesServiceStub(tenant.plane.channel)
    request = files_pb2.DeleteFileRequest(file_id=job.training_file)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.DeleteFile(request, metadata=tenant.metadata)
    assert reason(refused.value) == "file_in_use"
    await tenant.call("CancelJob", pb.CancelJobRequest(job_id=job.id))
    await stub.DeleteFile(request, metadata=tenant.metadata)
