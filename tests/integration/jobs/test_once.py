"""Nothing twice, nothing skipped: open transactions, two servers, a crash after every step."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.integration.jobs.conftest import SETTINGS
from tests.support.services.jobs_plane import JobsPlane, ScriptedAgent, Tenant, running_jobs_plane
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2, clusters_pb2_grpc
from windlass.api.files.v1 import files_pb2_grpc
from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.api.models.v1 import models_pb2_grpc
from windlass.api.usage.v1 import usage_pb2_grpc
from windlass.core.clock import now_ms
from windlass.jobs.attempts.artifacts import ArtifactStore
from windlass.jobs.attempts.retention import Retention
from windlass.jobs.domain.job import Change, Job, Keep, NewEvent
from windlass.jobs.effects.handlers import EffectHandlers
from windlass.jobs.effects.statuses import JobStatuses
from windlass.jobs.scheduling.cluster_snapshot import ClusterSnapshot, SchedulableCluster
from windlass.jobs.scheduling.placement import JobPlacer
from windlass.jobs.scheduling.scoring import Load
from windlass.jobs.storage.event_feeds import EventFeeds
from windlass.jobs.storage.outbox import Outbox
from windlass.jobs.storage.store import JobStore
from windlass.jobs.storage.tables import events, jobs, outbox


def says(text: str, at: int = 1) -> "Decide":
    return Decide(text, at)


@dataclass
class Decide:
    text: str
    at: int

    def __call__(self, job: Job) -> Change:
        return Change(job=job, events=(NewEvent(message=self.text, at_ms=self.at),))


async def test_an_event_waits_for_the_one_before_it(tenant: Tenant) -> None:
    """A later transaction cannot commit a higher revision first, so no reader skips one."""
    app = tenant.plane.app
    store = JobStore(app.database, app.wake)
    job_id = (await tenant.create()).id
    async with store.locked(job_id) as first:
        before = first.job.revision
        await first.apply(says("first")(first.job))
        second = asyncio.create_task(store.change(job_id, says("second")))
        waiting = sa.text(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
            "AND query LIKE '%jobs_jobs%' AND datname = current_database()"
        )

        async def is_waiting() -> bool:
            async with app.database.autocommit() as connection:
                return bool((await connection.execute(waiting)).scalar_one())

        await until(is_waiting)
        assert not second.done()
    await second
    async with app.database.autocommit() as connection:
        query = events.select().where(events.c.job_id == job_id, events.c.revision > before)
        rows = (await connection.execute(query.order_by(events.c.revision))).all()
    assert [(row.revision - before, row.message) for row in rows] == [(1, "first"), (2, "second")]


async def test_a_follower_sees_every_event_of_many_writers_in_order(tenant: Tenant) -> None:
    app = tenant.plane.app
    store = JobStore(app.database, app.wake)
    feeds = EventFeeds(app.database, app.wake)
    job = await store.get(tenant.project, (await tenant.create()).id)
    seen: list[int] = []

    async def follow() -> None:
        async for event in feeds.follow(job, 0):
            seen.append(event.revision)

    async def write(name: int) -> None:
        for i in range(20):
            await store.change(job.id, says(f"{name}-{i}"))

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(follow())
        async with asyncio.TaskGroup() as writers:
            for name in range(8):
                writers.create_task(write(name))
        await tenant.call("CancelJob", pb.CancelJobRequest(job_id=job.id))
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) >= 160


async def test_two_servers_run_every_job_once(
    plane: JobsPlane, tenant: Tenant, database_url: str, tmp_path: Path
) -> None:
    async with running_jobs_plane(
        database_url, tmp_path / "data", SETTINGS, name="second"
    ) as second:
        beside = Tenant(second, tenant.organization, tenant.project)
        agent = await plane.agent(slots=50)
        file = (await tenant.put_file()).id
        made = await asyncio.gather(
            *((tenant, beside)[i % 2].create(training_file=file) for i in range(24))
        )
        for job in made:
            await agent.wants(job.id)

        async def train(job: pb.Job) -> None:
            await agent.says(job.id, "RUNNING")
            run = agent.run(job.id)
            await run.step(1, tokens=10)
            await run.upload("CHECKPOINT", 1)
            await run.upload("FINAL", 1)
            await run.finish(trained_tokens=10)

        async with asyncio.TaskGroup() as group:
            for job in made:
                group.create_task(train(job))
        for job in made:
            done = await tenant.wait_for(job.id, "SUCCEEDED", seconds=60)
            assert done.attempt == 1
            messages = await tenant.messages(job.id)
            assert len(messages) == len(set(messages))
        assert await count(plane, "models_versions WHERE job_id <> ''") == 2 * len(made)
        await agent.close()


async def count(plane: JobsPlane, what: str) -> int:
    async with plane.app.database.autocommit() as connection:
        query = sa.text(f"SELECT count(*) FROM {what}")
        return int((await connection.execute(query)).scalar_one())


@dataclass
class Steps:
    """The loops of jobs, taken step by step."""

    plane: JobsPlane
    store: JobStore
    outbox: Outbox
    placement: JobPlacer
    statuses: JobStatuses

    @classmethod
    def of(cls, plane: JobsPlane) -> "Steps":
        app, stub = plane.app, plane.app.clients.stub
        store, artifacts = JobStore(app.database, app.wake), ArtifactStore(app.database)
        clusters = stub(clusters_pb2_grpc.ClustersInternalServiceStub)
        handlers = EffectHandlers(
            artifacts,
            app.objects,
            clusters,
            stub(models_pb2_grpc.ModelsInternalServiceStub),
            stub(files_pb2_grpc.FilesInternalServiceStub),
            stub(usage_pb2_grpc.UsageInternalServiceStub),
            Retention(artifacts, stub(models_pb2_grpc.ModelsInternalServiceStub), Keep()),
            max_attempts=3,
        )
        everything = {**handlers.workloads(), **handlers.others()}
        delivering = Outbox(app.database, store, everything, handlers.refused)
        return cls(
            plane,
            store,
            delivering,
            JobPlacer(app.database, app.wake, delivering),
            JobStatuses(store, max_attempts=3),
        )

    async def place(self, agent: ScriptedAgent) -> None:
        cluster = SchedulableCluster(
            id=agent.cluster_id, slots=2, gpus=0, backends=frozenset({"trl"}), shared=True
        )
        for _ in range(2):
            await self.placement.place(ClusterSnapshot(clusters=(cluster,)), Load(), now_ms())

    async def deliver_with_crashes(self) -> None:
        """Every row three times: delivered and forgotten, as by a crash before the commit."""
        await self._deliver()
        for _ in range(2):
            async with self.plane.app.database.begin() as connection:
                again = outbox.update().values(done=False, lease_owner=None, lease_until=None)
                await connection.execute(again)
            await self._deliver()

    async def _deliver(self) -> None:
        while await count(self.plane, "jobs_outbox WHERE NOT done"):
            await self.outbox.deliver_batch()

    async def take(self, agent: ScriptedAgent, job_id: str, phase: str) -> None:
        status = clusters_pb2.WorkloadStatus(
            workload_id=job_id,
            cluster_id=agent.cluster_id,
            generation=agent.desired[job_id].generation,
            phase=clusters_pb2.Phase.Value(f"PHASE_{phase}"),
        )
        for _ in range(2):
            await self.statuses.apply([status])


@pytest.fixture
async def still(database_url: str, tmp_path: Path) -> AsyncIterator[JobsPlane]:
    async with running_jobs_plane(database_url, tmp_path / "data", SETTINGS, loops=False) as made:
        yield made


async def test_every_step_may_be_repeated_after_a_crash(still: JobsPlane) -> None:
    tenant, agent, steps = await still.tenant(), await still.agent(), Steps.of(still)
    job_id = (await tenant.create(suffix="s")).id
    await steps.place(agent)
    await steps.deliver_with_crashes()
    assert (await agent.wants(job_id)).job.attempt == 1
    await steps.take(agent, job_id, "RUNNING")
    run = agent.run(job_id)
    for _ in range(2):
        await run.report()
        run.seq = 0
        await run.step(1, tokens=10)
        await run.upload("CHECKPOINT", 1)
        await run.upload("RESULT_FILE", 1, {"step_metrics.csv": b"step\n"})
        await run.upload("FINAL", 1)
    await run.finish(trained_tokens=10)
    assert (await tenant.job(job_id)).state == pb.JOB_STATE_FINALIZING
    await steps.deliver_with_crashes()
    await steps.take(agent, job_id, "SUCCEEDED")
    await steps.deliver_with_crashes()
    done = await tenant.job(job_id)
    assert done.state == pb.JOB_STATE_SUCCEEDED
    assert (done.attempt, len(done.result_files)) == (1, 1)
    assert await count(still, "models_versions WHERE job_id <> ''") == 2
    assert await count(still, "files_files WHERE purpose = 'fine-tune-results'") == 1
    assert await count(still, "usage_records") == 1
    assert await count(still, "jobs_checkpoints") == 1
    messages = await tenant.messages(job_id)
    assert len(messages) == len(set(messages))
    await agent.close()


async def test_work_of_a_dead_server_is_taken_over(still: JobsPlane) -> None:
    """A server that dies between its claim and its call leaves a lease, and leases end."""
    tenant, agent, steps = await still.tenant(), await still.agent(), Steps.of(still)
    job_id = (await tenant.create()).id
    await Steps.of(still).place(agent)
    await steps.outbox.deliver_batch()
    assert job_id not in agent.desired
    async with still.app.database.begin() as connection:
        await connection.execute(outbox.update().values(lease_until=sa.func.now()))
    await steps.outbox.deliver_batch()
    await agent.wants(job_id)
    await agent.close()


async def test_what_a_receiver_cannot_take_now_is_owed_until_it_can(still: JobsPlane) -> None:
    tenant, agent, steps = await still.tenant(), await still.agent(), Steps.of(still)
    job_id = (await tenant.create()).id
    await steps.place(agent)
    await steps.deliver_with_crashes()
    await agent.wants(job_id)
    await agent.run(job_id).step(1, tokens=10)
    await agent.run(job_id).finish("FAILED", error_code="bad", error_message="Bad.")
    async with still.app.database.begin() as connection:
        await connection.execute(sa.text("ALTER TABLE usage_records RENAME TO away"))
    await steps.outbox.deliver_batch()
    owed = "jobs_outbox WHERE NOT done AND tries = 1 AND kind = 'record_usage'"
    assert await count(still, owed) == 1
    assert await count(still, "jobs_outbox WHERE NOT done") == 1
    async with still.app.database.begin() as connection:
        await connection.execute(sa.text("ALTER TABLE away RENAME TO usage_records"))

    async def delivered() -> bool:
        await steps.outbox.deliver_batch()
        return await count(still, "usage_records") == 1

    await until(delivered)
    await agent.close()


async def test_an_end_that_waits_for_another_service_says_so(still: JobsPlane) -> None:
    tenant, agent, steps = await still.tenant(), await still.agent(), Steps.of(still)
    job_id = (await tenant.create()).id
    await steps.place(agent)
    await steps.deliver_with_crashes()
    await agent.wants(job_id)
    run = agent.run(job_id)
    await run.upload("FINAL", 1)
    await run.finish()
    async with still.app.database.begin() as connection:
        await connection.execute(sa.text("ALTER TABLE models_stream RENAME TO away"))

    async def told() -> bool:
        await steps.outbox.deliver_batch()
        return "Registering the model failed 2 times" in (await tenant.job(job_id)).queue.reason

    await until(told)
    why = await tenant.call("ExplainJob", pb.ExplainJobRequest(job_id=job_id))
    assert "being registered. Registering the model failed" in why.summary
    async with still.app.database.begin() as connection:
        await connection.execute(sa.text("ALTER TABLE away RENAME TO models_stream"))

    async def done() -> bool:
        await steps.outbox.deliver_batch()
        return (await tenant.job(job_id)).state == pb.JOB_STATE_SUCCEEDED

    await until(done)
    assert (await tenant.job(job_id)).queue.reason == ""
    await agent.close()


async def test_a_model_that_cannot_be_registered_fails_the_job(still: JobsPlane) -> None:
    tenant, agent, steps = await still.tenant(), await still.agent(), Steps.of(still)
    job_id = (await tenant.create()).id
    await steps.place(agent)
    await steps.deliver_with_crashes()
    await agent.wants(job_id)
    run = agent.run(job_id)
    await run.upload("FINAL", 1)
    await run.finish()
    async with still.app.database.begin() as connection:
        await connection.execute(sa.text("UPDATE models_versions SET state = 'removed'"))
    await steps.deliver_with_crashes()
    failed = await tenant.job(job_id)
    assert failed.state == pb.JOB_STATE_FAILED
    assert failed.error.code == "model_registration_failed"
    assert failed.fine_tuned_model == ""
    await agent.close()


async def test_placement_spreads_over_free_slots(still: JobsPlane) -> None:
    tenant, steps = await still.tenant(), Steps.of(still)
    file = (await tenant.put_file()).id
    for _ in range(6):
        await tenant.create(training_file=file)
    both = ClusterSnapshot(
        clusters=tuple(
            SchedulableCluster(id=name, slots=slots, shared=True, backends=frozenset({"trl"}))
            for name, slots in (("large", 4), ("small", 2))
        )
    )
    load = Load()
    await asyncio.gather(*(steps.placement.place(both, load, now_ms()) for _ in range(4)))
    async with still.app.database.autocommit() as connection:
        query = sa.select(jobs.c.cluster_id, sa.func.count()).group_by(jobs.c.cluster_id)
        assert dict((await connection.execute(query)).all()) == {"large": 4, "small": 2}
