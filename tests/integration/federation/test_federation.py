"""Federation through its RPCs: two clusters' agents, scripted, around the real services."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from tests.support.agents.kueue_agent import KueueAgent, assign, known_tenant
from tests.support.services.jobs_plane import JobsPlane, Tenant, running_jobs_plane
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2, clusters_pb2_grpc
from windlass.api.federation.v1 import federation_pb2 as pb
from windlass.api.federation.v1 import federation_pb2_grpc as rpc
from windlass.core.errors import from_rpc
from windlass.federation.scheduler import HOMELESS, ObjectStatuses
from windlass.federation.store import FederationStore
from windlass.workload_statuses import StatusFollower

QUEUE = "team-a"
SPEC = {"template": {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}}
SETTINGS = {
    "agents": {"suspend_seconds": 0},
    "jobs": {"agent_lost_seconds": 0.5, "max_attempts": 2},
}


@pytest.fixture
async def plane(database_url: str, tmp_path: Path) -> AsyncIterator[JobsPlane]:
    made = running_jobs_plane(database_url, tmp_path / "data", SETTINGS, also=("federation",))
    async with made as plane:
        yield plane


@pytest.fixture
async def agents(plane: JobsPlane) -> AsyncIterator[dict[str, KueueAgent]]:
    """`east`, where objects are applied, and two that may run them."""
    async with AsyncExitStack() as stack:
        found = {}
        for name in ("east", "north", "west"):
            found[name] = await KueueAgent.join(plane, name)
            stack.push_async_callback(found[name].close)
            await found[name].offers(QUEUE, gpus=8)
        yield found


@pytest.fixture
async def tenant(plane: JobsPlane) -> Tenant:
    return await known_tenant(plane)


async def applied(
    agent: KueueAgent, namespace: str, uid: str = "uid-1", *, deleting: bool = False, **spec: Any
) -> None:
    """Reports an object as the agent of a proxy does."""
    item = pb.FederatedObject(
        uid=uid, namespace=namespace, name=f"job-{uid}", kind="Job",
        spec=json.dumps(SPEC | spec).encode(), deleting=deleting,
    )  # fmt: skip
    stub = rpc.FederationAgentServiceStub(agent.plane.channel)
    request = pb.ReportObjectsRequest(objects=[item])
    await stub.ReportObjects(request, metadata=agent.metadata)


async def guest(agent: KueueAgent, desired: str = "RUNNING") -> clusters_pb2.Workload:
    """The workload that a cluster was told to run, once it is desired so."""
    wanted = clusters_pb2.DesiredState.Value(f"DESIRED_STATE_{desired}")

    async def there() -> clusters_pb2.Workload | None:
        found = (one for one in agent.desired.values() if one.HasField("guest"))
        return next((one for one in found if one.desired == wanted), None)

    return await until(there)


async def note(agent: KueueAgent, uid: str = "uid-1", **fields: Any) -> clusters_pb2.ObjectNote:
    """The note that a proxy was told to write, once it has these fields."""

    async def there() -> clusters_pb2.ObjectNote | None:
        for one in agent.desired.values():
            said = one.note
            if said.uid == uid and all(getattr(said, k) == v for k, v in fields.items()):
                return said
        return None

    return await until(there)


async def test_an_object_runs_elsewhere_and_its_status_comes_back(
    tenant: Tenant, agents: dict[str, KueueAgent]
) -> None:
    east, west = agents["east"], agents["west"]
    home = await assign(tenant, east, QUEUE)
    there = await assign(tenant, west, QUEUE, node_selector={"pool": "a100"})
    await applied(east, home.namespace, parallelism=2)
    workload = await guest(west)
    assert (workload.project_id, workload.organization_id) == (tenant.project, tenant.organization)
    assert workload.placement.namespace == there.namespace
    assert workload.placement.queue == there.local_queue
    assert dict(workload.placement.node_selector) == {"pool": "a100"}
    assert json.loads(workload.guest.spec)["parallelism"] == 2
    placed = await note(east, cluster="west")
    assert "Runs in cluster west" in placed.observations[-1].message
    seen = clusters_pb2.Observation(key="1/Pulled", at_ms=1, message="Pulled.")
    running = {"object_status": b'{"active":1}', "log_tail": "hello\n", "observations": [seen]}
    await west.says(workload.id, "RUNNING", **running)

    async def mirrored() -> bool:
        said = await note(east)
        told = (said.guest.object_status, said.guest.log_tail)
        return told == (b'{"active":1}', "hello\n") and said.observations[-1] == seen

    await until(mirrored)
    await west.says(workload.id, "SUCCEEDED", object_status=b'{"succeeded":1}')
    # What has ended is never begun again, should its object be lost.
    await guest(west, "STOPPED")
    assert not (await note(east)).released
    await applied(east, home.namespace, deleting=True)
    await guest(west, "DELETED")
    assert not (await note(east)).released
    await west.says(workload.id, "STOPPED")
    await note(east, released=True)
    await gone(east)


async def gone(agent: KueueAgent) -> None:
    """The object of a note vanished, and so does all that is known of it."""
    (identifier,) = [name for name, one in agent.desired.items() if one.HasField("note")]
    await agent.says(identifier, "STOPPED")

    async def forgotten() -> bool:
        return agent.desired[identifier].desired == clusters_pb2.DESIRED_STATE_DELETED

    await until(forgotten)


async def test_an_object_that_vanished_is_ended_as_if_deleted(
    tenant: Tenant, agents: dict[str, KueueAgent]
) -> None:
    east, west = agents["east"], agents["west"]
    home = await assign(tenant, east, QUEUE)
    await assign(tenant, west, QUEUE)
    await applied(east, home.namespace)
    workload = await guest(west)
    await note(east, cluster="west")
    (identifier,) = [name for name, one in east.desired.items() if one.HasField("note")]
    await east.says(identifier, "STOPPED")
    await guest(west, "DELETED")
    await west.says(workload.id, "STOPPED")
    await note(east, released=True)
    await gone(east)


async def test_what_may_not_run_fails_with_a_sentence(
    tenant: Tenant, agents: dict[str, KueueAgent]
) -> None:
    east = agents["east"]
    home = await assign(tenant, east, QUEUE)
    pod = {"containers": [{"name": "main", "image": "busybox"}], "hostNetwork": True}
    await applied(east, home.namespace, template={"spec": pod})
    said = await note(east, failure="NotFederated")
    assert said.message == "spec.template.spec.hostNetwork cannot be federated."
    assert said.observations[0].warning
    await applied(east, home.namespace, template={"spec": pod}, deleting=True)
    await note(east, released=True)


async def test_tenants_are_kept_apart(
    plane: JobsPlane, tenant: Tenant, agents: dict[str, KueueAgent]
) -> None:
    east, north, west = agents["east"], agents["north"], agents["west"]
    other = await known_tenant(plane, "Other")
    mine, theirs = await assign(tenant, east, QUEUE), await assign(other, east, QUEUE)
    await assign(tenant, west, QUEUE)
    await assign(other, north, QUEUE)
    # The namespace alone decides whose it is, and a cluster speaks of its own objects alone:
    # to another the same uid is another object, in a namespace of nobody.
    await applied(east, mine.namespace, "uid-1")
    await applied(east, theirs.namespace, "uid-2")
    await applied(west, theirs.namespace, "uid-2", deleting=True)
    assert (await guest(west)).project_id == tenant.project
    assert (await guest(north)).project_id == other.project
    assert not (await note(east, "uid-2")).released
    await note(west, "uid-2", released=True)
    await applied(east, "kube-system", "uid-3")
    waits = await note(east, "uid-3", message=HOMELESS)
    assert not waits.cluster
    assert waits.observations[0].warning


async def test_a_silent_worker_is_given_up_and_another_attempt_made(
    tenant: Tenant, agents: dict[str, KueueAgent]
) -> None:
    east, north, west = agents["east"], agents["north"], agents["west"]
    home = await assign(tenant, east, QUEUE)
    await assign(tenant, west, QUEUE)
    await applied(east, home.namespace)
    first = await guest(west)
    await assign(tenant, north, QUEUE)
    # It was let go of there, as after a silence.
    await west.says(first.id, "STOPPED")
    await guest(west, "DELETED")

    async def second() -> clusters_pb2.Workload | None:
        for agent in (north, west):
            for one in agent.desired.values():
                if one.guest.attempt == 2 and one.desired == clusters_pb2.DESIRED_STATE_RUNNING:
                    return one
        return None

    again = await until(second)
    assert again.id == first.id
    assert again.generation > first.generation
    worker = north if again.cluster_id == north.cluster_id else west
    # A word of the first attempt means nothing any more.
    await worker.says(again.id, "STOPPED")
    said = await note(east, failure="AttemptsExhausted")
    assert "lost 2 times" in said.message


async def test_a_report_that_makes_no_sense_is_refused_by_its_field(
    agents: dict[str, KueueAgent],
) -> None:
    stub = rpc.FederationAgentServiceStub(agents["east"].plane.channel)
    for field, value in (
        ("uid", ""), ("namespace", "a\n"), ("name", "x" * 300), ("kind", "Pod"), ("spec", b"["),
    ):  # fmt: skip
        item = pb.FederatedObject(uid="u", namespace="n", name="x", kind="Job", spec=b"{}")
        setattr(item, field, value)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.ReportObjects(
                pb.ReportObjectsRequest(objects=[item]), metadata=agents["east"].metadata
            )
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert from_rpc(caught.value).param == f"objects.{field}"


async def test_what_a_silent_cluster_ran_begins_anew_elsewhere_or_may_go(
    plane: JobsPlane, tenant: Tenant, agents: dict[str, KueueAgent]
) -> None:
    east, north, west = agents["east"], agents["north"], agents["west"]
    home = await assign(tenant, east, QUEUE)
    await assign(tenant, west, QUEUE)
    await applied(east, home.namespace)
    await guest(west)
    await fall_silent(plane, west)
    await assign(tenant, north, QUEUE)
    again = await guest(north)
    assert again.guest.attempt == 2
    await note(east, cluster="north")
    # Deleted while its worker does not answer, it is not held for ever.
    await fall_silent(plane, north)
    await applied(east, home.namespace, deleting=True)
    await note(east, released=True)


async def fall_silent(plane: JobsPlane, agent: KueueAgent) -> None:
    """An agent is not heard of any more, and was not for long."""
    await agent.close()
    long_ago = sa.text("UPDATE clusters_clusters SET last_seen_at = now() - :hour WHERE id = :id")
    async with plane.app.database.begin() as connection:
        values = {"hour": timedelta(hours=1), "id": agent.cluster_id}
        await connection.execute(long_ago, values)


async def test_a_suspended_object_waits_until_it_is_not(
    tenant: Tenant, agents: dict[str, KueueAgent]
) -> None:
    east, west = agents["east"], agents["west"]
    home = await assign(tenant, east, QUEUE)
    await assign(tenant, west, QUEUE)
    await applied(east, home.namespace, suspend=True)
    await note(east, message="It is suspended.")
    await applied(east, home.namespace, suspend=False)
    assert (await guest(west)).guest.attempt == 1
    await note(east, cluster="west")


async def test_a_status_that_cannot_be_applied_keeps_no_other_from_its_object(
    plane: JobsPlane, tenant: Tenant, agents: dict[str, KueueAgent]
) -> None:
    east, west = agents["east"], agents["west"]
    home = await assign(tenant, east, QUEUE)
    await assign(tenant, west, QUEUE)
    for uid in ("uid-1", "uid-2"):
        await applied(east, home.namespace, uid)

    async def both() -> list[clusters_pb2.Workload]:
        found = [one for one in west.desired.values() if one.HasField("guest")]
        return found if len(found) == 2 else []

    bad, good = await until(both)
    store = FederationStore(plane.app.database, plane.app.wake)
    clusters = clusters_pb2_grpc.ClustersInternalServiceStub(plane.channel)
    apply = ObjectStatuses(store, max_attempts=2).apply
    of: dict[str, Any] = {"cluster_id": west.cluster_id, "generation": bad.generation}
    statuses = [
        # As an earlier release may have stored it.
        clusters_pb2.WorkloadStatus(
            workload_id=bad.id, phase=clusters_pb2.PHASE_FAILED, message="torn\0apart", **of
        ),
        clusters_pb2.WorkloadStatus(
            workload_id=good.id, phase=clusters_pb2.PHASE_FAILED, message="It broke.", **of
        ),
    ]
    with pytest.raises(DBAPIError):
        await apply(statuses)
    follower = StatusFollower("federation", clusters, apply)
    await follower.take(clusters_pb2.StatusDelta(statuses=statuses))
    assert (await store.find([good.id]))[good.id].message == "It broke."
