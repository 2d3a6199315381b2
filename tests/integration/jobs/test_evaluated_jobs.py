"""Jobs that are evaluated: what is admitted, what an attempt is told, and what it may report."""

import json
from typing import Any

import grpc
import pytest
from tests.integration.jobs.test_bad_input import refusal
from tests.support.services.jobs_plane import (
    CHAT,
    PREFERENCE,
    JobsPlane,
    ScriptedAgent,
    ScriptedRun,
    Tenant,
)

from windlass.api.files.v1 import files_pb2, files_pb2_grpc
from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.api.runner.v1 import runner_pb2
from windlass.files.store import files

GRADER = {
    "type": "string_check",
    "name": "exact",
    "operation": "eq",
    "input": "{{sample.output_text}}",
    "reference": "{{item.reference_answer}}",
}
JUDGE = {
    "type": "score_model",
    "name": "judge",
    "model": "tiny",
    "input": [{"role": "user", "content": "{{sample.output_text}}"}],
}
AT = "windlass.evaluation"


def evaluated(file: str, **fields: Any) -> dict[str, bytes]:
    asked = {"file": file, "grader": GRADER} | fields
    return {"extra": json.dumps({"evaluation": asked}).encode()}


def outcome(**fields: Any) -> runner_pb2.RunEvent:
    result = runner_pb2.EvaluationResult(
        examples=2,
        base=runner_pb2.EvaluationScore(mean_reward=0.5),
        fine_tuned=runner_pb2.EvaluationScore(mean_reward=1.0),
        wins=1,
        ties=1,
    )
    result.MergeFrom(runner_pb2.EvaluationResult(**fields))
    return runner_pb2.RunEvent(message="Evaluated.", evaluation=result)


async def begun(tenant: Tenant, agent: ScriptedAgent, **fields: Any) -> ScriptedRun:
    job = await tenant.create(**fields)
    await agent.wants(job.id)
    await agent.says(job.id, "RUNNING")
    return agent.run(job.id)


async def test_an_attempt_is_told_what_to_compare_by_until_one_has(
    tenant: Tenant, agent: ScriptedAgent
) -> None:
    file = await tenant.put_file((json.dumps(CHAT) + "\n").encode() * 3)
    run = await begun(tenant, agent, **evaluated(file.id, max_examples=2, temperature=0.5), seed=3)
    asked = (await run.assignment()).evaluation
    assert asked.file.path == file.id
    assert asked.file.sha256 == file.sha256
    assert json.loads(asked.grader) == GRADER
    assert (asked.max_examples, asked.max_completion_tokens) == (2, 256)
    assert (asked.temperature, asked.seed) == (0.5, 3)

    with pytest.raises(grpc.aio.AioRpcError, match=r"contradict"):
        await run.report(outcome(wins=7))
    run.seq = 0
    await run.report(outcome())
    assert not (await run.assignment()).HasField("evaluation")
    await run.upload("FINAL", 1)
    await run.finish()
    job = await tenant.wait_for(run.job_id, "SUCCEEDED")
    assert job.evaluation.file == file.id
    assert job.evaluation.result == outcome().evaluation
    assert "Evaluated." in await tenant.messages(run.job_id)


async def test_a_held_out_file_must_be_the_projects_and_fit(
    plane: JobsPlane, tenant: Tenant
) -> None:
    other = await plane.tenant("proj_b", "org-Other")
    theirs = (await other.put_file()).id
    at = f"{AT}.file"
    assert await refusal(tenant, **evaluated(theirs)) == ("file_not_found", at)
    assert await refusal(tenant, **evaluated("file-unknown")) == ("file_not_found", at)
    data = (await tenant.put_file(b"{}\n", purpose="user_data")).id
    assert await refusal(tenant, **evaluated(data)) == ("invalid_file_purpose", at)
    pairs = (await tenant.put_file((json.dumps(PREFERENCE) + "\n").encode() * 2)).id
    assert await refusal(tenant, **evaluated(pairs)) == ("invalid_evaluation_file", at)
    # Whatever the method reads, it is asked for answers.
    chat = (await tenant.put_file()).id
    more = (await tenant.put_file((json.dumps(PREFERENCE) + "\n").encode() * 20)).id
    job = await tenant.create(method="dpo", training_file=more, **evaluated(chat))
    assert job.evaluation.file == chat


async def test_a_held_out_file_stays_while_its_job_lives(tenant: Tenant) -> None:
    file = (await tenant.put_file()).id
    job = await tenant.create(**evaluated(file))
    stub = files_pb2_grpc.FilesServiceStub(tenant.plane.channel)
    request = files_pb2.DeleteFileRequest(file_id=file)
    with pytest.raises(grpc.aio.AioRpcError, match=r"uses this file"):
        await stub.DeleteFile(request, metadata=tenant.metadata)
    await tenant.call("CancelJob", pb.CancelJobRequest(job_id=job.id))
    await stub.DeleteFile(request, metadata=tenant.metadata)


async def test_a_model_that_compares_is_one_of_the_projects(tenant: Tenant) -> None:
    file = (await tenant.put_file()).id
    # The plane has no gateway, so no model can be asked.
    assert (await refusal(tenant, **evaluated(file, grader=JUDGE)))[1] == f"{AT}.grader"


async def test_answers_are_graded_for_a_job_that_asked_for_it(
    tenant: Tenant, agent: ScriptedAgent
) -> None:
    run = await begun(tenant, agent)
    batch = runner_pb2.GradeRequest(batch="1", evaluation=True)
    with pytest.raises(grpc.aio.AioRpcError, match=r"no grader that uses models"):
        await run.call("Grade", pb.RunGradeRequest(batch=batch))


@pytest.mark.parametrize("which", ["training_file", "windlass.evaluation.file"])
async def test_a_file_that_expired_ends_the_job_that_waited(
    plane: JobsPlane, tenant: Tenant, agent: ScriptedAgent, which: str
) -> None:
    ids = {
        "training_file": (await tenant.put_file()).id,
        f"{AT}.file": (await tenant.put_file()).id,
    }
    run = await begun(
        tenant, agent, training_file=ids["training_file"], **evaluated(ids[f"{AT}.file"])
    )
    async with plane.app.database.begin() as connection:
        past = files.update().where(files.c.id == ids[which]).values(expires_at=1)
        await connection.execute(past)
    with pytest.raises(grpc.aio.AioRpcError, match=r"has expired or was deleted"):
        await run.assignment()
    job = await tenant.wait_for(run.job_id, "FAILED")
    assert (job.error.code, job.error.param) == ("file_gone", which)
