"""The clusters service through its RPCs: enrolment, fencing, watches, placement."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
import sqlalchemy as sa
from tests.support.agents.cluster_agent import AgentClient, refused
from tests.support.services.clusters import OWNER, ControlPlane, job, running_control_plane
from tests.support.waiting import PATIENCE, soon, until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.clusters.storage.tables import clusters, registration_keys, workloads
from windlass.clusters.storage.workloads import WorkloadStore
from windlass.core.errors import from_rpc


@pytest.fixture
async def plane(database_url: str, tmp_path: Path) -> AsyncIterator[ControlPlane]:
    async with running_control_plane(database_url, tmp_path / "data") as plane:
        yield plane
        shutil.rmtree(plane.socket.parent)


@pytest.fixture
async def channel(plane: ControlPlane) -> AsyncIterator[grpc.aio.Channel]:
    async with plane.channel() as channel:
        yield channel


@pytest.fixture
async def enrolled(plane: ControlPlane) -> pb.EnrollResponse:
    return await plane.enroll()


@pytest.fixture
async def agent(channel: grpc.aio.Channel, enrolled: pb.EnrollResponse) -> AgentClient:
    return AgentClient(channel, enrolled.credential, "session-1")


def status(identifier: str, phase: pb.Phase.ValueType, *, generation: int = 1) -> pb.WorkloadStatus:
    return pb.WorkloadStatus(workload_id=identifier, generation=generation, phase=phase)


async def news(watch: grpc.aio.UnaryStreamCall[Any, pb.StatusDelta]) -> pb.StatusDelta:
    """The next snapshot or statuses; beats, which come every few seconds, are passed over."""
    while True:
        delta = await watch.read()
        assert isinstance(delta, pb.StatusDelta)
        if delta.snapshot or delta.statuses:
            return delta


async def test_a_registration_key_works_once(plane: ControlPlane) -> None:
    key = (await plane.register()).registration_key
    async with plane.channel() as channel:
        stub = rpc.ClustersAgentServiceStub(channel)
        request = pb.EnrollRequest(registration_key=key)
        answers = await asyncio.gather(
            *(stub.Enroll(request) for _ in range(8)), return_exceptions=True
        )
    assert sum(isinstance(answer, pb.EnrollResponse) for answer in answers) == 1
    failures = [answer for answer in answers if isinstance(answer, grpc.aio.AioRpcError)]
    assert {from_rpc(failure).reason for failure in failures} == {"invalid_registration_key"}


async def test_a_registration_key_expires_after_an_hour(plane: ControlPlane) -> None:
    key = (await plane.register()).registration_key
    async with plane.app.database.begin() as connection:
        row = (await connection.execute(registration_keys.select())).one()
        now = (await connection.execute(sa.select(sa.func.now()))).scalar_one()
        assert timedelta(minutes=59) < row.expires_at - now <= timedelta(hours=1)
        await connection.execute(registration_keys.update().values(expires_at=now))
    async with plane.channel() as channel:
        stub = rpc.ClustersAgentServiceStub(channel)
        call = stub.Enroll(pb.EnrollRequest(registration_key=key))
        code, reason = await refused(call)
    assert (code, reason) == (grpc.StatusCode.UNAUTHENTICATED, "invalid_registration_key")


async def test_no_secret_is_stored(plane: ControlPlane, enrolled: pb.EnrollResponse) -> None:
    async with plane.app.database.autocommit() as connection:
        for table in ("clusters_credentials", "clusters_registration_keys"):
            rows = (await connection.execute(sa.text(f"SELECT {table}::text FROM {table}"))).all()
            assert rows
            assert enrolled.credential.encode().hex() not in repr(rows)
            assert enrolled.credential not in repr(rows)


async def test_names_are_unique_and_plain(plane: ControlPlane) -> None:
    await plane.register("east")
    assert (await refused(plane.register("east")))[0] is grpc.StatusCode.ALREADY_EXISTS
    for bad in ("", "East", "../x", "a" * 64, "-a", "a b"):
        assert (await refused(plane.register(bad)))[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_clusters_are_the_platforms_and_permissions_decide(
    plane: ControlPlane, channel: grpc.aio.Channel, enrolled: pb.EnrollResponse
) -> None:
    stub = rpc.ClustersServiceStub(channel)
    for organization in ("org-a", "org-b"):
        reader = plane.tenant(organization, ("read",))
        found = await stub.ListClusters(pb.ListClustersRequest(), **reader)
        assert not found.clusters, "no project of theirs is assigned"
        request = pb.UnregisterClusterRequest(cluster_id=enrolled.cluster_id)
        code, _ = await refused(stub.UnregisterCluster(request, **reader))
        assert code is grpc.StatusCode.PERMISSION_DENIED
        code, _ = await refused(
            stub.RegisterCluster(pb.RegisterClusterRequest(name="mine"), **reader)
        )
        assert code is grpc.StatusCode.PERMISSION_DENIED
    nobody = plane.tenant("org-b", ())
    for call in (
        stub.ListClusters(pb.ListClustersRequest(), **nobody),
        stub.GetCluster(pb.GetClusterRequest(cluster_id=enrolled.cluster_id), **nobody),
    ):
        assert (await refused(call))[0] is grpc.StatusCode.PERMISSION_DENIED


async def test_an_agent_sees_its_own_cluster_alone(
    plane: ControlPlane, channel: grpc.aio.Channel, agent: AgentClient, enrolled: pb.EnrollResponse
) -> None:
    other = await plane.enroll("west")
    await plane.internal.PutWorkload(job("job-east", enrolled.cluster_id))
    await plane.internal.PutWorkload(job("job-west", other.cluster_id))
    snapshot = await agent.watch()
    assert snapshot.snapshot
    assert [workload.id for workload in snapshot.workloads] == ["job-east"]
    await agent.report(status("job-west", pb.PHASE_FAILED))
    async with plane.app.database.autocommit() as connection:
        phases = (await connection.execute(sa.select(workloads.c.phase))).scalars().all()
    assert set(phases) == {pb.PHASE_UNSPECIFIED}


async def test_a_watch_is_a_snapshot_then_changes(
    plane: ControlPlane, agent: AgentClient, enrolled: pb.EnrollResponse
) -> None:
    snapshot = await agent.watch()
    assert snapshot.snapshot
    assert not snapshot.workloads
    assert snapshot.heartbeat_seconds > 0
    await plane.internal.PutWorkload(job("job-1", enrolled.cluster_id))
    delta = await agent.next()
    assert not delta.snapshot
    assert [workload.id for workload in delta.workloads] == ["job-1"]
    await plane.internal.PutWorkload(
        job("job-1", enrolled.cluster_id, generation=2, desired=pb.DESIRED_STATE_STOPPED)
    )
    delta = await agent.next()
    assert [(w.generation, w.desired) for w in delta.workloads] == [(2, pb.DESIRED_STATE_STOPPED)]
    agent.call.cancel()
    again = await agent.watch()
    assert again.snapshot
    assert [workload.generation for workload in again.workloads] == [2]


async def test_rows_that_commit_late_are_not_skipped(
    plane: ControlPlane, agent: AgentClient, enrolled: pb.EnrollResponse
) -> None:
    """The first transaction takes its revision first and commits after the second began."""
    store, database = WorkloadStore(plane.app.database), plane.app.database
    await agent.watch()
    first = job("job-first", enrolled.cluster_id).workload
    second = job("job-second", enrolled.cluster_id).workload
    async with database.begin() as connection:
        revision, _ = await store.put_within(connection, first)
        later = asyncio.create_task(store.put(second))
        # The second waits for the first, or has overtaken it and is seen already.
        await asyncio.wait({later}, timeout=0.3)
        reader = asyncio.create_task(agent.next())
        await asyncio.wait({reader}, timeout=0.9)
    assert (await later)[0] > revision
    seen = [workload.id for workload in (await reader).workloads]
    while len(seen) < 2:
        seen += [workload.id for workload in (await agent.next()).workloads]
    assert seen == ["job-first", "job-second"]


async def test_workloads_that_come_at_once_share_their_way_and_nothing_else(
    plane: ControlPlane, agent: AgentClient, enrolled: pb.EnrollResponse
) -> None:
    """New ones, repeats of them, newer generations and unknown clusters, all at once."""
    await agent.watch()
    new = [job(f"job-{number}", enrolled.cluster_id) for number in range(150)]
    newer = [job(f"job-{number}", enrolled.cluster_id, generation=2) for number in range(10)]
    nowhere = [job(f"lost-{number}", "no-such-cluster") for number in range(10)]
    put = plane.internal.PutWorkload
    calls = [put(request) for request in (*new, *new[:20], *newer, *nowhere)]
    answers: list[Any] = await asyncio.gather(*calls, return_exceptions=True)
    stored, repeats, lost = answers[:150], answers[150:170], answers[180:]
    assert len({answer.revision for answer in stored[20:]}) == 130
    for answer, repeat in zip(stored[10:20], repeats[10:], strict=True):
        assert answer.revision == repeat.revision
    assert {from_rpc(error).reason for error in lost} == {"cluster_not_found"}
    known: dict[str, int] = {}
    while len(known) < 150 or any(known[f"job-{number}"] < 2 for number in range(10)):
        known |= {one.id: one.generation for one in (await agent.next()).workloads}
    assert known == {f"job-{n}": 2 if n < 10 else 1 for n in range(150)}


async def test_statuses_that_commit_late_are_not_skipped(
    plane: ControlPlane, enrolled: pb.EnrollResponse, channel: grpc.aio.Channel
) -> None:
    west = await plane.enroll("west")
    agents = [
        AgentClient(channel, each.credential, f"session-{number}")
        for number, each in enumerate((enrolled, west))
    ]
    for number, each in enumerate((enrolled, west)):
        await agents[number].watch()
        await plane.internal.PutWorkload(job(f"job-{number}", each.cluster_id))
    watch = plane.internal.WatchStatus(pb.WatchStatusRequest(owner=OWNER))
    assert (await news(watch)).snapshot
    rounds = 30

    async def reports(number: int) -> None:
        for turn in range(rounds):
            phase = pb.PHASE_RUNNING if turn % 2 else pb.PHASE_STARTING
            await agents[number].report(status(f"job-{number}", phase))
        await agents[number].report(status(f"job-{number}", pb.PHASE_SUCCEEDED))

    async with asyncio.TaskGroup() as group:
        for number in (0, 1):
            group.create_task(reports(number))
    last: dict[str, int] = {}
    async with asyncio.timeout(PATIENCE):
        while set(last.values()) != {pb.PHASE_SUCCEEDED} or len(last) < 2:
            for found in (await news(watch)).statuses:
                last[found.workload_id] = found.phase


async def test_another_session_fences_the_first_for_good(
    plane: ControlPlane, channel: grpc.aio.Channel, agent: AgentClient, enrolled: pb.EnrollResponse
) -> None:
    await plane.internal.PutWorkload(job("job-1", enrolled.cluster_id))
    await agent.watch()
    assert await agent.heartbeat()
    second = AgentClient(channel, enrolled.credential, "session-2")
    await second.watch()
    fenced = (grpc.StatusCode.FAILED_PRECONDITION, "session_superseded")
    assert await refused(agent.next()) == fenced
    assert not await agent.heartbeat()
    assert await second.heartbeat()
    assert await refused(agent.report(status("job-1", pb.PHASE_FAILED))) == fenced
    # It may not take over again either, or two agents would fight for ever.
    assert await refused(agent.watch()) == fenced
    await second.report(status("job-1", pb.PHASE_RUNNING))


async def test_unregistering_ends_everything_within_a_second(
    plane: ControlPlane, channel: grpc.aio.Channel, agent: AgentClient, enrolled: pb.EnrollResponse
) -> None:
    await plane.internal.PutWorkload(job("job-1", enrolled.cluster_id))
    await agent.watch()
    await agent.heartbeat()
    await agent.report(status("job-1", pb.PHASE_RUNNING))
    watch = plane.internal.WatchStatus(pb.WatchStatusRequest(owner=OWNER))
    assert [found.phase for found in (await news(watch)).statuses] == [pb.PHASE_RUNNING]
    stub = rpc.ClustersServiceStub(channel)
    await stub.UnregisterCluster(
        pb.UnregisterClusterRequest(cluster_id=enrolled.cluster_id), **plane.tenant("org-b")
    )
    gone = (grpc.StatusCode.UNAUTHENTICATED, "cluster_unregistered")
    async with soon(1):
        assert await refused(agent.next()) == gone
    assert await refused(agent.watch()) == gone
    async with asyncio.timeout(PATIENCE):
        (lost,) = (await news(watch)).statuses
    assert (lost.phase, lost.reason) == (pb.PHASE_FAILED, "ClusterUnregistered")
    code, reason = await refused(plane.internal.PutWorkload(job("job-2", enrolled.cluster_id)))
    assert (code, reason) == (grpc.StatusCode.NOT_FOUND, "cluster_not_found")
    await plane.internal.PutWorkload(
        job("job-1", enrolled.cluster_id, generation=2, desired=pb.DESIRED_STATE_DELETED)
    )
    async with soon(3):
        await until(lambda: is_refused(agent))


async def is_refused(agent: AgentClient) -> bool:
    """The boundary may remember a credential for a moment, at most a second."""
    try:
        return not await agent.heartbeat()
    except grpc.aio.AioRpcError:
        return True


async def test_putting_is_idempotent_and_never_goes_back(
    plane: ControlPlane, enrolled: pb.EnrollResponse
) -> None:
    put = plane.internal.PutWorkload
    first = await put(job("job-1", enrolled.cluster_id, generation=2))
    again = await put(job("job-1", enrolled.cluster_id, generation=2))
    assert first.revision == again.revision
    assert await refused(put(job("job-1", enrolled.cluster_id, generation=1))) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "stale_generation",
    )
    for bad in (
        job("../job", enrolled.cluster_id),
        job("job-1", enrolled.cluster_id, generation=0),
        job("job-1", enrolled.cluster_id, desired=pb.DESIRED_STATE_UNSPECIFIED),
    ):
        assert (await refused(put(bad)))[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_concurrent_puts_leave_the_newest(
    plane: ControlPlane, agent: AgentClient, enrolled: pb.EnrollResponse
) -> None:
    await asyncio.gather(
        *(
            plane.internal.PutWorkload(job("job-1", enrolled.cluster_id, generation=number))
            for number in range(1, 21)
        ),
        return_exceptions=True,
    )
    snapshot = await agent.watch()
    assert [workload.generation for workload in snapshot.workloads] == [20]


async def test_a_workload_that_moves_is_deleted_where_it_was(
    plane: ControlPlane, channel: grpc.aio.Channel, agent: AgentClient, enrolled: pb.EnrollResponse
) -> None:
    west = await plane.enroll("west")
    await agent.watch()
    await plane.internal.PutWorkload(job("job-1", enrolled.cluster_id))
    await agent.next()
    await plane.internal.PutWorkload(job("job-1", west.cluster_id, generation=2, attempt=2))
    (left,) = (await agent.next()).workloads
    assert (left.desired, left.generation) == (pb.DESIRED_STATE_DELETED, 1)
    other = AgentClient(channel, west.credential, "session-west")
    (arrived,) = (await other.watch()).workloads
    assert (arrived.desired, arrived.generation) == (pb.DESIRED_STATE_RUNNING, 2)
    stale = job("job-1", enrolled.cluster_id, generation=1)
    assert (await refused(plane.internal.PutWorkload(stale)))[1] == "stale_generation"
    await agent.report(status("job-1", pb.PHASE_STOPPED, generation=1))
    agent.call.cancel()
    assert not (await agent.watch()).workloads


async def test_statuses_reach_their_owner_alone(
    plane: ControlPlane, agent: AgentClient, enrolled: pb.EnrollResponse
) -> None:
    await agent.watch()
    put = plane.internal.PutWorkload
    await put(job("job-1", enrolled.cluster_id))
    await put(job("engine-1", enrolled.cluster_id, owner="inference"))
    mine = plane.internal.WatchStatus(pb.WatchStatusRequest(owner=OWNER))
    theirs = plane.internal.WatchStatus(pb.WatchStatusRequest(owner="inference"))
    for watch in (mine, theirs):
        first = await news(watch)
        assert first.snapshot
        assert not first.statuses
    await agent.report(status("engine-1", pb.PHASE_STARTING), status("job-1", pb.PHASE_RUNNING))
    (found,) = (await news(mine)).statuses
    assert (found.workload_id, found.cluster_id) == ("job-1", enrolled.cluster_id)
    (found,) = (await news(theirs)).statuses
    assert found.workload_id == "engine-1"


async def test_the_cluster_that_a_workload_left_speaks_for_it_no_more(
    plane: ControlPlane, channel: grpc.aio.Channel, agent: AgentClient, enrolled: pb.EnrollResponse
) -> None:
    """Though it speaks last, and both are told at once."""
    west = await plane.enroll("west")
    there = AgentClient(channel, west.credential, "session-west")
    for each in (agent, there):
        await each.watch()
    await plane.internal.PutWorkload(job("job-1", enrolled.cluster_id))
    await plane.internal.PutWorkload(job("job-1", west.cluster_id, generation=2, attempt=2))
    await there.report(status("job-1", pb.PHASE_FAILED, generation=2))
    await agent.report(status("job-1", pb.PHASE_STOPPED, generation=1))
    watch = plane.internal.WatchStatus(pb.WatchStatusRequest(owner=OWNER))
    (found,) = (await news(watch)).statuses
    assert (found.cluster_id, found.phase) == (west.cluster_id, pb.PHASE_FAILED)


async def test_a_status_of_another_generation_is_dropped(
    plane: ControlPlane, agent: AgentClient, enrolled: pb.EnrollResponse
) -> None:
    await agent.watch()
    await plane.internal.PutWorkload(job("job-1", enrolled.cluster_id))
    await plane.internal.PutWorkload(job("job-1", enrolled.cluster_id, generation=2, attempt=2))
    await agent.report(status("job-1", pb.PHASE_FAILED, generation=1))
    await agent.report(status("job-1", pb.PHASE_RUNNING, generation=2))
    watch = plane.internal.WatchStatus(pb.WatchStatusRequest(owner=OWNER))
    (found,) = (await news(watch)).statuses
    assert (found.generation, found.phase) == (2, pb.PHASE_RUNNING)


async def test_a_deleted_workload_goes_once_it_is_over(
    plane: ControlPlane, agent: AgentClient, enrolled: pb.EnrollResponse
) -> None:
    await agent.watch()
    await plane.internal.PutWorkload(job("job-1", enrolled.cluster_id))
    await agent.report(status("job-1", pb.PHASE_RUNNING))
    await plane.internal.PutWorkload(
        job("job-1", enrolled.cluster_id, generation=2, desired=pb.DESIRED_STATE_DELETED)
    )
    agent.call.cancel()
    assert len((await agent.watch()).workloads) == 1
    await agent.report(status("job-1", pb.PHASE_STOPPED, generation=2))
    agent.call.cancel()
    assert not (await agent.watch()).workloads
    # Its owner still hears of the end; the row goes an hour later.
    watch = plane.internal.WatchStatus(pb.WatchStatusRequest(owner=OWNER))
    assert [found.phase for found in (await news(watch)).statuses] == [pb.PHASE_STOPPED]
    async with plane.app.database.begin() as connection:
        hour = timedelta(hours=1, seconds=1)
        await connection.execute(
            workloads.update().values(collected_at=workloads.c.collected_at - hour)
        )
    await WorkloadStore(plane.app.database).sweep()
    async with plane.app.database.autocommit() as connection:
        assert not (await connection.execute(workloads.select())).all()


async def test_capacity_lists_who_was_heard_of_lately(
    plane: ControlPlane, agent: AgentClient, enrolled: pb.EnrollResponse
) -> None:
    async def capacity() -> list[pb.Cluster]:
        return list((await plane.capacity()).clusters)

    assert not await capacity()
    await agent.watch()
    assert await agent.heartbeat(slots=3)
    for number in range(2):
        await plane.internal.PutWorkload(job(f"job-{number}", enrolled.cluster_id))
    (found,) = await capacity()
    assert (found.capacity.slots, found.capacity.used_slots, found.live) == (3, 2, True)
    await agent.report(status("job-0", pb.PHASE_SUCCEEDED))
    (found,) = await capacity()
    assert found.capacity.used_slots == 1
    async with plane.app.database.begin() as connection:
        late = clusters.c.last_seen_at - timedelta(seconds=16)
        await connection.execute(clusters.update().values(last_seen_at=late))
    assert not await capacity()
    # What it said of its workloads stays: their owner decides.
    watch = plane.internal.WatchStatus(pb.WatchStatusRequest(owner=OWNER))
    assert [found.phase for found in (await news(watch)).statuses] == [pb.PHASE_SUCCEEDED]


async def test_a_name_that_is_taken_gets_a_number(plane: ControlPlane) -> None:
    for _ in range(3):
        await plane.internal.EnrollLocal(pb.EnrollLocalRequest(name="local"))
    async with plane.channel() as channel:
        found = await rpc.ClustersServiceStub(channel).ListClusters(
            pb.ListClustersRequest(), **plane.operator
        )
    assert [cluster.name for cluster in found.clusters] == ["local-3", "local-2", "local"]


async def test_services_calls_are_for_services(
    plane: ControlPlane, channel: grpc.aio.Channel, enrolled: pb.EnrollResponse
) -> None:
    stub = rpc.ClustersInternalServiceStub(channel)
    agent = {"metadata": (("authorization", f"Bearer {enrolled.credential}"),)}
    for metadata in (plane.tenant(), agent, {}):
        call = stub.PutWorkload(job("job-1", enrolled.cluster_id), **metadata)
        assert (await refused(call))[0] is grpc.StatusCode.UNAUTHENTICATED
    agents = rpc.ClustersAgentServiceStub(channel)
    request = pb.HeartbeatRequest(session_id="session-1")
    for metadata in (plane.tenant(), {"metadata": (("authorization", "Bearer nonsense"),)}):
        code, _ = await refused(agents.Heartbeat(request, **metadata))
        assert code is grpc.StatusCode.UNAUTHENTICATED


async def test_many_puts_all_arrive(
    plane: ControlPlane, agent: AgentClient, enrolled: pb.EnrollResponse
) -> None:
    await agent.watch()
    names = {f"job-{number}" for number in range(60)}
    seen: set[str] = set()

    async def read() -> None:
        while seen != names:
            seen.update(workload.id for workload in (await agent.next()).workloads)

    reading = asyncio.create_task(read())
    await asyncio.gather(
        *(plane.internal.PutWorkload(job(name, enrolled.cluster_id)) for name in names)
    )
    await until(reading.done)
    await reading
