"""Permissions of checkpoints through openai-python: other projects use them, nobody else does."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import grpc
import openai
import pytest
from tests.support.clients.audit_entries import entries, newest
from tests.support.clients.openai_admin import administering
from tests.support.factories.feather import FEATHER
from tests.support.services.front_jobs import FrontJobs, running_front_jobs
from tests.support.services.jobs_plane import CHAT
from tests.support.waiting import until

CHATS = (json.dumps(CHAT) + "\n").encode() * 20
NEVER = "ft:tiny:org-never:x:00000000"


@dataclass
class Shared:
    """A checkpoint of the project `mine`, and keys of those who may and may not have it."""

    stage: FrontJobs
    name: str
    theirs: str
    mine_key: str
    their_key: str
    third_key: str
    stranger_key: str

    def client(self, key: str) -> openai.AsyncOpenAI:
        return self.stage.front.openai(key)

    async def sees(self, key: str) -> bool:
        async with self.client(key) as client:
            listed = self.name in [model.id async for model in client.models.list()]
            try:
                found = (await client.models.retrieve(self.name)).id == self.name
            except openai.NotFoundError:
                found = False
        assert listed == found
        return found


@pytest.fixture
async def shared(database_url: str, tmp_path: Path) -> AsyncIterator[Shared]:
    async with running_front_jobs(database_url, tmp_path / "data") as stage:
        mine, theirs = await stage.project("mine"), await stage.project("theirs")
        key = await stage.key(mine)
        job = await stage.create(key)
        await stage.agent.wants(job)
        run = stage.agent.run(job)
        await run.upload("CHECKPOINT", 1)

        async def checkpoint() -> str:
            async with stage.front.openai(key) as client:
                names = [model.id async for model in client.models.list()]
            return next((name for name in names if name.endswith(":ckpt-step-1")), "")

        yield Shared(
            stage=stage,
            name=await until(checkpoint),
            theirs=theirs,
            mine_key=key,
            their_key=await stage.key(theirs),
            third_key=await stage.key(await stage.project("third")),
            stranger_key=await stage.strange_key(),
        )


async def test_a_project_uses_a_checkpoint_for_as_long_as_it_may(shared: Shared) -> None:
    owner = shared.client(shared.stage.front.owner_key)
    permissions = owner.fine_tuning.checkpoints.permissions
    assert not await shared.sees(shared.their_key)
    made = (await permissions.create(shared.name, project_ids=[shared.theirs])).data
    assert [(one.object, one.project_id) for one in made] == [
        ("checkpoint.permission", shared.theirs)
    ]
    again = (await permissions.create(shared.name, project_ids=[shared.theirs])).data
    assert [one.id for one in again] == [one.id for one in made]
    assert await shared.sees(shared.their_key)
    assert await shared.sees(shared.mine_key)
    for key in (shared.third_key, shared.stranger_key):
        assert not await shared.sees(key)
    async with shared.client(shared.their_key) as client:
        # It may be used, and that is all.
        with pytest.raises(openai.PermissionDeniedError):
            await client.models.delete(shared.name)
    assert (await permissions.delete(made[0].id, fine_tuned_model_checkpoint=shared.name)).deleted
    assert not await shared.sees(shared.their_key)
    assert await shared.sees(shared.mine_key)
    async with administering(shared.stage.front) as admin:
        assert (await newest(admin, "checkpoint.permission.deleted")).actor
        assert await entries(admin, event_types=["checkpoint.permission.created"])
    with pytest.raises(openai.NotFoundError):
        await permissions.delete(made[0].id, fine_tuned_model_checkpoint=shared.name)
    (anew,) = (await permissions.create(shared.name, project_ids=[shared.theirs])).data
    assert anew.id != made[0].id
    assert await shared.sees(shared.their_key)
    # A model that is deleted is gone for everyone.
    async with shared.client(shared.mine_key) as client:
        await client.models.delete(shared.name)
    assert not await shared.sees(shared.their_key)
    with pytest.raises(openai.NotFoundError):
        await permissions.list(shared.name)
    await owner.close()


async def test_permissions_are_listed_in_pages(shared: Shared) -> None:
    projects = [await shared.stage.project(f"p{number}") for number in range(5)]
    async with shared.client(shared.stage.front.owner_key) as owner:
        permissions = owner.fine_tuning.checkpoints.permissions
        await permissions.create(shared.name, project_ids=projects)

        async def listed(order: Literal["ascending", "descending"]) -> list[str]:
            pages = permissions.list(shared.name, limit=2, order=order)
            return [one.project_id async for one in pages]

        assert await listed("ascending") == projects
        assert await listed("descending") == projects[::-1]
        (one,) = (await permissions.list(shared.name, project_id=projects[3])).data
        assert one.project_id == projects[3]
        with pytest.raises(openai.NotFoundError):
            await permissions.list(shared.name, after="cp_never")


async def test_only_owners_of_the_organization_share_and_only_within_it(shared: Shared) -> None:
    stage = shared.stage
    foreign = await stage.project_of(shared.stranger_key)
    async with shared.client(stage.front.owner_key) as owner:
        permissions = owner.fine_tuning.checkpoints.permissions
        (made,) = (await permissions.create(shared.name, project_ids=[shared.theirs])).data
        for wrong in ("proj_never", foreign):
            with pytest.raises(openai.NotFoundError) as unknown:
                await permissions.create(shared.name, project_ids=[wrong])
            assert unknown.value.param == "project_ids"
        for name in (NEVER, "tiny"):
            with pytest.raises(openai.NotFoundError):
                await permissions.create(name, project_ids=[shared.theirs])
        with pytest.raises(openai.BadRequestError):
            await permissions.create(shared.name, project_ids=[])
    for key in (shared.mine_key, shared.their_key, shared.stranger_key):
        async with shared.client(key) as client:
            theirs = client.fine_tuning.checkpoints.permissions
            attempts: list[Callable[[], Awaitable[object]]] = [
                partial(theirs.create, shared.name, project_ids=[shared.theirs]),
                partial(theirs.list, shared.name),
                partial(theirs.delete, made.id, fine_tuned_model_checkpoint=shared.name),
            ]
            for attempt in attempts:
                with pytest.raises(openai.PermissionDeniedError):
                    await attempt()


async def test_another_organizations_owner_finds_nothing(shared: Shared) -> None:
    key = await shared.stage.strange_owner()
    async with shared.client(key) as client:
        permissions = client.fine_tuning.checkpoints.permissions
        for name in (shared.name, NEVER):
            with pytest.raises(openai.NotFoundError):
                await permissions.create(name, project_ids=[shared.theirs])
            with pytest.raises(openai.NotFoundError):
                await permissions.list(name)
            with pytest.raises(openai.NotFoundError):
                await permissions.delete("cp_x", fine_tuned_model_checkpoint=name)


async def test_a_job_that_waits_fails_clearly_once_it_may_not_have_its_model(
    shared: Shared,
) -> None:
    stage = shared.stage
    # A checkpoint of complete weights, which another project may train on.
    async with shared.client(shared.mine_key) as client:
        file = await client.files.create(file=("x.jsonl", CHATS), purpose="fine-tune")
        job = await client.fine_tuning.jobs.create(
            model="tiny",
            training_file=file.id,
            extra_body={"windlass": {"config": {"lora": False}}},
        )
        await stage.agent.wants(job.id)
        await stage.agent.run(job.id).upload("CHECKPOINT", 1, FEATHER)

        async def whole() -> str:
            names = [model.id async for model in client.models.list()]
            steps = [name for name in names if name.endswith(":ckpt-step-1")]
            return next((name for name in steps if name != shared.name), "")

        name = await until(whole)
    async with shared.client(stage.front.owner_key) as owner:
        permissions = owner.fine_tuning.checkpoints.permissions
        (made,) = (await permissions.create(name, project_ids=[shared.theirs])).data
        async with shared.client(shared.their_key) as client:
            file = await client.files.create(file=("x.jsonl", CHATS), purpose="fine-tune")
            waiting = await client.fine_tuning.jobs.create(model=name, training_file=file.id)
            await permissions.delete(made.id, fine_tuned_model_checkpoint=name)
            await stage.agent.wants(waiting.id)
            with pytest.raises(grpc.aio.AioRpcError):
                await stage.agent.run(waiting.id).assignment()
            job = await client.fine_tuning.jobs.retrieve(waiting.id)
            assert job.status == "failed"
            assert job.error is not None
            assert (job.error.code, job.error.param) == ("model_not_found", "model")
            assert "may no longer use it" in job.error.message
            with pytest.raises(openai.BadRequestError) as refused:
                await client.fine_tuning.jobs.create(model=name, training_file=file.id)
            assert refused.value.param == "model"
