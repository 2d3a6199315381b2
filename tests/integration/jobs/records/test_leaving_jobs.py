"""Jobs of a project that leaves are cancelled at once, in order, and its erasure waits for them."""

from tests.support.services.jobs_plane import JobsPlane, ScriptedAgent, Tenant
from tests.support.waiting import until

from windlass.core.leaving.claims import Scope
from windlass.core.leaving.tables import erasures
from windlass.core.quotas import Quotas
from windlass.jobs.leaving import LeavingJobs
from windlass.jobs.storage.store import JobStore


async def test_jobs_end_with_their_project(
    plane: JobsPlane, tenant: Tenant, agent: ScriptedAgent
) -> None:
    other = await plane.tenant(project="proj_b")
    running, kept = await tenant.create(), await other.create()
    await agent.wants(running.id)
    await agent.says(running.id, "RUNNING")
    await agent.run(running.id).assignment()
    await tenant.wait_for(running.id, "RUNNING")
    database, settings = plane.app.database, plane.app.settings
    store = JobStore(database, plane.app.wake, Quotas(settings.quotas))
    leaving, scope = (
        LeavingJobs(database, store, grace_ms=1),
        Scope("org-Acme1", ("proj_a",), False),
    )
    assert await leaving.ended(scope)
    async with database.begin() as connection:
        await connection.execute(
            erasures.insert().values(
                id="erasure_a",
                organization_id="org-Acme1",
                project_id="proj_a",
                project_ids=["proj_a"],
                restores=[],
                state="scheduled",
                asked_by="ann",
                asked_at=1,
                erase_at=2**40,
            )
        )
    plane.app.wake.touch("projects")
    await tenant.wait_for(running.id, "CANCELLING", "CANCELLED")
    # What it says counts for what it was told to do.
    await agent.wants(running.id, "DELETED")
    await agent.says(running.id, "FAILED")
    await tenant.wait_for(running.id, "CANCELLED")

    async def has_ended() -> bool:
        return not await leaving.ended(scope)

    await until(has_ended)
    assert (await other.job(kept.id)).state != (await tenant.job(running.id)).state
    await store.close()
