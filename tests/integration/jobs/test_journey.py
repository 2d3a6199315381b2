"""A job from its creation to its model, over the real wire."""

import asyncio
import json
import time
from urllib.parse import parse_qs, urlsplit

import grpc
import pytest
import sqlalchemy as sa
from tests.support.services.jobs_plane import JobsPlane, ScriptedAgent, Tenant
from tests.support.waiting import PATIENCE, until

from windlass.api.files.v1 import files_pb2, files_pb2_grpc
from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.api.models.v1 import models_pb2, models_pb2_grpc
from windlass.api.runner.v1 import runner_pb2
from windlass.jobs.storage.tables import outbox
from windlass.usage.store import records


async def usage(plane: JobsPlane) -> dict[str, int]:
    async with plane.app.database.autocommit() as connection:
        return {row.id: row.input_tokens for row in await connection.execute(records.select())}


async def resolve(plane: JobsPlane, tenant: Tenant, name: str) -> models_pb2.ResolvedModel:
    stub = plane.app.clients.stub(models_pb2_grpc.ModelsInternalServiceStub)
    return await stub.ResolveModel(
        models_pb2.ResolveModelRequest(project_id=tenant.project, id=name)
    )


async def test_a_job_becomes_a_model(
    plane: JobsPlane, tenant: Tenant, agent: ScriptedAgent
) -> None:
    job = await tenant.create(
        suffix="pirate", seed=7, metadata={"team": "a"},
        hyperparameters=b'{"n_epochs": 2}', request_id="once",
    )  # fmt: skip
    assert job.state == pb.JOB_STATE_QUEUED
    assert json.loads(job.config)["epochs"] == 2
    assert (job.backend, job.framework, job.seed) == ("trl", "trl", 7)

    workload = await agent.wants(job.id)
    assert (workload.job.attempt, workload.owner) == (1, "jobs")
    await agent.says(job.id, "PENDING", queue_position=2, message="Waiting for a slot")
    # It was queued before the agent said so.
    waiting = await until(lambda: tenant.job(job.id), holds=lambda found: found.queue.position)
    assert waiting.state == pb.JOB_STATE_QUEUED
    assert (waiting.queue.position, waiting.queue.reason) == (2, "Waiting for a slot")
    await agent.says(job.id, "RUNNING")
    await tenant.wait_for(job.id, "RUNNING")

    run = agent.run(job.id)
    assignment = await run.assignment()
    assert assignment.base_model == "tiny"
    assert {file.path for file in assignment.model_files} == {
        "config.json", "tokenizer.json", "model.safetensors",
    }  # fmt: skip
    assert assignment.training_file.sha256
    assert not assignment.HasField("validation_file")
    assert not assignment.HasField("resume")

    await run.step(1, tokens=100)
    await run.upload("CHECKPOINT", 5)
    await run.upload("TRAINING_STATE", 5, {"optimizer.pt": b"state"})
    await run.step(10, tokens=1000)
    await run.upload("RESULT_FILE", 10, {"step_metrics.csv": b"step,train_loss\n"})
    await run.upload("FINAL", 10)
    await run.finish(trained_tokens=1200)
    await run.finish(trained_tokens=1200)  # a repeat is no error

    done = await tenant.wait_for(job.id, "SUCCEEDED")
    base, organization, suffix = done.fine_tuned_model.split(":")[1:4]
    assert (base, organization, suffix) == ("tiny", "acme1", "pirate")
    assert done.trained_tokens == 1200
    assert done.finished_at >= done.created_at > 0
    assert (done.progress.step, done.progress.total_steps) == (10, 10)

    tuned = await resolve(plane, tenant, done.fine_tuned_model)
    assert tuned.model.kind == models_pb2.MODEL_KIND_ADAPTER
    assert tuned.base.model.id == "tiny"
    page = await tenant.call("ListCheckpoints", pb.ListCheckpointsRequest(job_id=job.id))
    (checkpoint,) = page.checkpoints
    assert checkpoint.step_number == 5
    assert checkpoint.metrics["train_loss"] == 1.25
    await resolve(plane, tenant, checkpoint.fine_tuned_model_checkpoint)

    files = files_pb2_grpc.FilesServiceStub(plane.channel)
    result = await files.GetFile(
        files_pb2.GetFileRequest(file_id=done.result_files[0]), metadata=tenant.metadata
    )
    assert (result.filename, result.purpose) == ("step_metrics.csv", "fine-tune-results")
    await until(lambda: _all_delivered(plane))
    assert await usage(plane) == {f"{job.id}/1": 1200}
    messages = await tenant.messages(job.id)
    assert messages[0] == f"Created fine-tuning job: {job.id}"
    assert messages[-2:] == [
        f"New fine-tuned model created: {done.fine_tuned_model}",
        "The job has successfully completed",
    ]
    # Training states are of no use any more; the models' files stay.
    left = [item.key async for item in plane.app.objects.list("artifacts/")]
    assert not [key for key in left if "training-state" in key]
    assert any("final-10" in key for key in left)


async def _all_delivered(plane: JobsPlane) -> bool:
    query = sa.select(sa.func.count()).where(~outbox.c.done)
    async with plane.app.database.autocommit() as connection:
        return (await connection.execute(query)).scalar_one() == 0


async def test_a_repeated_request_answers_the_first_job(tenant: Tenant) -> None:
    file = (await tenant.put_file()).id
    jobs = await asyncio.gather(
        *(tenant.create(training_file=file, request_id="same") for _ in range(20))
    )
    assert len({job.id for job in jobs}) == 1
    other = await tenant.create(training_file=file)
    assert other.id != jobs[0].id


async def test_a_job_without_a_cluster_waits_and_says_why(plane: JobsPlane, tenant: Tenant) -> None:
    job = await tenant.create()

    async def explained() -> bool:
        return (await tenant.job(job.id)).queue.reason == "No live cluster has the backend trl"

    await until(explained)
    agent = await plane.agent()
    await agent.wants(job.id)
    await agent.close()


async def test_cancelling_a_queued_job_is_done_at_once(tenant: Tenant) -> None:
    job = await tenant.create()
    cancelled = await tenant.call("CancelJob", pb.CancelJobRequest(job_id=job.id))
    assert cancelled.state == pb.JOB_STATE_CANCELLED
    again = await tenant.call("CancelJob", pb.CancelJobRequest(job_id=job.id))
    assert again == cancelled


async def test_cancelling_a_running_job_waits_for_the_agent(
    plane: JobsPlane, tenant: Tenant, agent: ScriptedAgent
) -> None:
    job = await tenant.create()
    await agent.wants(job.id)
    await agent.says(job.id, "RUNNING")
    await tenant.wait_for(job.id, "RUNNING")
    run = agent.run(job.id)
    await run.step(3, tokens=77)
    cancelling = await tenant.call("CancelJob", pb.CancelJobRequest(job_id=job.id))
    assert cancelling.state == pb.JOB_STATE_CANCELLING
    await agent.wants(job.id, "DELETED")
    await agent.says(job.id, "STOPPED")
    await tenant.wait_for(job.id, "CANCELLED")
    await until(lambda: _all_delivered(plane))
    assert await usage(plane) == {f"{job.id}/1": 77}


@pytest.mark.parametrize("drain_seconds", [0.5])
async def test_a_stop_that_nobody_confirms_is_settled(tenant: Tenant, agent: ScriptedAgent) -> None:
    job = await tenant.create()
    await agent.wants(job.id)
    await agent.says(job.id, "RUNNING")
    await tenant.wait_for(job.id, "RUNNING")
    await tenant.call("CancelJob", pb.CancelJobRequest(job_id=job.id))
    await tenant.wait_for(job.id, "CANCELLED")


async def test_a_paused_job_goes_on_from_its_state(tenant: Tenant, agent: ScriptedAgent) -> None:
    job = await tenant.create()
    await agent.wants(job.id)
    await agent.says(job.id, "RUNNING")
    await tenant.wait_for(job.id, "RUNNING")
    run = agent.run(job.id)
    await run.upload("CHECKPOINT", 4)
    await run.upload("TRAINING_STATE", 4, {"optimizer.pt": b"early"})
    await tenant.call("PauseJob", pb.PauseJobRequest(job_id=job.id))
    await agent.wants(job.id, "STOPPED")
    await run.upload("CHECKPOINT", 6)
    await run.upload("TRAINING_STATE", 6, {"optimizer.pt": b"late"})
    await run.finish("STOPPED")
    paused = await tenant.wait_for(job.id, "PAUSED")
    assert paused.cluster_id == ""
    await agent.wants(job.id, "DELETED")

    await tenant.call("ResumeJob", pb.ResumeJobRequest(job_id=job.id))
    workload = await agent.wants(job.id)
    assert workload.job.attempt == 2
    resume = (await agent.run(job.id).assignment()).resume
    assert resume.step == 6
    assert {file.path for file in resume.files} == {
        "optimizer.pt", "adapter_config.json", "adapter_model.safetensors",
    }  # fmt: skip


async def test_an_inputs_url_opens_for_a_minute(
    plane: JobsPlane, tenant: Tenant, agent: ScriptedAgent
) -> None:
    """An output's URL lives longer: a model that took hours is not asked for again and again."""
    job = await tenant.create()
    await agent.wants(job.id)
    run = agent.run(job.id)
    before = time.time()
    assignment = await run.assignment()
    begun = await run.begin_upload("CHECKPOINT", 4, {"adapter_model.safetensors": b"x"})
    after = time.time()
    settings = plane.app.settings.objects
    inputs = [assignment.training_file, *assignment.model_files]
    for files, seconds in ((inputs, 60), (begun.uploads, settings.presign_seconds)):
        for file in files:
            (expires,) = parse_qs(urlsplit(file.url).query)["expires"]
            assert before - 1 <= int(expires) - seconds <= after + 1, file.path


async def test_a_killed_attempt_is_tried_again_and_the_old_one_is_refused(
    tenant: Tenant, agent: ScriptedAgent
) -> None:
    job = await tenant.create()
    await agent.wants(job.id)
    await agent.says(job.id, "RUNNING")
    old = agent.run(job.id)
    await old.step(1)
    await agent.says(job.id, "FAILED", reason="ProcessKilled", message="killed by signal 9")
    await agent.wants(job.id, attempt=2)
    for attempt in (
        old.assignment, lambda: old.step(2), old.finish, lambda: old.log(0, b"x"),
        lambda: old.begin_upload("FINAL", 1, {"a": b"b"}), lambda: old.commit("artifact_1"),
    ):  # fmt: skip
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await attempt()
        assert dict(refused.value.trailing_metadata())["windlass-reason"] == "attempt_superseded"
    await agent.run(job.id).assignment()


async def test_a_job_that_keeps_dying_fails_with_the_reason(
    tenant: Tenant, agent: ScriptedAgent
) -> None:
    job = await tenant.create()
    for attempt in (1, 2, 3):
        await agent.wants(job.id, attempt=attempt)
        await agent.says(job.id, "FAILED", reason="ProcessKilled", message="Signal 9.")
    failed = await tenant.wait_for(job.id, "FAILED")
    assert failed.error.code == "process_killed"
    assert "tried 3 times" in failed.error.message


async def test_what_the_runner_says_is_the_error(tenant: Tenant, agent: ScriptedAgent) -> None:
    job = await tenant.create()
    await agent.wants(job.id)
    await agent.run(job.id).finish(
        "FAILED", error_code="invalid_training_file", error_message="Line 3: bad.",
        error_param="training_file",
    )  # fmt: skip
    failed = await tenant.wait_for(job.id, "FAILED")
    assert (failed.error.code, failed.error.message, failed.error.param) == (
        "invalid_training_file", "Line 3: bad.", "training_file",
    )  # fmt: skip
    await agent.wants(job.id, "DELETED")


async def test_success_without_a_model_is_refused(tenant: Tenant, agent: ScriptedAgent) -> None:
    job = await tenant.create()
    await agent.wants(job.id)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await agent.run(job.id).finish()
    assert dict(refused.value.trailing_metadata())["windlass-reason"] == "artifact_missing"


async def test_a_file_that_is_still_inspected_holds_the_job(
    plane: JobsPlane, tenant: Tenant, agent: ScriptedAgent
) -> None:
    line = json.dumps(CHAT_LINE) + "\n"
    content = line.encode() * (9 * 2**20 // len(line))
    good, bad = await asyncio.gather(
        tenant.put_file(content), tenant.put_file(content + b"{not json\n")
    )
    # An owner of our own: an inspection that is under way applies nothing.
    held_back = "lease_owner = 'test', lease_until = now() + interval '1 hour'"
    await _files(plane, f"status = 'uploaded', {held_back}")
    held = await tenant.create(training_file=good.id)
    doomed = await tenant.create(training_file=bad.id)
    assert (held.state, doomed.state) == (pb.JOB_STATE_VALIDATING, pb.JOB_STATE_VALIDATING)
    assert not held.config
    await _files(plane, "lease_until = NULL")
    plane.app.wake.touch("files")
    await agent.wants(held.id)
    failed = await tenant.wait_for(doomed.id, "FAILED", seconds=30)
    assert (failed.error.code, failed.error.param) == ("invalid_training_file", "training_file")
    assert "line" in failed.error.message.lower()


async def _files(plane: JobsPlane, values: str) -> None:
    async with plane.app.database.begin() as connection:
        await connection.execute(sa.text(f"UPDATE files_files SET {values}"))


CHAT_LINE = {
    "messages": [
        {"role": "user", "content": "word " * 200},
        {"role": "assistant", "content": "word " * 200},
    ]
}


async def test_a_cluster_that_goes_silent_loses_the_job_to_another(
    plane: JobsPlane, tenant: Tenant
) -> None:
    east = await plane.agent("east")
    job = await tenant.create()
    await east.wants(job.id)
    await east.says(job.id, "RUNNING")
    await east.close()
    await _silence(plane, east)
    west = await plane.agent("west")
    workload = await west.wants(job.id)
    assert workload.job.attempt == 2
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await east.run(job.id, attempt=1).step(1)
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    # Back again, the first is told to stop what it has.
    await east.connect()
    await east.wants(job.id, "DELETED")
    await east.close()
    await west.close()


async def _silence(plane: JobsPlane, agent: ScriptedAgent) -> None:
    """As if the last heartbeat had been a minute ago."""
    async with plane.app.database.begin() as connection:
        await connection.execute(
            sa.text(
                "UPDATE clusters_clusters SET last_seen_at = now() - interval '1 minute' "
                "WHERE id = :id"
            ),
            {"id": agent.cluster_id},
        )


async def test_a_job_of_an_unregistered_cluster_goes_elsewhere(
    plane: JobsPlane, tenant: Tenant
) -> None:
    east = await plane.agent("east")
    job = await tenant.create()
    await east.wants(job.id)
    west = await plane.agent("west")
    from windlass.api.clusters.v1 import clusters_pb2, clusters_pb2_grpc

    stub = clusters_pb2_grpc.ClustersServiceStub(plane.channel)
    await stub.UnregisterCluster(
        clusters_pb2.UnregisterClusterRequest(cluster_id=east.cluster_id),
        metadata=tenant.metadata,
    )
    assert (await west.wants(job.id)).job.attempt == 2
    await east.close()
    await west.close()


async def test_events_are_stored_once_and_in_order(tenant: Tenant, agent: ScriptedAgent) -> None:
    job = await tenant.create()
    await agent.wants(job.id)
    run = agent.run(job.id)
    told = [
        runner_pb2.RunEvent(seq=seq, at_ms=1, level=runner_pb2.LEVEL_INFO, message=f"told {seq}")
        for seq in range(1, 51)
    ]
    for batch in (told[:20], told[:20], told[10:40], told[30:], told):
        await run.report(*batch)
    messages = [text for text in await tenant.messages(job.id) if text.startswith("told")]
    assert messages == [f"told {seq}" for seq in range(1, 51)]


async def test_events_and_log_are_followed_to_the_end(tenant: Tenant, agent: ScriptedAgent) -> None:
    job = await tenant.create()
    stub = tenant.plane.jobs

    async def events() -> list[str]:
        request = pb.WatchEventsRequest(job_id=job.id)
        stream = stub.WatchEvents(request, metadata=tenant.metadata)
        return [event.message async for event in stream]

    async def log() -> bytes:
        request = pb.ReadLogRequest(job_id=job.id, follow=True)
        stream = stub.ReadLog(request, metadata=tenant.metadata)
        return b"".join([chunk.data async for chunk in stream])

    async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
        followed, read = group.create_task(events()), group.create_task(log())
        await agent.wants(job.id)
        run = agent.run(job.id)
        assert await run.log(0, b"one\n") == 4
        assert await run.log(0, b"one\ntwo\n") == 8
        assert await run.log(20, b"after a gap") == 8
        assert await run.log(0, b"one\n") == 8
        await run.step(1)
        await run.upload("FINAL", 1)
        await run.finish()
        assert await run.log(8, b"three\n") == 14
    assert read.result() == b"one\ntwo\nthree\n"
    assert followed.result() == await tenant.messages(job.id)
    assert followed.result()[-1] == "The job has successfully completed"


async def test_an_upload_must_be_what_was_promised(
    plane: JobsPlane, tenant: Tenant, agent: ScriptedAgent
) -> None:
    job = await tenant.create()
    await agent.wants(job.id)
    run = agent.run(job.id)
    content = {"adapter_model.safetensors": b"weights", "adapter_config.json": b"{}"}
    begun = await run.begin_upload("FINAL", 3, content)
    assert len(begun.uploads) == 2
    await plane.upload(begun.uploads[:1], content)
    again = await run.begin_upload("FINAL", 3, content)
    assert again.artifact_id == begun.artifact_id
    assert [file.path for file in again.uploads] == ["adapter_model.safetensors"]
    await plane.upload(again.uploads, {"adapter_model.safetensors": b"WEIGHTS"})
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await run.commit(begun.artifact_id)
    assert dict(refused.value.trailing_metadata())["windlass-reason"] == "upload_incomplete"
    await plane.upload(again.uploads, content)
    await run.commit(begun.artifact_id)
    await run.commit(begun.artifact_id)
    assert not (await run.begin_upload("FINAL", 3, content)).uploads
    for path in ("../escape", "/absolute", "a//b", "a/../b", "", "a\0b", ".hidden", "x" * 300):
        with pytest.raises(grpc.aio.AioRpcError) as bad:
            await run.begin_upload("FINAL", 4, {path: b"x"})
        assert bad.value.code() is grpc.StatusCode.INVALID_ARGUMENT
