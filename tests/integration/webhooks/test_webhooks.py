"""Webhooks told of ended jobs: once, signed, again after failures, and nobody else's."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import sqlalchemy as sa
from prometheus_client import REGISTRY
from tests.integration.jobs.conftest import SETTINGS
from tests.support.environments.certificates import self_signed
from tests.support.fakes.webhook_receiver import ALLOWED, Receiver, receiving
from tests.support.services.jobs_plane import JobsPlane, Tenant, running_jobs_plane
from tests.support.waiting import until

from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.api.jobs.v1 import jobs_pb2_grpc as rpc
from windlass.core.outbound import receivers
from windlass.jobs.storage.tables import deliveries, webhooks
from windlass.jobs.webhooks import deliveries as lane
from windlass.users.tables import projects


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "RETRY_DELAY_MS", 50)


@pytest.fixture
async def plane(database_url: str, tmp_path: Path) -> AsyncIterator[JobsPlane]:
    async with told(database_url, tmp_path) as made:
        yield made


@asynccontextmanager
async def told(url: str, folder: Path, **settings: Any) -> AsyncIterator[JobsPlane]:
    """A plane that tells receivers on loopback."""
    both = {**SETTINGS, "webhooks": ALLOWED | settings}
    async with running_jobs_plane(url, folder / "data", both) as made:
        yield made


@pytest.fixture
async def tenant(plane: JobsPlane) -> Tenant:
    return await live(plane)


async def live(plane: JobsPlane, project: str = "proj_a") -> Tenant:
    """A tenant whose project users know."""
    tenant = await plane.tenant(project)
    await plane.make_known(tenant)
    return tenant


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


async def ask(tenant: Tenant, method: str, request: Any) -> Any:
    stub = rpc.WebhooksServiceStub(tenant.plane.channel)
    return await getattr(stub, method)(request, metadata=tenant.metadata, timeout=30)


async def register(tenant: Tenant, url: str, *kinds: str) -> pb.CreateWebhookResponse:
    wanted = pb.CreateWebhookRequest(url=url, event_types=kinds)
    made: pb.CreateWebhookResponse = await ask(tenant, "CreateWebhook", wanted)
    return made


async def cancelled(tenant: Tenant) -> str:
    """The id of a job that has ended."""
    job_id = (await tenant.create()).id
    await tenant.call("CancelJob", pb.CancelJobRequest(job_id=job_id))
    return job_id


def counted() -> list[float]:
    """The tries that operators see, by their outcome."""
    name = "windlass_webhook_deliveries_total"
    values = [
        REGISTRY.get_sample_value(name, {"outcome": outcome})
        for outcome in ("delivered", "failed", "given_up")
    ]
    return [value or 0.0 for value in values]


async def settled(plane: JobsPlane) -> None:
    """Waits until nothing is owed to any webhook."""

    async def none() -> bool:
        async with plane.app.database.autocommit() as connection:
            query = sa.select(sa.func.count()).select_from(deliveries)
            return not (await connection.execute(query)).scalar_one()

    await until(none)


async def test_each_end_is_told_to_those_who_want_it(
    plane: JobsPlane, tenant: Tenant, receiver: Receiver
) -> None:
    secret = (await register(tenant, receiver.url)).secret
    with receiving() as failures:
        await register(tenant, failures.url, "fine_tuning.job.failed")
        agent = await plane.agent()
        good, bad = (await tenant.create()).id, (await tenant.create()).id
        for job_id in (good, bad):
            await agent.wants(job_id)
            await agent.says(job_id, "RUNNING")
        await agent.run(good).upload("FINAL", 1)
        await agent.run(good).finish()
        await agent.run(bad).finish("FAILED")
        await tenant.wait_for(good, "SUCCEEDED")
        await tenant.wait_for(bad, "FAILED")
        other = await cancelled(tenant)
        await tenant.wait_for(other, "CANCELLED")
        await settled(plane)
        assert [one.count(bad.removeprefix("ftjob-")) for one in failures.ids] == [1]
        await agent.close()
    events = receiver.unwrapped(secret)
    assert {(one.type.rpartition(".")[2], one.data.id) for one in events} == {
        ("succeeded", good), ("failed", bad), ("cancelled", other),
    }  # fmt: skip
    assert len(events) == 3
    assert sorted(receiver.ids) == sorted(one.id for one in events)
    assert receiver.requests[0][0]["content-type"] == "application/json"


async def test_a_failure_is_tried_again_and_said(
    plane: JobsPlane, tenant: Tenant, receiver: Receiver
) -> None:
    receiver.statuses = [500, 404, 204]
    before = counted()
    made = await register(tenant, receiver.url)
    job_id = await cancelled(tenant)
    await settled(plane)
    assert len(receiver.requests) == 3
    assert len(set(receiver.ids)) == 1
    assert len(receiver.unwrapped(made.secret)) == 3
    assert [now - then for then, now in zip(before, counted(), strict=True)] == [1, 2, 0]
    said = [one for one in await tenant.messages(job_id) if "webhook" in one]
    assert said == [
        f"The webhook {made.webhook.id} at 127.0.0.1 could not be delivered yet: "
        "the response had status 500. It is tried again."
    ]


async def test_after_its_time_it_is_given_up(
    database_url: str, tmp_path: Path, receiver: Receiver
) -> None:
    receiver.statuses, receiver.location = [302], "http://127.0.0.1:1/"
    async with told(database_url, tmp_path, retry_seconds=0) as plane:
        tenant = await live(plane)
        await register(tenant, receiver.url)
        job_id = await cancelled(tenant)
        await settled(plane)
        said = [one for one in await tenant.messages(job_id) if "webhook" in one]
    assert len(receiver.requests) == 1
    assert len(said) == 1
    assert said[0].endswith("the response had status 302. It is not tried again.")


async def test_a_body_without_end_is_not_read(
    plane: JobsPlane, tenant: Tenant, receiver: Receiver
) -> None:
    receiver.endless = True
    await register(tenant, receiver.url)
    await cancelled(tenant)
    await settled(plane)
    assert len(receiver.requests) == 1


async def test_a_slow_receiver_keeps_nobody_else_waiting(
    plane: JobsPlane, tenant: Tenant, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receivers, "SECONDS", 600.0)
    receiver.released.clear()
    made = await register(tenant, receiver.url)
    file = (await tenant.put_file()).id
    for _ in range(5):
        job = await tenant.create(training_file=file)
        await tenant.call("CancelJob", pb.CancelJobRequest(job_id=job.id))
    await until(lambda: len(receiver.requests) == lane.ABREAST)
    with receiving() as quick:
        beside = await live(plane, "proj_b")
        await register(beside, quick.url)
        await cancelled(beside)
        await until(lambda: quick.requests)
    assert len(receiver.requests) == lane.ABREAST
    receiver.released.set()
    await settled(plane)
    assert len(receiver.unwrapped(made.secret)) == 5


async def test_slow_receivers_of_one_project_leave_lanes_to_others(
    plane: JobsPlane, tenant: Tenant, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receivers, "SECONDS", 600.0)
    monkeypatch.setattr(lane, "LANES", 5)
    monkeypatch.setattr(lane, "PROJECT_LANES", 3)
    receiver.released.clear()
    for _ in range(5):
        await register(tenant, receiver.url)
    await cancelled(tenant)
    await until(lambda: len(receiver.requests) == 3)
    with receiving() as quick:
        beside = await live(plane, "proj_b")
        await register(beside, quick.url)
        await cancelled(beside)
        await until(lambda: quick.requests)
    assert len(receiver.requests) == 3
    receiver.released.set()
    await settled(plane)
    assert len(receiver.requests) == 5


@pytest.mark.parametrize("seconds", [0, 2])
async def test_an_error_of_the_server_is_counted_and_given_up_in_time(
    database_url: str, tmp_path: Path, receiver: Receiver, seconds: int
) -> None:
    """As of a secret that the installation's master key does not open."""
    async with told(database_url, tmp_path, retry_seconds=seconds) as plane:
        tenant = await live(plane)
        made = await register(tenant, receiver.url)
        async with plane.app.database.begin() as connection:
            await connection.execute(webhooks.update().values(secret=b"sealed by another"))
        job_id = await cancelled(tenant)
        await settled(plane)
        said = [one for one in await tenant.messages(job_id) if "webhook" in one]
    assert not receiver.requests
    what = f"The webhook {made.webhook.id} could not be delivered"
    assert said[-1] == f"{what}: {lane.OUR_FAULT}. It is not tried again."
    assert len(said) == (2 if seconds else 1)
    assert all(one.startswith(what) for one in said)


async def test_silence_ends_after_a_while(
    plane: JobsPlane, tenant: Tenant, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receivers, "SECONDS", 0.3)
    receiver.released.clear()
    made = await register(tenant, receiver.url)
    sample = pb.TestWebhookRequest(
        webhook_id=made.webhook.id, event_type="fine_tuning.job.succeeded"
    )
    with pytest.raises(grpc.aio.AioRpcError, match="did not respond within"):
        await ask(tenant, "TestWebhook", sample)


async def test_a_certificate_must_be_trusted(tenant: Tenant, tmp_path: Path) -> None:
    with receiving(self_signed(tmp_path)) as receiver:
        made = await register(tenant, receiver.url)
        sample = pb.TestWebhookRequest(
            webhook_id=made.webhook.id, event_type="fine_tuning.job.succeeded"
        )
        with pytest.raises(grpc.aio.AioRpcError, match="has no certificate that is trusted"):
            await ask(tenant, "TestWebhook", sample)
    assert not receiver.requests


async def test_what_was_sent_and_not_recorded_is_sent_again(
    plane: JobsPlane, tenant: Tenant, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dies(point: str) -> None:
        monkeypatch.setattr(lane, "reach", lambda point: None)
        raise RuntimeError(point)

    monkeypatch.setattr(lane, "reach", dies)
    await register(tenant, receiver.url)
    await cancelled(tenant)
    await until(lambda: receiver.requests)
    async with plane.app.database.begin() as connection:
        await connection.execute(deliveries.update().values(lease_until=sa.func.now()))
    await settled(plane)
    assert len(receiver.ids) == 2
    assert len(set(receiver.ids)) == 1


async def test_what_is_gone_hears_nothing_more(
    plane: JobsPlane, tenant: Tenant, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No second try is on its way when the webhook goes.
    monkeypatch.setattr(lane, "RETRY_DELAY_MS", 3_600_000)
    receiver.statuses = [503] * 9
    made = await register(tenant, receiver.url)
    await cancelled(tenant)
    await until(lambda: receiver.requests)
    await ask(tenant, "DeleteWebhook", pb.DeleteWebhookRequest(webhook_id=made.webhook.id))
    await settled(plane)
    count = len(receiver.requests)
    await register(tenant, receiver.url)
    async with plane.app.database.begin() as connection:
        await connection.execute(projects.update().values(archived_at=1))
    await cancelled(tenant)
    await settled(plane)
    assert len(receiver.requests) == count


async def test_this_machine_is_nobodys_receiver_unless_it_is_allowed(
    database_url: str, tmp_path: Path, receiver: Receiver
) -> None:
    port = receiver.url.partition(":")[2].partition(":")[2]
    async with told(database_url, tmp_path, allowed_networks=[]) as plane:
        tenant = await live(plane)
        with pytest.raises(grpc.aio.AioRpcError, match="must lead to a public address"):
            await register(tenant, receiver.url)
        made = await register(tenant, f"http://localhost:{port}")
        sample = pb.TestWebhookRequest(
            webhook_id=made.webhook.id, event_type="fine_tuning.job.succeeded"
        )
        with pytest.raises(grpc.aio.AioRpcError, match="localhost has no public address"):
            await ask(tenant, "TestWebhook", sample)
        await cancelled(tenant)
        job_id = await cancelled(tenant)

        async def is_said() -> bool:
            return any("no public address" in one for one in await tenant.messages(job_id))

        await until(is_said)
    assert not receiver.requests


async def test_a_project_has_few_and_their_secrets_are_sealed(
    plane: JobsPlane, tenant: Tenant, receiver: Receiver
) -> None:
    made = await asyncio.gather(
        *(register(tenant, receiver.url) for _ in range(12)), return_exceptions=True
    )
    good = [one for one in made if isinstance(one, pb.CreateWebhookResponse)]
    assert len(good) == 10
    listed = await ask(tenant, "ListWebhooks", pb.ListWebhooksRequest())
    assert {one.id for one in listed.webhooks} == {one.webhook.id for one in good}
    assert "whsec_" not in str(listed)
    async with plane.app.database.autocommit() as connection:
        rows = (await connection.execute(webhooks.select())).all()
    assert not [row for row in rows for one in good if one.secret.encode() in row.secret]
