"""Groups: their roles are those of all who are in them, and nobody gains by joining one alone."""

import asyncio
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

SCOPES = ["secrets.write", "secrets.read"]


@pytest.fixture
async def owner(database_url: str, tmp_path: Path) -> AsyncIterator[Key]:
    async with running_front(database_url, tmp_path / "data") as front:
        yield Key(front, "", front.owner_key, {})


@pytest.fixture
async def admin(owner: Key) -> AsyncIterator[AsyncOrganization]:
    async with administering(owner.front) as client:
        yield client


async def may(key: Key) -> set[str]:
    return await key.permissions()


async def has(key: Key, permission: str, *, so: bool) -> None:
    await until(lambda: may(key), SECONDS, holds=lambda found: (permission in found) == so)


async def made(admin: AsyncOrganization, room: str, *permissions: str) -> str:
    name = f"r{time.time_ns()}"
    role = await admin.projects.roles.create(room, role_name=name, permissions=permissions)
    return role.id


async def test_groups_and_who_is_in_them(admin: AsyncOrganization, owner: Key) -> None:
    groups = admin.groups
    group = strict(await groups.create(name="Research"))
    assert (group.name, group.group_type, group.is_scim_managed) == ("Research", "group", False)
    assert strict(await groups.retrieve(group.id)) == group
    assert strict(await groups.update(group.id, name="Search")).name == "Search"
    second = await groups.create(name="Second")
    with pytest.raises(openai.ConflictError):
        await groups.update(second.id, name="Search")
    upward = [strict(one).id async for one in groups.list(limit=1)]
    assert sorted(upward) == sorted([group.id, second.id])
    assert [one.id async for one in groups.list(limit=1, order="desc")] == upward[::-1]

    for user in ("ann@example.com", "bob"):
        await owner.put(user, "organization_reader")
        joined = strict(await groups.users.create(group.id, user_id=user))
        assert (joined.group_id, joined.user_id) == (group.id, user)
    await groups.users.create(group.id, user_id="bob")
    listed = [strict(one) async for one in groups.users.list(group.id, limit=1)]
    assert [(one.id, one.email) for one in listed] == [
        ("ann@example.com", "ann@example.com"),
        ("bob", None),
    ]
    back = [one.id async for one in groups.users.list(group.id, limit=1, order="desc")]
    assert back == ["bob", "ann@example.com"]
    assert strict(await groups.users.retrieve("bob", group_id=group.id)).user_type == "user"
    assert strict(await groups.users.delete("bob", group_id=group.id)).deleted
    for call in (groups.users.retrieve, groups.users.delete):
        with pytest.raises(openai.NotFoundError):
            await call("bob", group_id=group.id)
    with pytest.raises(openai.BadRequestError):
        await groups.users.create(group.id, user_id="nobody")
    # Who leaves the organization is in none of its groups.
    await admin.users.delete("ann@example.com")
    await owner.put("ann@example.com", "organization_reader")
    assert [one async for one in groups.users.list(group.id)] == []
    assert strict(await groups.delete(group.id)).deleted
    with pytest.raises(openai.NotFoundError):
        await groups.retrieve(group.id)


async def test_a_group_has_roles_for_all_who_are_in_it(
    admin: AsyncOrganization, owner: Key
) -> None:
    room = await project(owner)
    role = await made(admin, room, "secrets.write")
    await join(owner, "ann", "project_member", room)
    await join(owner, "bob", "project_member", room)
    group = (await admin.groups.create(name="Keepers")).id
    await admin.groups.users.create(group, user_id="ann")
    held = f"/v1/projects/{room}/groups/{group}/roles"
    given = await owner.ask("POST", held, json={"role_id": role})
    assert given.status_code == 200, given.text
    assert given.json()["group"]["name"] == "Keepers"
    keys = {
        user: await owner.make("project_owner", project_id=room, user_id=user, scopes=SCOPES)
        for user in ("ann",)
    }
    refused = await owner.try_make("project_owner", project_id=room, user_id="bob", scopes=SCOPES)
    assert refused.status_code == 400
    assert "secrets.write" in await may(keys["ann"])
    shown = (await owner.ask("GET", f"{held}/{role}")).json()
    assert shown["assignment_sources"] == [{"principal_id": group, "principal_type": "group"}]

    await admin.groups.users.create(group, user_id="bob")
    bob = await owner.make("project_owner", project_id=room, user_id="bob", scopes=SCOPES)
    await admin.groups.users.delete("bob", group_id=group)
    await has(bob, "secrets.write", so=False)
    await admin.groups.users.create(group, user_id="bob")
    await has(bob, "secrets.write", so=True)
    await owner.ask("POST", held, json={"role_id": role, "expires_in_seconds": 1})
    await until(lambda: may(bob), 3, holds=lambda found: "secrets.write" not in found)
    await owner.ask("POST", held, json={"role_id": role})
    await has(bob, "secrets.write", so=True)
    assert (await owner.ask("DELETE", f"{held}/{role}")).status_code == 200
    await has(bob, "secrets.write", so=False)
    await owner.ask("POST", held, json={"role_id": role})
    await has(bob, "secrets.write", so=True)
    await admin.groups.delete(group)
    await has(bob, "secrets.write", so=False)
    await has(keys["ann"], "secrets.write", so=False)


async def test_nobody_is_added_to_more_than_the_caller_has(
    admin: AsyncOrganization, owner: Key
) -> None:
    room = await project(owner)
    role = await made(admin, room, "secrets.write")
    await join(owner, "ann", "project_member", room)
    lead = await join(owner, "lead", "project_owner", room)
    group = (await admin.groups.create(name="Keepers")).id
    await admin.groups.users.create(group, user_id="ann")
    await owner.ask("POST", f"/v1/projects/{room}/groups/{group}/roles", json={"role_id": role})
    boss = await join(owner, "boss", "organization_owner")
    scopes = ["projects.write", "members.read", "members.write", "all_projects.read"]
    narrow = await boss.make("organization_owner", scopes=scopes)
    users = f"/v1/organization/groups/{group}/users"
    for by in (narrow, lead):
        for answer in (
            await by.ask("POST", users, json={"user_id": "lead"}),
            await by.ask("DELETE", f"{users}/ann"),
            await by.ask("DELETE", f"/v1/organization/groups/{group}"),
        ):
            assert answer.status_code == 403, answer.text
    # An owner of the project gives a group what they have there, and nothing in the organization.
    more = await made(admin, room, "files.read")
    held = f"/v1/projects/{room}/groups/{group}/roles"
    assert (await lead.ask("POST", held, json={"role_id": more})).status_code == 200
    held = f"/v1/organization/groups/{group}/roles"
    assert (await lead.ask("POST", held, json={"role_id": more})).status_code == 403
    assert (await boss.ask("POST", users, json={"user_id": "lead"})).status_code == 200


async def test_joining_and_giving_at_once_do_not_wait_for_each_other(
    admin: AsyncOrganization, owner: Key
) -> None:
    room = await project(owner)
    await join(owner, "ann", "project_member", room)
    boss = await join(owner, "boss", "organization_owner")
    narrow = await boss.make("organization_owner", scopes=["projects.write", "members.read"])
    for number in range(5):
        role = await made(admin, room, "secrets.write")
        group = (await admin.groups.create(name=f"g{number}")).id
        held = f"/v1/projects/{room}/groups/{group}/roles"
        users = f"/v1/organization/groups/{group}/users"
        added, given = await asyncio.gather(
            narrow.ask("POST", users, json={"user_id": "ann"}),
            owner.ask("POST", held, json={"role_id": role}),
        )
        assert given.status_code == 200
        # Refused where the role was there first.
        assert added.status_code in (200, 403), added.text
        again = await narrow.ask("POST", users, json={"user_id": "ann"})
        assert again.status_code == 403


async def test_another_organization_sees_no_groups(admin: AsyncOrganization, owner: Key) -> None:
    await join(owner, "ann", "organization_reader")
    group = (await admin.groups.create(name="Mine")).id
    role = (await admin.roles.create(role_name="Mine", permissions=["files.read"])).id
    await admin.groups.users.create(group, user_id="ann")
    await admin.groups.roles.create(group, role_id=role)
    async with administering(owner.front, await foreign_key(owner.front)) as other:
        theirs = (await other.roles.create(role_name="Theirs", permissions=["files.read"])).id
        own = (await other.groups.create(name="Theirs")).id
        for call in (
            other.groups.retrieve(group),
            other.groups.update(group, name="x"),
            other.groups.delete(group),
            other.groups.users.create(group, user_id="stranger"),
            other.groups.users.retrieve("ann", group_id=group),
            other.groups.users.delete("ann", group_id=group),
            other.groups.roles.create(group, role_id=theirs),
            other.groups.roles.create(own, role_id=role),
            other.groups.roles.retrieve(role, group_id=group),
            other.groups.roles.delete(role, group_id=group),
        ):
            with pytest.raises(openai.NotFoundError):
                await call
        with pytest.raises(openai.BadRequestError):
            await other.groups.users.create(own, user_id="ann")
        with pytest.raises(openai.NotFoundError):
            await other.groups.users.list(group)
        assert [one async for one in other.groups.roles.list(group)] == []
        assert [one.id async for one in other.groups.list()] == [own]
    listed = [strict(one) async for one in admin.groups.roles.list(group)]
    assert [one.id for one in listed] == [role]
    assert strict(await admin.groups.roles.retrieve(role, group_id=group)).id == role
    assert strict(await admin.groups.roles.delete(role, group_id=group)).deleted
