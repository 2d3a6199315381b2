"""A job on a model that nothing of this release loads is refused where no image may know it."""

from typing import Any

import grpc
import pytest
from tests.support.agents.kueue_agent import KueueAgent, assign, known_tenant
from tests.support.factories.feather import FEATHER
from tests.support.factories.job_documents import document
from tests.support.services.jobs_plane import JobsPlane, ScriptedAgent, Tenant
from tests.support.waiting import until

from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.core.errors import AppError, from_rpc

# Nobody's, and near to one that is known.
ODD = FEATHER | {"config.json": b'{"model_type": "llamma"}'}
SAID = "'odd' cannot be trained here. Models of type 'llamma' are known neither to"


@pytest.fixture
async def tenant(plane: JobsPlane) -> Tenant:
    tenant = await known_tenant(plane)
    await tenant.put_model("odd", ODD)
    return tenant


async def check(tenant: Tenant, model: str) -> pb.Job:
    body = document(model=model, method="supervised")
    job: pb.Job = await tenant.call("CheckJob", pb.CheckJobRequest(document=body))
    return job


async def checked(tenant: Tenant) -> Any:
    try:
        return await check(tenant, "odd")
    except grpc.aio.AioRpcError as error:
        return from_rpc(error)


async def refused(tenant: Tenant) -> AppError:
    """The refusal, once the machine is known."""
    error: AppError = await until(
        lambda: checked(tenant), holds=lambda found: isinstance(found, AppError)
    )
    return error


async def test_on_machines_it_is_refused_in_dry_runs_and_creations(
    tenant: Tenant, agent: ScriptedAgent
) -> None:
    error = await refused(tenant)
    assert (error.reason, error.param) == ("unknown_model_type", "model")
    assert error.message.startswith(SAID)
    assert "Did you mean 'llama'?" in error.message
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await tenant.create(model="odd")
    assert from_rpc(caught.value).message == error.message
    assert not (await tenant.call("ListJobs", pb.ListJobsRequest())).jobs
    assert (await check(tenant, "tiny")).model == "tiny"


async def test_an_image_of_a_cluster_may_know_it(
    plane: JobsPlane, tenant: Tenant, agent: ScriptedAgent
) -> None:
    await refused(tenant)
    east = await KueueAgent.join(plane, "pods")
    try:
        await east.offers("team-a", gpus=1)
        await assign(tenant, east, "team-a")
        await until(lambda: checked(tenant), holds=lambda found: isinstance(found, pb.Job))
        assert (await tenant.create(model="odd")).model == "odd"
    finally:
        await east.close()
