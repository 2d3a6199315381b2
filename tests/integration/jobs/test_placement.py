"""Jobs over several clusters with Kueue: where they go, why, and what is refused."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from typing import Any

import grpc
import pytest
import sqlalchemy as sa
from tests.support.agents.kueue_agent import KueueAgent, assign, known_tenant
from tests.support.services.jobs_plane import JobsPlane, Tenant
from tests.support.waiting import until

from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.core.errors import from_rpc

Join = Callable[..., Awaitable[KueueAgent]]
QUEUE = "team-a"


@pytest.fixture
async def tenant(plane: JobsPlane) -> Tenant:
    return await known_tenant(plane)


@pytest.fixture
async def join(plane: JobsPlane) -> AsyncIterator[Join]:
    """Agents that leave at the end."""
    async with AsyncExitStack() as stack:

        async def joined(name: str, *, gpus: int = 0, **options: Any) -> KueueAgent:
            agent = await KueueAgent.join(plane, name, **options)
            stack.push_async_callback(agent.close)
            if gpus:
                await agent.offers(QUEUE, gpus=gpus)
            return agent

        yield joined


@pytest.fixture
async def probe(tenant: Tenant) -> pb.Job:
    """A job that is paused before any cluster could take it."""
    job = await tenant.create()
    paused: pb.Job = await tenant.call("PauseJob", pb.PauseJobRequest(job_id=job.id))
    return paused


async def create(tenant: Tenant, *, gpus: int = 1, nodes: int = 1) -> pb.Job:
    extra = {"resources": {"gpus": gpus}, "config": {"num_nodes": nodes} if nodes > 1 else {}}
    return await tenant.create(extra=json.dumps(extra).encode())


async def explain(tenant: Tenant, job_id: str) -> pb.Explanation:
    said: pb.Explanation = await tenant.call("ExplainJob", pb.ExplainJobRequest(job_id=job_id))
    return said


async def explained(tenant: Tenant, job_id: str, words: str) -> pb.Explanation:
    """The explanation once it says so."""

    async def there() -> pb.Explanation | None:
        why = await explain(tenant, job_id)
        return why if words in why.summary else None

    return await until(there)


async def test_without_an_assignment_a_job_waits_and_says_who_can_help(
    tenant: Tenant, join: Join
) -> None:
    east = await join("east", gpus=8)
    job = await create(tenant)
    words = "No cluster is assigned to this project. An operator can assign one with `windlass"
    why = await explained(tenant, job.id, words)
    assert not why.verdicts, "it learns nothing of clusters that are not its own"
    assert (await tenant.job(job.id)).queue.reason.startswith(words)
    await assign(tenant, east, QUEUE)
    workload = await east.wants(job.id)
    assert (await tenant.job(job.id)).cluster_id == east.cluster_id
    assert workload.project_id == tenant.project


async def test_the_assignment_says_where_in_the_cluster(tenant: Tenant, join: Join) -> None:
    east = await join("east", gpus=8)
    made = await assign(tenant, east, QUEUE, priority_class="high", node_selector={"pool": "a100"})
    job = await create(tenant)
    placement = (await east.wants(job.id)).placement
    assert placement.namespace == made.namespace
    assert (placement.queue, placement.priority_class) == (made.local_queue, "high")
    assert dict(placement.node_selector) == {"pool": "a100"}
    await tenant.call("CancelJob", pb.CancelJobRequest(job_id=job.id))
    # Where it was is where it is to be ended.
    assert (await east.wants(job.id, "DELETED")).placement == placement


async def test_jobs_go_where_room_is_and_queue_where_there_is_none(
    tenant: Tenant, join: Join, probe: pb.Job
) -> None:
    east, west = await join("east", gpus=4), await join("west", gpus=2)
    for agent in (east, west):
        await assign(tenant, agent, QUEUE)
    await known(tenant, probe, "east", "west")
    jobs = [await create(tenant, gpus=2) for _ in range(4)]
    placed = [await until(partial(placed_in, tenant, job.id)) for job in jobs]
    assert sorted(placed[:3]) == sorted([east.cluster_id, east.cluster_id, west.cluster_id])
    fourth = await explained(tenant, jobs[3].id, "sent to cluster")
    (chosen,) = [one for one in fourth.verdicts if one.chosen]
    assert chosen.fits
    assert "0 GPUs free in its queue team-a" in chosen.reason
    assert fourth.decided_at_ms


async def placed_in(tenant: Tenant, job_id: str) -> str:
    return (await tenant.job(job_id)).cluster_id


async def known(tenant: Tenant, probe: pb.Job, *clusters: str) -> None:
    """Until placement knows the project's clusters: a paused job tells what it would think."""

    async def there() -> bool:
        verdicts = (await explain(tenant, probe.id)).verdicts
        return {one.cluster_name for one in verdicts if one.fits} == set(clusters)

    await until(there)


async def test_kueues_words_explain_why_a_job_waits(tenant: Tenant, join: Join) -> None:
    east = await join("east", gpus=2)
    await assign(tenant, east, QUEUE)
    job = await create(tenant)
    await east.wants(job.id)
    await explained(tenant, job.id, "was sent to cluster east, which has not accepted it yet")
    words = "couldn't assign flavors to pod set main: insufficient unused quota"
    await east.says(job.id, "PENDING", queue=QUEUE, queue_position=3, message=words)
    why = await explained(tenant, job.id, "waits")
    assert why.summary == f"It waits in queue team-a of cluster east, at place 3: {words}."
    assert (why.queue.name, why.queue.position, why.queue.reason) == (QUEUE, 3, words)
    await east.says(job.id, "STARTING")
    await explained(tenant, job.id, "It is starting in cluster east.")
    await east.says(job.id, "RUNNING")
    why = await explained(tenant, job.id, "It runs in cluster east; when it was placed: Of 2 GPUs")
    (verdict,) = why.verdicts
    assert (verdict.cluster_name, verdict.points["headroom"]) == ("east", 100)


async def test_what_a_quota_can_never_hold_is_refused_at_once(tenant: Tenant, join: Join) -> None:
    east = await join("east", gpus=8)
    await assign(tenant, east, QUEUE)
    await east.wants((await create(tenant)).id)
    for gpus, nodes in ((9, 1), (8, 2)):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await create(tenant, gpus=gpus, nodes=nodes)
        error = from_rpc(refused.value)
        assert (error.reason, error.param) == ("exceeds_quota", "windlass.resources")
        assert f"asks for {gpus * nodes} GPUs" in error.message
        assert "8 GPUs at most" in error.message
    page = await tenant.call("ListJobs", pb.ListJobsRequest())
    assert len(page.jobs) == 1
    # All of it may be asked for, though some is in use.
    await east.offers(QUEUE, gpus=8, used=8)
    await create(tenant, gpus=4, nodes=2)


async def test_a_cluster_that_is_away_refuses_nothing_and_is_named(
    plane: JobsPlane, tenant: Tenant, join: Join, probe: pb.Job
) -> None:
    east, west = await join("east", gpus=8), await join("west", gpus=2)
    await assign(tenant, east, QUEUE)
    await known(tenant, probe, "east")
    await east.close()
    async with plane.app.database.begin() as connection:
        lately = sa.text("UPDATE clusters_clusters SET last_seen_at = now() - :hour WHERE id = :id")
        values = {"hour": timedelta(hours=1), "id": east.cluster_id}
        await connection.execute(lately, values)
    await known(tenant, probe)
    job = await create(tenant)
    await explained(tenant, job.id, "None of the clusters assigned to this project")
    # What it could hold is not known now.
    await create(tenant, gpus=16)
    # The other cluster is there, and none of its business.
    assert job.id not in west.desired


async def test_an_assignment_that_is_not_set_up_takes_no_job(tenant: Tenant, join: Join) -> None:
    slow = await join("slow", gpus=8, obedient=False)
    await assign(tenant, slow, QUEUE)
    job = await create(tenant)
    why = await explained(tenant, job.id, "not set up for this project yet")
    assert [one.fits for one in why.verdicts] == [False]


async def test_one_projects_clusters_are_no_others(
    plane: JobsPlane, tenant: Tenant, join: Join
) -> None:
    east, west = await join("east", gpus=8), await join("west", gpus=8)
    other = await known_tenant(plane, "Other")
    await assign(tenant, east, QUEUE)
    await assign(other, west, QUEUE)
    mine, theirs = await create(tenant), await create(other)
    await east.wants(mine.id)
    await west.wants(theirs.id)
    for caller, job, name in ((tenant, mine, "east"), (other, theirs, "west")):
        why = await explain(caller, job.id)
        assert [one.cluster_name for one in why.verdicts] == [name]
