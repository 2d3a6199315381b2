"""Groups as members of a project by openai-python: a group that has roles there."""

import time
from collections.abc import AsyncIterator
from pathlib import Path

import openai
import pytest
from openai.resources.admin.organization import AsyncOrganization
from tests.support.clients.openai_admin import administering, foreign_key, strict
from tests.support.services.front import running_front
from tests.support.services.member_keys import SECONDS, Key, join, project
from tests.support.waiting import until


@pytest.fixture
async def owner(database_url: str, tmp_path: Path) -> AsyncIterator[Key]:
    async with running_front(database_url, tmp_path / "data") as front:
        yield Key(front, "", front.owner_key, {})


@pytest.fixture
async def admin(owner: Key) -> AsyncIterator[AsyncOrganization]:
    async with administering(owner.front) as client:
        yield client


async def role_of(admin: AsyncOrganization, room: str, *permissions: str) -> str:
    name = f"r{time.time_ns()}"
    made = await admin.projects.roles.create(room, role_name=name, permissions=permissions)
    return made.id


async def may(key: Key) -> set[str]:
    return await key.permissions()


async def test_a_group_joins_a_project_with_a_role_and_leaves(
    admin: AsyncOrganization, owner: Key
) -> None:
    room, groups = await project(owner), admin.projects.groups
    keep, read = [await role_of(admin, room, one) for one in ("secrets.write", "members.read")]
    await join(owner, "ann", "project_member", room)
    first, second = [(await admin.groups.create(name=name)).id for name in ("Keepers", "Others")]
    await admin.groups.users.create(first, user_id="ann")
    joined = strict(await groups.create(room, group_id=first, role=keep))
    assert (joined.project_id, joined.group_id, joined.group_name) == (room, first, "Keepers")
    # A second role is no second membership.
    assert strict(await groups.create(room, group_id=first, role=read)) == joined
    assert strict(await groups.retrieve(first, project_id=room)) == joined
    await groups.create(room, group_id=second, role=read)
    up = [strict(one).group_id async for one in groups.list(room, limit=1)]
    assert up == sorted([first, second])
    assert [one.group_id async for one in groups.list(room, limit=1, order="desc")] == up[::-1]
    scopes = ["secrets.write", "members.read", "secrets.read"]
    key = await owner.make("project_owner", project_id=room, user_id="ann", scopes=scopes)
    assert await may(key) >= set(scopes)
    assert strict(await groups.delete(first, project_id=room)).deleted
    left = {"secrets.read", "self.read"}
    await until(lambda: may(key), SECONDS, holds=lambda found: found == left)
    assert [one.group_id async for one in groups.list(room)] == [second]
    for call in (groups.retrieve, groups.delete):
        with pytest.raises(openai.NotFoundError):
            await call(first, project_id=room)
    with pytest.raises(openai.NotFoundError):
        await groups.retrieve(second, project_id=room, group_type="tenant_group")
    with pytest.raises(openai.NotFoundError):
        await groups.create(room, group_id=second, role="role_none")
    with pytest.raises(openai.NotFoundError):
        await groups.create(room, group_id="group_none", role=read)


async def test_nobody_removes_a_group_with_more_power_than_theirs(
    admin: AsyncOrganization, owner: Key
) -> None:
    room, other = await project(owner), await project(owner)
    boss = await join(owner, "boss", "project_owner", room)
    group = (await admin.groups.create(name="Keepers")).id
    role = await role_of(admin, room, "secrets.write")
    await admin.projects.groups.create(room, group_id=group, role=role)
    scopes = ["members.read", "members.write"]
    narrow = await boss.make("project_owner", project_id=room, scopes=scopes)
    path = f"/v1/organization/projects/{room}/groups/{group}"
    ann = await join(owner, "ann", "project_member", room)
    for key in (narrow, ann):
        assert (await key.ask("DELETE", path)).status_code == 403
    assert (await ann.ask("GET", path)).status_code == 403
    elsewhere = path.replace(room, other)
    assert (await boss.ask("GET", elsewhere)).status_code == 403
    assert (await owner.ask("GET", elsewhere)).status_code == 404
    stranger = Key(owner.front, "", await foreign_key(owner.front), {})
    for method in ("GET", "DELETE"):
        said = {
            (answer.status_code, answer.text.replace(name, "…"))
            for name in (room, "proj_none")
            for answer in [await stranger.ask(method, path.replace(room, name))]
        }
        assert len(said) == 1
        assert next(iter(said))[0] == 404
    assert (await boss.ask("DELETE", path)).status_code == 200
