"""Dry runs: the checks of a creation, the job as it would be, and nothing stored."""

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
import sqlalchemy as sa
from tests.support.factories.job_documents import document
from tests.support.services.jobs_plane import JobsPlane, ScriptedAgent, Tenant, running_jobs_plane
from tests.support.waiting import until

from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.core.db import metadata
from windlass.core.errors import AppError, from_rpc

GRADER = {
    "type": "string_check",
    "name": "exact",
    "operation": "eq",
    "input": "{{sample.output_text}}",
    "reference": "{{item.reference_answer}}",
}


async def check(tenant: Tenant, fields: dict[str, Any], **unsent: Any) -> pb.Job:
    body = document(**{"model": "tiny", "method": "supervised", **fields})
    job: pb.Job = await tenant.call("CheckJob", pb.CheckJobRequest(document=body, **unsent))
    return job


async def refusal(tenant: Tenant, fields: dict[str, Any], **unsent: Any) -> AppError:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await check(tenant, fields, **unsent)
    return from_rpc(refused.value)


async def rows(plane: JobsPlane) -> dict[str, int]:
    """Counts the rows of every table but those of heartbeats and of accounting."""
    async with plane.app.database.autocommit() as connection:
        return {
            table.name: (
                await connection.execute(sa.select(sa.func.count()).select_from(table))
            ).scalar_one()
            for table in metadata.sorted_tables
            if table.name.startswith(("jobs", "files", "models", "quotas"))
        }


async def test_a_dry_run_answers_the_job_and_stores_nothing(
    plane: JobsPlane, tenant: Tenant, agent: ScriptedAgent
) -> None:
    file = await tenant.put_file()
    before = await rows(plane)
    fields = {"training_file": file.id, "suffix": "mine", "seed": 7, "metadata": {"a": "b"}}
    job = await check(tenant, fields)
    assert (job.id, job.state, job.seed) == ("", pb.JOB_STATE_QUEUED, 7)
    assert (job.model, job.training_file, dict(job.metadata)) == ("tiny", file.id, {"a": "b"})
    assert "auto" not in json.loads(job.hyperparameters).values()
    assert json.loads(job.config)["seed"] == 7

    async def reason() -> str:
        return (await check(tenant, fields)).queue.reason

    # The agent may not have been heard yet.
    placed = "It is about to be placed in cluster "
    await until(reason, holds=lambda said: said.startswith(placed))
    assert await rows(plane) == before
    assert not (await tenant.call("ListJobs", pb.ListJobsRequest())).jobs
    made = await tenant.create(**fields)
    assert made.hyperparameters == job.hyperparameters


async def test_files_that_are_not_uploaded_are_described(tenant: Tenant) -> None:
    unknown = await check(tenant, {})
    assert json.loads(unknown.hyperparameters)["n_epochs"] == "auto"
    few = await check(tenant, {}, training_format="chat", training_examples=20)
    many = await check(tenant, {}, training_format="chat", training_examples=4000)
    resolved = [json.loads(job.hyperparameters)["n_epochs"] for job in (few, many)]
    assert resolved[0] > resolved[1] > 0
    assert "No live cluster has the backend trl" in few.queue.reason

    for unsent, param, reason in (
        ({"training_format": "preference"}, "training_file", "invalid_training_file"),
        ({"training_format": "chat", "validation_format": "preference"}, "validation_file",
         "invalid_validation_file"),
        ({"training_format": "chats"}, "training_format", ""),
        ({"training_examples": -1}, "training_examples", ""),
    ):  # fmt: skip
        error = await refusal(tenant, {}, **unsent)
        assert (error.param, error.reason) == (param, reason or error.reason)
    file = await tenant.put_file()
    error = await refusal(tenant, {"training_file": file.id}, training_examples=20)
    assert error.param == "training_examples"


async def test_an_evaluation_is_checked_before_its_file_is_uploaded(tenant: Tenant) -> None:
    at = "windlass.evaluation"

    def asked(**fields: Any) -> dict[str, bytes]:
        return {"extra": json.dumps({"evaluation": fields}).encode()}

    job = await check(tenant, asked(grader=GRADER, max_examples=7), evaluation_format="chat")
    assert (job.evaluation.file, job.evaluation.max_examples) == ("", 7)
    file = (await tenant.put_file()).id
    for fields, held, param, reason in (
        (asked(grader=GRADER), "preference", f"{at}.file", "invalid_evaluation_file"),
        (asked(grader=GRADER | {"operation": "is"}), "chat", f"{at}.grader.operation", ""),
        (asked(), "chat", f"{at}.grader", ""),
        (asked(grader=GRADER, max_examples=0), "chat", f"{at}.max_examples", ""),
        (asked(grader=GRADER), "chats", "evaluation_format", ""),
        (asked(grader=GRADER, file=file), "chat", "evaluation_format", ""),
        ({}, "chat", "evaluation_format", ""),
    ):
        error = await refusal(tenant, fields, evaluation_format=held)
        assert (error.param, error.reason) == (param, reason or error.reason)


async def test_a_dry_run_refuses_what_a_creation_does(tenant: Tenant) -> None:
    refusals: tuple[tuple[dict[str, Any], str], ...] = (
        ({"model": "tinny"}, "model"),
        ({"training_file": "file-unknown"}, "training_file"),
        ({"hyperparameters": b'{"n_epochs": 0}'}, "method.supervised.hyperparameters.n_epochs"),
        ({"extra": b'{"config": {"rank": 0}}'}, "windlass.config.rank"),
        ({"extra": b'{"backend": "nobodys"}'}, "windlass.backend"),
        ({"integrations": b'[{"type": "wandb", "wandb": {"project": "p"}}]'},
         "integrations.0.wandb"),
        ({"method": "reinforcement"}, "method.reinforcement.grader"),
    )  # fmt: skip
    for fields, param in refusals:
        error = await refusal(tenant, fields)
        assert (error.code, error.param) == (grpc.StatusCode.INVALID_ARGUMENT, param)


async def test_a_foreign_file_and_model_do_not_exist(plane: JobsPlane, tenant: Tenant) -> None:
    other = await plane.tenant("proj_b", "org-Other")
    await other.put_model("secret-base")
    file = await other.put_file()
    assert (await refusal(tenant, {"training_file": file.id})).reason == "file_not_found"
    error = await refusal(tenant, {"model": "secret-base"})
    assert error.reason == "model_not_found"
    unknown = await refusal(tenant, {"model": "secret-bass"})
    assert error.message.replace("base", "bass") == unknown.message
    reader = Tenant(plane, tenant.organization, tenant.project, frozenset({"jobs.read"}))
    assert (await refusal(reader, {})).code is grpc.StatusCode.PERMISSION_DENIED


async def test_a_quota_that_is_used_up_refuses_a_dry_run(database_url: str, tmp_path: Path) -> None:
    bounds = {"quotas": {"jobs": 1}}
    async with running_jobs_plane(database_url, tmp_path / "data", bounds) as plane:
        mine, theirs = await plane.tenant(), await plane.tenant("proj_b", "org-Other")
        for _ in range(3):
            await check(mine, {})
        await mine.create()
        error = await refusal(mine, {})
        assert (error.code, error.reason) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED, "quota_exceeded",
        )  # fmt: skip
        assert (await check(theirs, {})).model == "tiny"
