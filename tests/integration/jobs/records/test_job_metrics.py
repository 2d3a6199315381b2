"""What operators' metrics say of jobs: states, waits, ends, and what is owed."""

import datetime
import time
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from prometheus_client import REGISTRY
from tests.support.services.jobs_plane import JobsPlane, ScriptedAgent, Tenant
from tests.support.waiting import until

from windlass.jobs.storage.due_deliveries import due_deliveries
from windlass.jobs.storage.measuring import BY_STATE, OLDEST_OWED, JobCounts
from windlass.jobs.storage.tables import deliveries, outbox

Value = Callable[..., float]


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"windlass_{name}", labels) or 0.0


async def test_a_job_is_counted_by_state_then_by_its_wait_and_its_end(
    plane: JobsPlane, tenant: Tenant
) -> None:
    counts = JobCounts(plane.app.database)
    started, ended = value("job_queue_seconds_count"), value("jobs_ended_total", state="succeeded")
    job = await tenant.create()
    await tenant.wait_for(job.id, "QUEUED")
    await counts.take()
    assert (value("jobs", state="queued"), value("jobs", state="running")) == (1, 0)
    assert 0 < value("job_oldest_queued_seconds") < 60
    agent = await plane.agent()
    try:
        await agent.wants(job.id)
        run = agent.run(job.id)
        await run.step(1)
        await tenant.wait_for(job.id, "RUNNING")
        await counts.take()
        assert (value("jobs", state="queued"), value("jobs", state="running")) == (0, 1)
        assert value("job_oldest_queued_seconds") == 0
        assert value("job_queue_seconds_count") == started + 1
        await run.upload("FINAL", 1)
        await run.finish()
        await tenant.wait_for(job.id, "SUCCEEDED")
    finally:
        await agent.close()
    await counts.take()
    assert value("jobs", state="running") == 0
    await until(lambda: value("jobs_ended_total", state="succeeded") == ended + 1)
    # Once: not again by whatever changes it afterwards.
    assert value("job_queue_seconds_count") == started + 1


async def test_what_is_owed_has_the_age_of_its_oldest_row(plane: JobsPlane) -> None:
    counts = JobCounts(plane.app.database)
    await counts.take()
    assert value("outbox_age_seconds", outbox="jobs") == 0
    rows = [
        # No loop has a way for this kind, so it stays.
        {"job_id": name, "kind": "unknown", "attempt": 1, "step": 0, "payload": {}, "done": done}
        for name, done in (("a", True), ("b", False), ("c", False))
    ]
    async with plane.app.database.begin() as connection:
        await connection.execute(outbox.insert(), rows)
        hours = sa.func.make_interval(0, 0, 0, 0, sa.case((outbox.c.job_id == "b", 2), else_=5))
        old = outbox.update().where(outbox.c.job_id != "c")
        await connection.execute(old.values(created_at=sa.func.now() - hours))
    await counts.take()
    assert value("outbox_age_seconds", outbox="jobs") == pytest.approx(7200, abs=60)


def delivery(webhook: str, minutes: float) -> dict[str, Any]:
    """One that is due since so many minutes, and is under way."""
    due = int((time.time() - 60 * minutes) * 1000)
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    return {
        "webhook_id": webhook, "project_id": "p", "job_id": "j", "event_type": "t",
        "ended_at_ms": 0, "not_before_ms": due, "lease_owner": "x", "lease_until": later,
    }  # fmt: skip


async def test_deliveries_have_the_age_of_the_first_that_is_due(plane: JobsPlane) -> None:
    counts = JobCounts(plane.app.database)
    await counts.take()
    assert value("outbox_age_seconds", outbox="webhooks") == 0
    rows = [delivery("a", -60), delivery("b", 120), delivery("b", 5), delivery("c", 30)]
    async with plane.app.database.begin() as connection:
        await connection.execute(deliveries.insert(), rows)
    await counts.take()
    assert value("outbox_age_seconds", outbox="webhooks") == pytest.approx(7200, abs=60)


async def test_what_is_due_is_found_among_many_that_are_not(plane: JobsPlane) -> None:
    database = plane.app.database
    waiting = [delivery(f"webhook-{n % 5}", -60 - n) for n in range(20_000)]
    async with database.begin() as connection:
        await connection.execute(deliveries.insert(), [*waiting, delivery("webhook-6", 1)])
    text = str(due_deliveries(2).compile(compile_kwargs={"literal_binds": True}))
    async with database.autocommit() as connection:
        await connection.execute(sa.text("ANALYZE jobs_deliveries"))
        assert len((await connection.execute(sa.text(text))).all()) == 1
        explained = await connection.execute(sa.text(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}"))
        read = rows_read(explained.scalar_one()[0]["Plan"])
    assert read <= 20, "a look for each of six webhooks"


def rows_read(plan: dict[str, Any]) -> int:
    """The rows of the table that a plan read."""
    rows = sum(map(rows_read, plan.get("Plans", ())))
    if plan.get("Relation Name") == "jobs_deliveries":
        kept, thrown = plan["Actual Rows"], plan.get("Rows Removed by Filter", 0)
        rows += int((kept + thrown) * plan["Actual Loops"])
    return rows


@pytest.mark.parametrize(
    ("query", "index"), [(BY_STATE, "ix_jobs_jobs_"), (OLDEST_OWED, "ix_jobs_outbox_open")]
)
async def test_a_sample_reads_an_index_of_what_is_open(
    plane: JobsPlane, query: sa.Select[tuple[object]], index: str
) -> None:
    text = str(query.compile(compile_kwargs={"literal_binds": True}))
    async with plane.app.database.begin() as connection:
        # Of a few rows a scan would be the cheaper way.
        await connection.execute(sa.text("SET LOCAL enable_seqscan = off"))
        plan = "\n".join(row[0] for row in await connection.execute(sa.text(f"EXPLAIN {text}")))
    assert index in plan
    assert "Seq Scan" not in plan


async def test_agents_are_counted_by_state(plane: JobsPlane, agent: ScriptedAgent) -> None:
    await plane.app.exposition.render()
    assert value("agents", executor="process", state="live") == 1
    assert value("agents", executor="kubernetes", state="live") == 0
