"""A job's trackers: what is refused at creation, and what its runner is told of secrets."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import sqlalchemy as sa
from tests.support.services.jobs_plane import JobsPlane, ScriptedAgent, Tenant, running_jobs_plane

from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.api.users.v1 import users_pb2, users_pb2_grpc

SECRET = b"s3cr3t-of-a-tracker"
MLFLOW = {"tracking_uri": "http://Mlflow.test:5000/base/", "experiment": "ships"}
SETTINGS = {"tracking": {"allowed": ["https://api.wandb.ai", "http://mlflow.test:5000"]}}


def wandb(**fields: Any) -> dict[str, Any]:
    return {"type": "wandb", "wandb": {"project": "p", **fields}}


def mlflow(**fields: Any) -> dict[str, Any]:
    return {"type": "mlflow", "mlflow": {**MLFLOW, **fields}}


def encoded(*integrations: Any) -> bytes:
    return json.dumps(integrations).encode()


@pytest.fixture
async def plane(database_url: str, tmp_path: Path) -> AsyncIterator[JobsPlane]:
    async with running_jobs_plane(database_url, tmp_path / "data", SETTINGS) as made:
        yield made


async def refusal(tenant: Tenant, *integrations: Any) -> tuple[str, str]:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await tenant.create(integrations=encoded(*integrations))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    said = dict(refused.value.trailing_metadata() or ())
    return str(said["windlass-reason"]), str(said["windlass-param"])


async def everything(plane: JobsPlane) -> str:
    """Every row of every table, as text."""
    names = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
    async with plane.app.database.autocommit() as connection:
        tables = list((await connection.execute(sa.text(names))).scalars())
        rows = [
            row
            for table in tables
            for row in (await connection.execute(sa.text(f'SELECT t::text FROM "{table}" t')))
        ]
    return str(rows)


async def test_a_tracker_needs_its_secret_in_the_project_itself(
    plane: JobsPlane, tenant: Tenant
) -> None:
    other = await plane.tenant("proj_b", "org-Other")
    await other.put_secret("wandb")
    await other.put_secret("mlflow")
    assert await refusal(tenant, wandb()) == ("secret_not_found", "integrations.0.wandb")
    assert await refusal(tenant, {"type": "tensorboard"}, mlflow()) == (
        "secret_not_found", "integrations.1.mlflow",
    )  # fmt: skip
    assert (await other.create(integrations=encoded(wandb(), mlflow()))).id
    open_one = mlflow(authenticate=False)
    job = await tenant.create(integrations=encoded(open_one, {"type": "tensorboard"}))
    assert json.loads(job.integrations) == [open_one, {"type": "tensorboard"}]


async def test_a_job_reports_to_no_host_that_is_not_listed(tenant: Tenant) -> None:
    await tenant.put_secret("mlflow")
    for uri in (
        "https://mlflow.test:5000", "http://mlflow.test", "http://mlflow.test:5000.evil.test",
        "http://169.254.169.254", "https://localhost", "http://mlflow.test@evil.test:5000",
    ):  # fmt: skip
        _, param = await refusal(tenant, mlflow(tracking_uri=uri))
        assert param == "integrations.0.mlflow.tracking_uri", uri


async def test_one_tracker_of_a_kind_is_enough(tenant: Tenant) -> None:
    await tenant.put_secret("wandb")
    assert (await refusal(tenant, wandb(), wandb(name="b")))[1] == "integrations.1.type"


async def test_the_runner_alone_is_told_the_secret(
    plane: JobsPlane, tenant: Tenant, agent: ScriptedAgent
) -> None:
    other = await plane.tenant("proj_b", "org-Other")
    await plane.make_known(tenant)
    await other.put_secret("wandb", b"of-another-tenant")
    await tenant.put_secret("wandb", SECRET)
    await tenant.put_secret("mlflow", SECRET + b"2")
    asked = (wandb(tags=["a"]), mlflow(username="ada"), {"type": "tensorboard"})
    job = await tenant.create(integrations=encoded(*asked))
    await agent.wants(job.id)
    assignment = await agent.run(job.id).assignment()
    assert assignment.model_name.startswith("ft:tiny:")
    told = [(one.type, one.url, one.secret, one.problem) for one in assignment.trackers]
    assert told == [
        ("wandb", "https://api.wandb.ai", SECRET, ""),
        ("mlflow", "http://mlflow.test:5000/base", SECRET + b"2", ""),
        ("tensorboard", "", b"", ""),
    ]
    assert [json.loads(one.config) for one in assignment.trackers] == [
        asked[0]["wandb"], asked[1]["mlflow"], {},
    ]  # fmt: skip
    for answer in (job, await tenant.job(job.id)):
        assert SECRET not in answer.SerializeToString()
    stranger = await plane.agent("west")
    with pytest.raises(grpc.aio.AioRpcError):
        await stranger.run(job.id, attempt=1).assignment()
    await stranger.close()
    assert SECRET.decode() not in await everything(plane)
    assert SECRET.hex() not in await everything(plane)


async def test_what_became_impossible_is_told_as_a_problem_and_fails_nothing(
    plane: JobsPlane, tenant: Tenant, agent: ScriptedAgent
) -> None:
    await tenant.put_secret("wandb", SECRET)
    job = await tenant.create(integrations=encoded(wandb()))
    await agent.wants(job.id)
    users = users_pb2_grpc.UsersServiceStub(plane.channel)
    keeper = Tenant(plane, tenant.organization, tenant.project, frozenset({"secrets.write"}))
    await users.DeleteSecret(users_pb2.DeleteSecretRequest(name="wandb"), metadata=keeper.metadata)
    (told,) = (await agent.run(job.id).assignment()).trackers
    assert (told.url, told.secret) == ("", b"")
    assert told.problem == "The project's secret 'wandb' was deleted."


async def test_users_tells_services_which_secrets_a_project_has(
    plane: JobsPlane, tenant: Tenant
) -> None:
    await tenant.put_secret("wandb")
    internal = plane.app.clients.stub(users_pb2_grpc.UsersInternalServiceStub)
    for project, found in ((tenant.project, ["wandb"]), ("proj_b", [])):
        request = users_pb2.FindSecretsRequest(project_id=project, names=["mlflow", "wandb"])
        assert list((await internal.FindSecrets(request)).names) == found
    outside = users_pb2_grpc.UsersInternalServiceStub(plane.channel)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await outside.FindSecrets(request, metadata=tenant.metadata)
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_the_job_of_a_request_holds_no_place_for_a_secret() -> None:
    assert not [field.name for field in pb.Job.DESCRIPTOR.fields if "secret" in field.name]
