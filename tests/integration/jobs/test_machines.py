"""Jobs on plain machines: matched against what each has, and what of it is left."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import grpc
import pytest
from tests.support.factories.job_documents import document
from tests.support.services.jobs_plane import JobsPlane, ScriptedAgent, Tenant
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.clusters.v1.clusters_pb2_grpc import ClustersInternalServiceStub
from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.api.runner.v1 import runner_pb2
from windlass.core.db.paging import whole
from windlass.core.errors import from_rpc

GIB = 2**30


@pytest.fixture
async def machines(plane: JobsPlane) -> AsyncIterator[dict[str, ScriptedAgent]]:
    """One with four GPUs, of which an engine holds one, and one with two."""
    async with AsyncExitStack() as stack:
        found = {}
        for name, gpus, held in (("large", 4, 1), ("small", 2, 0)):
            found[name] = await plane.agent(
                name, slots=4, gpus=gpus, cpus=8, memory_bytes=64 * GIB,
                held_by_engines=pb.Resources(gpus=held),
            )  # fmt: skip
            stack.push_async_callback(found[name].close)
        yield found


async def create(tenant: Tenant, **resources: int) -> pb.Job:
    return await tenant.create(extra=json.dumps({"resources": resources}).encode())


async def is_refused(call: Callable[[], Awaitable[Any]]) -> bool:
    try:
        await call()
    except grpc.aio.AioRpcError:
        return True
    return False


async def why(tenant: Tenant, job: pb.Job, words: str) -> pb.Explanation:
    async def there() -> pb.Explanation | None:
        found = await tenant.call("ExplainJob", pb.ExplainJobRequest(job_id=job.id))
        return found if words in str(found) else None

    return await until(there)


async def test_jobs_go_where_their_gpus_are_free(
    tenant: Tenant, machines: dict[str, ScriptedAgent]
) -> None:
    first = await create(tenant, gpus=3)
    await machines["large"].wants(first.id)
    second = await create(tenant, gpus=2)
    await machines["small"].wants(second.id)
    # What is not placed yet is looked at anew, by what the database says of the jobs before.
    third = await create(tenant, gpus=4)
    await machines["large"].wants(third.id)
    found = await why(tenant, third, "It has 2 GPUs; the job asks for 4 GPUs")
    large = next(one for one in found.verdicts if one.cluster_name == "large")
    assert large.reason == "3 of its 4 slots are free, and 0 GPUs of 4 GPUs"


async def test_what_no_machine_has_is_refused_with_the_numbers(
    tenant: Tenant, machines: dict[str, ScriptedAgent]
) -> None:
    file = await tenant.put_file()
    extra = json.dumps({"resources": {"memory_bytes": 65 * GIB}}).encode()
    body = document(model="tiny", method="supervised", training_file=file.id, extra=extra)
    check = partial(tenant.call, "CheckJob", pb.CheckJobRequest(document=body))
    # A job is accepted while nobody has looked at the machines yet.
    await until(partial(is_refused, check))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await create(tenant, memory_bytes=65 * GIB)
    error = from_rpc(caught.value)
    assert (error.reason, error.param) == ("exceeds_machines", "windlass.resources")
    assert "64 GiB of memory; the job asks for 65 GiB of memory" in error.message


async def test_what_a_machine_that_is_away_may_have_waits_with_a_warning(
    plane: JobsPlane, tenant: Tenant, machines: dict[str, ScriptedAgent]
) -> None:
    largest = await plane.agent("largest", memory_bytes=128 * GIB)
    await largest.close()
    stub = plane.app.clients.stub(ClustersInternalServiceStub)

    async def is_away() -> bool:
        parts = stub.ListCapacity(clusters_pb2.ListCapacityRequest())
        return (await whole(parts, clusters_pb2.ListCapacityResponse())).shared_away

    await until(is_away)
    job = await create(tenant, memory_bytes=65 * GIB)
    found = await why(tenant, job, "It has 64 GiB of memory; the job asks for 65 GiB of memory")
    assert [one.fits for one in found.verdicts] == [False, False]
    assert not any(job.id in agent.desired for agent in machines.values())
    events = await tenant.call("ListEvents", pb.ListEventsRequest(job_id=job.id))
    [warning] = [one for one in events.events if one.level == runner_pb2.LEVEL_WARN]
    assert warning.message.startswith("No machine is large enough for a job that asks for 65 GiB")


async def test_qlora_goes_where_its_package_is_and_is_refused_where_none_is(
    plane: JobsPlane, tenant: Tenant, machines: dict[str, ScriptedAgent]
) -> None:
    file = await tenant.put_file()
    extra = json.dumps({"config": {"load_in_4bit": True}}).encode()
    asked: dict[str, Any] = {"training_file": file.id, "extra": extra}
    body = document(model="tiny", method="supervised", **asked)
    check = partial(tenant.call, "CheckJob", pb.CheckJobRequest(document=body))
    # A job is accepted while nobody has looked at the machines yet.
    await until(partial(is_refused, check))
    for call in (check, partial(tenant.call, "CreateJob", pb.CreateJobRequest(document=body))):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call()
        error = from_rpc(caught.value)
        assert (error.reason, error.param) == (
            "library_not_installed",
            "windlass.config.load_in_4bit",
        )
        assert error.message.startswith(
            "load_in_4bit needs bitsandbytes, which is installed on no cluster of the project."
        )
    equipped = await plane.agent("equipped", libraries=["bitsandbytes"])
    try:
        await until(partial(is_refused, check), holds=lambda refused: not refused)
        job = await tenant.create(**asked)
        await equipped.wants(job.id)
    finally:
        await equipped.close()
    found = await tenant.call("ExplainJob", pb.ExplainJobRequest(job_id=job.id))
    reasons = {one.cluster_name: one.reason for one in found.verdicts}
    lacking = "It does not have bitsandbytes, which load_in_4bit needs"
    assert reasons["large"] == reasons["small"] == lacking


async def test_what_a_machine_says_of_itself_is_shown(
    plane: JobsPlane, machines: dict[str, ScriptedAgent]
) -> None:
    agent = machines["large"]
    agent.capacity.devices.add(id="GPU-1", product="H100\x1b[2J", memory_bytes=80 * GIB, used=True)
    agent.capacity.used_gpus = 99
    stub = plane.app.clients.stub(ClustersInternalServiceStub)

    async def shown() -> clusters_pb2.Capacity | None:
        parts = stub.ListCapacity(clusters_pb2.ListCapacityRequest())
        answer = await whole(parts, clusters_pb2.ListCapacityResponse())
        (found,) = (one for one in answer.clusters if one.name == "large")
        return found.capacity if found.capacity.devices else None

    capacity = await until(shown)
    assert (capacity.gpus, capacity.used_gpus, capacity.held_by_engines.gpus) == (4, 4, 1)
    (device,) = capacity.devices
    assert (device.id, device.product, device.used) == ("GPU-1", "H100[2J", True)
