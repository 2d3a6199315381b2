"""Checkpoints beyond what the installation keeps go, models and files with them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.support.services import front
from tests.support.services.front import RouteBoard
from tests.support.services.front_jobs import FrontJobs, running_front_jobs
from tests.support.services.jobs_plane import ScriptedRun
from tests.support.waiting import until

from windlass.api.inference.v1 import inference_pb2

KEEP = {"keep_last_checkpoints": 1, "keep_best_checkpoints": 1}
WEIGHTS = "adapter_model.safetensors"


@pytest.fixture
async def stage(database_url: str, tmp_path: Path) -> AsyncIterator[FrontJobs]:
    async with running_front_jobs(database_url, tmp_path / "data", jobs=KEEP) as made:
        yield made


@pytest.fixture
async def plain_stage(database_url: str, tmp_path: Path) -> AsyncIterator[FrontJobs]:
    """An installation that says nothing of checkpoints."""
    async with running_front_jobs(database_url, tmp_path / "data") as made:
        yield made


async def save(stage: FrontJobs, run: ScriptedRun, step: int, loss: float) -> None:
    content = {"adapter_config.json": b"{}", WEIGHTS: b"%d" % step}
    begun = await run.begin_upload("CHECKPOINT", step, content)
    await stage.plane.upload(begun.uploads, content)
    await run.commit(begun.artifact_id, full_valid_loss=loss)


async def steps(client: openai.AsyncOpenAI, job: str) -> list[int]:
    page = await client.fine_tuning.jobs.checkpoints.list(job)
    return sorted(one.step_number for one in page.data)


async def test_the_best_and_the_last_stay_and_the_rest_goes(stage: FrontJobs) -> None:
    key = await stage.key(await stage.project("main"))
    job_id = await stage.create(key)
    await stage.agent.wants(job_id)
    run = stage.agent.run(job_id)
    async with stage.front.openai(key) as client:

        async def models() -> set[str]:
            found = [model.id async for model in client.models.list()]
            return {name.rpartition("-")[2] for name in found if ":ckpt-step-" in name}

        for step, loss in ((1, 2.0), (2, 1.0), (3, 1.5), (4, 3.0)):
            await save(stage, run, step, loss)
            kept = {1: ["1"], 2: ["2"], 3: ["2", "3"], 4: ["2", "4"]}[step]

            async def settled(kept: list[str] = kept) -> bool:
                return await models() == set(kept) and await steps(client, job_id) == [
                    int(name) for name in kept
                ]

            await until(settled)
        page = await client.fine_tuning.jobs.checkpoints.list(job_id)
        for checkpoint in page.data:
            name = checkpoint.fine_tuned_model_checkpoint
            assert (await client.models.retrieve(name)).id == name
    objects, prefix = stage.front.app.objects, None
    async with stage.front.openai(key) as client:
        job = await client.fine_tuning.jobs.retrieve(job_id)
    assert job.model_extra is not None
    project = job.model_extra["windlass"]["project_id"]
    prefix = f"artifacts/{project}/{job_id}/1/checkpoint-"

    async def gone() -> bool:
        return await objects.head(f"{prefix}1/{WEIGHTS}") is None

    await until(gone)
    assert await objects.head(f"{prefix}2/{WEIGHTS}") is not None


async def test_weights_that_an_attempt_would_go_on_from_stay(stage: FrontJobs) -> None:
    key = stage.front.owner_key
    job_id = await stage.create(key)
    await stage.agent.wants(job_id)
    run = stage.agent.run(job_id)
    await save(stage, run, 1, 2.0)
    await run.upload("TRAINING_STATE", 1)
    # Of this step no state is saved yet: an attempt that dies now goes on from step 1.
    await save(stage, run, 2, 1.0)
    await save(stage, run, 3, 1.5)
    async with stage.front.openai(key) as client:

        async def listed() -> bool:
            return await steps(client, job_id) == [1, 2, 3]

        await until(listed)
        await stage.agent.says(job_id, "FAILED", reason="Evicted")
        await stage.agent.wants(job_id, attempt=2)
        again = await stage.agent.run(job_id).assignment()
        assert again.resume.step == 1
        assert WEIGHTS in {file.path for file in again.resume.files}
        run = stage.agent.run(job_id)
        await run.upload("TRAINING_STATE", 3)
        await save(stage, run, 4, 4.0)
        await run.upload("FINAL", 4)
        await run.finish()

        async def settled() -> bool:
            return await steps(client, job_id) == [2, 4]

        await until(settled)


async def test_what_another_project_may_use_stays(stage: FrontJobs) -> None:
    key, guest = await stage.key(await stage.project("main")), await stage.project("guest")
    job_id = await stage.create(key)
    await stage.agent.wants(job_id)
    run = stage.agent.run(job_id)
    await save(stage, run, 1, 9.0)
    async with stage.front.openai(key) as client:

        async def registered() -> str:
            names = [model.id async for model in client.models.list()]
            return next((name for name in names if name.endswith(":ckpt-step-1")), "")

        name = await until(registered)
        async with stage.front.openai(stage.front.owner_key) as owner:
            permissions = owner.fine_tuning.checkpoints.permissions
            (permission,) = (await permissions.create(name, project_ids=[guest])).data
            await save(stage, run, 2, 1.0)
            await save(stage, run, 3, 2.0)
            await save(stage, run, 4, 2.5)

            async def shared_stays() -> bool:
                return await steps(client, job_id) == [1, 2, 4]

            await until(shared_stays)
            await permissions.delete(permission.id, fine_tuned_model_checkpoint=name)
        await save(stage, run, 5, 3.0)

        async def settled() -> bool:
            return await steps(client, job_id) == [2, 5]

        await until(settled)


class EnginesInUse(RouteBoard):
    """Inference, as far as models ask it: which versions an engine was asked for lately."""

    serving = False

    async def FindUses(
        self, request: inference_pb2.FindUsesRequest, context: Any
    ) -> inference_pb2.FindUsesResponse:
        return inference_pb2.FindUsesResponse(engine_ids=["engine-1"] if self.serving else [])


async def test_a_checkpoint_stays_while_an_engine_serves_it(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in answers for inference; its real answer has tests of its own."""
    monkeypatch.setattr(front, "RouteBoard", EnginesInUse)
    async with running_front_jobs(database_url, tmp_path / "data", jobs=KEEP) as stage:
        board = stage.front.board
        assert isinstance(board, EnginesInUse)
        key = stage.front.owner_key
        job_id = await stage.create(key)
        await stage.agent.wants(job_id)
        run = stage.agent.run(job_id)
        async with stage.front.openai(key) as client:

            async def are(*expected: int) -> None:
                async def settled() -> bool:
                    return await steps(client, job_id) == list(expected)

                await until(settled)

            await save(stage, run, 1, 9.0)
            await are(1)
            board.serving = True
            await save(stage, run, 2, 1.0)
            await save(stage, run, 3, 2.0)
            await are(1, 2, 3)
            page = await client.fine_tuning.jobs.checkpoints.list(job_id)
            names = {checkpoint.fine_tuned_model_checkpoint for checkpoint in page.data}

            async def usable() -> bool:
                return names <= {model.id async for model in client.models.list()}

            # A checkpoint is listed before its model is registered.
            await until(usable)
            board.serving = False
            await save(stage, run, 4, 3.0)
            await are(2, 4)


async def test_a_job_may_keep_more_or_less_than_others(stage: FrontJobs) -> None:
    key = stage.front.owner_key
    keep = {"checkpoints": {"keep_last": 2, "keep_best": 0}}
    job_id = await stage.create(key, extra_body={"windlass": keep})
    await stage.agent.wants(job_id)
    run = stage.agent.run(job_id)
    for step, loss in ((1, 0.5), (2, 1.0), (3, 1.5)):
        await save(stage, run, step, loss)
    async with stage.front.openai(key) as client:

        async def settled() -> bool:
            return await steps(client, job_id) == [2, 3]

        await until(settled)


async def test_what_a_job_keeps_must_be_numbers(stage: FrontJobs) -> None:
    for checkpoints, field in (
        ({"keep_last": 0}, ".keep_last"),
        ({"keep_last": True}, ".keep_last"),
        ({"keep_last": 1, "keep_best": -1}, ".keep_best"),
        ({"keep_last": 1, "keep": 1}, ".keep"),
        ({"keep_best": 1}, ".keep_last"),
        ("all", ""),
    ):
        with pytest.raises(openai.BadRequestError) as refused:
            await stage.create(
                stage.front.owner_key, extra_body={"windlass": {"checkpoints": checkpoints}}
            )
        assert refused.value.param == f"windlass.checkpoints{field}"


async def stored_steps(stage: FrontJobs, key: str, job_id: str, attempt: int = 1) -> list[int]:
    """The steps up to 9 of an attempt whose weights are in the store."""
    folder = f"artifacts/{await stage.project_of(key)}/{job_id}/{attempt}"
    heads = {
        step: await stage.front.app.objects.head(f"{folder}/checkpoint-{step}/{WEIGHTS}")
        for step in range(1, 10)
    }
    return [step for step, head in heads.items() if head is not None]


async def model_steps(client: openai.AsyncOpenAI) -> list[int]:
    names = [model.id async for model in client.models.list()]
    return sorted(int(name.rpartition("-")[2]) for name in names if ":ckpt-step-" in name)


async def test_three_and_the_best_stay_where_nobody_says_otherwise(plain_stage: FrontJobs) -> None:
    key = await plain_stage.key(await plain_stage.project("main"))
    job_id = await plain_stage.create(key)
    await plain_stage.agent.wants(job_id)
    run = plain_stage.agent.run(job_id)
    for step, loss in enumerate((2.0, 1.0, 1.5, 1.25, 3.0, 3.5), 1):
        await save(plain_stage, run, step, loss)
    await run.upload("TRAINING_STATE", 6)
    async with plain_stage.front.openai(key) as client:

        async def agree() -> bool:
            return (
                await steps(client, job_id)
                == await model_steps(client)
                == await stored_steps(plain_stage, key, job_id)
                == [2, 4, 5, 6]
            )

        await until(agree)
    await plain_stage.agent.says(job_id, "FAILED", reason="Evicted")
    await plain_stage.agent.wants(job_id, attempt=2)
    again = await plain_stage.agent.run(job_id).assignment()
    assert again.resume.step == 6
    assert WEIGHTS in {file.path for file in again.resume.files}


async def test_a_job_may_keep_all(plain_stage: FrontJobs) -> None:
    key = plain_stage.front.owner_key
    keep = {"checkpoints": {"keep_last": 1000}}
    job_id = await plain_stage.create(key, extra_body={"windlass": keep})
    await plain_stage.agent.wants(job_id)
    run = plain_stage.agent.run(job_id)
    for step in range(1, 7):
        await save(plain_stage, run, step, 1.0)
    async with plain_stage.front.openai(key) as client:

        async def registered() -> bool:
            return await model_steps(client) == [1, 2, 3, 4, 5, 6]

        await until(registered)
        assert await steps(client, job_id) == [1, 2, 3, 4, 5, 6]


async def test_weights_that_a_later_attempt_saved_again_go_with_their_state(
    plain_stage: FrontJobs,
) -> None:
    key = await plain_stage.key(await plain_stage.project("main"))
    job_id = await plain_stage.create(key)
    await plain_stage.agent.wants(job_id)
    run = plain_stage.agent.run(job_id)
    await run.upload("TRAINING_STATE", 1)
    await save(plain_stage, run, 2, 1.0)
    await plain_stage.agent.says(job_id, "FAILED", reason="Evicted")
    await plain_stage.agent.wants(job_id, attempt=2)
    run = plain_stage.agent.run(job_id)
    await save(plain_stage, run, 2, 1.0)
    await run.upload("TRAINING_STATE", 2)
    assert await stored_steps(plain_stage, key, job_id, attempt=2) == [2]
    await save(plain_stage, run, 3, 1.0)
    await run.upload("TRAINING_STATE", 3)

    async def gone() -> bool:
        return await stored_steps(plain_stage, key, job_id, attempt=2) == [3]

    await until(gone)
    assert await stored_steps(plain_stage, key, job_id) == [2]
