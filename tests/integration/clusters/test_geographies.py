"""Clusters with geographies: assignments and workloads that fit, and what a new label ends."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import sqlalchemy as sa
from tests.support.agents.cluster_agent import AgentClient, refused
from tests.support.services.clusters import OWNER, ControlPlane, job, running_control_plane
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.clusters.v1 import clusters_pb2_grpc as rpc
from windlass.api.users.v1 import users_pb2, users_pb2_grpc
from windlass.clusters.relabelling import Relabelling
from windlass.clusters.storage.tables import clusters
from windlass.core.config import Settings
from windlass.core.config.residency import ResidencySection

MISMATCH = (grpc.StatusCode.FAILED_PRECONDITION, "geography_mismatch")
RUNNING, DELETED = pb.DESIRED_STATE_RUNNING, pb.DESIRED_STATE_DELETED


@pytest.fixture
async def plane(database_url: str, tmp_path: Path) -> AsyncIterator[ControlPlane]:
    settings = Settings(residency=ResidencySection(objects="EU", database="EU"))
    data = tmp_path / "data"
    async with running_control_plane(database_url, data, settings=settings) as plane:
        yield plane
        shutil.rmtree(plane.socket.parent)


@pytest.fixture
async def project(plane: ControlPlane) -> users_pb2.Project:
    """A project whose data stays in the EU."""
    free = await plane.project("Free")
    async with plane.channel() as channel:
        request = users_pb2.CreateProjectRequest(title="Bound", geography="EU")
        users = users_pb2_grpc.UsersServiceStub(channel)
        return await users.CreateProject(request, **plane.owner(free.organization_id))


async def label(plane: ControlPlane, cluster_id: str, geography: str) -> pb.Cluster:
    async with plane.channel() as channel:
        request = pb.UpdateClusterRequest(
            cluster_id=cluster_id,
            policy=pb.ClusterPolicy(geography=geography),
            fields=["geography"],
        )
        stub = rpc.ClustersServiceStub(channel)
        return await stub.UpdateCluster(request, **plane.operator)


async def assign(plane: ControlPlane, cluster_id: str, project_id: str) -> Any:
    async with plane.channel() as channel:
        wanted = pb.Assignment(cluster_id=cluster_id, project_id=project_id)
        request = pb.PutAssignmentRequest(assignment=wanted)
        return await rpc.ClustersServiceStub(channel).PutAssignment(request, **plane.operator)


def of(project_id: str, cluster_id: str, name: str = "job-1", **fields: Any) -> pb.Workload:
    made = job(name, cluster_id, **fields).workload
    made.project_id = project_id
    return made


async def put(plane: ControlPlane, workload: pb.Workload) -> None:
    await plane.internal.PutWorkload(pb.PutWorkloadRequest(workload=workload))


async def test_a_label_is_two_capital_letters(plane: ControlPlane) -> None:
    made = (await plane.register("east", geography="EU")).cluster
    assert made.geography == "EU"
    assert (await label(plane, made.id, "")).geography == ""
    for wrong in ("eu", "EUROPE"):
        assert (await refused(label(plane, made.id, wrong)))[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_project_is_assigned_where_the_label_fits(
    plane: ControlPlane, enrolled: pb.EnrollResponse, project: users_pb2.Project
) -> None:
    east = enrolled.cluster_id
    assert await refused(assign(plane, east, project.id)) == MISMATCH
    await label(plane, east, "US")
    assert await refused(assign(plane, east, project.id)) == MISMATCH
    await label(plane, east, "EU")
    assert (await assign(plane, east, project.id)).project_id == project.id
    residencies = (await plane.capacity()).residencies
    assert [(one.project_id, one.geography) for one in residencies] == [(project.id, "EU")]


@pytest.mark.parametrize("where", ["", "US"])
async def test_nothing_of_it_is_put_elsewhere(
    plane: ControlPlane, enrolled: pb.EnrollResponse, project: users_pb2.Project, where: str
) -> None:
    east = enrolled.cluster_id
    await label(plane, east, where)
    assert await refused(put(plane, of(project.id, east))) == MISMATCH
    # Nor an adapter of it, in an engine of everybody's model.
    engine = pb.Workload(
        id="eng-1", kind=pb.WORKLOAD_KIND_LONG_RUNNING, owner=OWNER, cluster_id=east,
        generation=1, desired=RUNNING,
        engine=pb.EngineWorkload(adapters=[pb.AdapterSpec(id="ft", project_id=project.id)]),
    )  # fmt: skip
    assert await refused(put(plane, engine)) == MISMATCH
    # What is to end there is told, and what is of others goes there.
    await put(plane, of(project.id, east, desired=DELETED))
    await put(plane, of("proj_other", east, "job-2"))
    await label(plane, east, "EU")
    await put(plane, of(project.id, east, "job-3"))


async def test_another_label_ends_what_may_not_stay(
    plane: ControlPlane,
    enrolled: pb.EnrollResponse,
    agent: AgentClient,
    project: users_pb2.Project,
) -> None:
    east = enrolled.cluster_id
    await label(plane, east, "EU")
    await assign(plane, east, project.id)
    await put(plane, of(project.id, east))
    await put(plane, of("proj_other", east, "job-2"))
    await agent.watch()
    await agent.report(
        *(
            pb.WorkloadStatus(workload_id=one, generation=1, phase=pb.PHASE_RUNNING)
            for one in ("job-1", "job-2")
        )
    )
    await label(plane, east, "US")

    # Its owner hears why, and it alone.
    call = plane.internal.WatchStatus(pb.WatchStatusRequest(owner=OWNER))
    delta = await call.read()
    assert isinstance(delta, pb.StatusDelta)
    told = {one.workload_id: one for one in delta.statuses}
    call.cancel()
    assert (told["job-1"].phase, told["job-1"].reason) == (pb.PHASE_FAILED, "GeographyChanged")
    assert told["job-2"].phase == pb.PHASE_RUNNING
    # Its agent hears that it ends.
    desired: dict[str, Any] = {}
    while desired.get("job-1") != DELETED:
        desired |= {one.id: one.desired for one in (await agent.next()).workloads}
    assert desired.get("job-2") in (None, RUNNING)
    assert not [one for one in (await plane.capacity()).assignments if not one.removing]
    assert await refused(put(plane, of(project.id, east, generation=2))) == MISMATCH


async def test_a_change_that_was_cut_off_is_finished(
    plane: ControlPlane,
    enrolled: pb.EnrollResponse,
    agent: AgentClient,
    project: users_pb2.Project,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    east = enrolled.cluster_id
    await label(plane, east, "EU")
    await put(plane, of(project.id, east))
    await agent.watch()

    async def killed(self: Relabelling, cluster_id: str, label: str) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(Relabelling, "_settle", killed)
        with pytest.raises(grpc.aio.AioRpcError):
            await label(plane, east, "US")

    async def settled() -> bool:
        query = sa.select(clusters.c.relabelled).where(clusters.c.id == east)
        async with plane.app.database.autocommit() as connection:
            return not (await connection.execute(query)).scalar_one()

    await until(settled)
    desired: dict[str, Any] = {}
    while desired.get("job-1") != DELETED:
        desired |= {one.id: one.desired for one in (await agent.next()).workloads}
