"""Keys and members of an organization by openai-python's `client.admin`."""

import openai
import pytest
from openai.resources.admin.organization import AsyncOrganization
from tests.support.clients.openai_admin import administering, foreign_key, strict
from tests.support.services.front import Front
from tests.support.services.member_keys import Key, join


@pytest.fixture
def owner(front: Front) -> Key:
    return Key(front, "", front.owner_key, {})


async def test_admin_keys(admin: AsyncOrganization, front: Front) -> None:
    keys = admin.admin_api_keys
    made = strict(await keys.create(name="ops", expires_in_seconds=60))
    assert made.expires_at
    assert (made.owner.type, made.owner.id, made.owner.role) == ("user", "owner", "owner")
    async with administering(front, made.value) as other:
        assert [one.name async for one in other.projects.list()] == ["Default project"]
    second = await keys.create(name="more")
    shown = strict(await keys.retrieve(made.id))
    assert shown.redacted_value.endswith(made.value[-4:])
    upward = [strict(one).name or "" async for one in keys.list(limit=1)]
    downward = [one.name or "" async for one in keys.list(order="desc", limit=2)]
    assert sorted(upward) == ["more", "ops", "owner"]
    assert downward == upward[::-1]
    assert strict(await keys.delete(second.id)).deleted
    assert sorted([one.name or "" async for one in keys.list()]) == ["ops", "owner"]
    with pytest.raises(openai.NotFoundError):
        await keys.retrieve(second.id)
    with pytest.raises(openai.NotFoundError):
        await keys.delete(second.id)


async def test_keys_of_a_project(admin: AsyncOrganization, owner: Key) -> None:
    project = (await admin.projects.create(name="Red")).id
    ann = await join(owner, "ann@example.com", "project_member", project)
    account = await admin.projects.service_accounts.create(project, name="bot")
    mine = await owner.make("project_owner", project_id=project)
    keys = admin.projects.api_keys
    found = {one.id: strict(one) async for one in keys.list(project, limit=2)}
    assert account.api_key
    assert found.keys() == {ann.id, mine.id, account.api_key.id}
    person, program = found[ann.id].owner, found[account.api_key.id].owner
    assert person.user
    assert (person.type, person.user.email, person.user.role) == (
        "user", "ann@example.com", "member",
    )  # fmt: skip
    assert program.service_account
    assert (program.type, program.service_account.name) == ("service_account", "bot")
    assert {one.owner_project_access for one in found.values()} == {"active"}

    changed = strict(
        await keys.update(
            ann.id, project_id=project, expires_in_seconds=60, scopes=["api.files.read"]
        )
    )
    assert changed.expires_at
    assert (await ann.ask("GET", "/v1/files")).status_code == 200
    assert (await ann.ask("GET", "/v1/fine_tuning/jobs")).status_code == 403
    await keys.update(ann.id, project_id=project, scopes=["api.all.read", "jobs.write"])
    assert (await ann.ask("GET", "/v1/fine_tuning/jobs")).status_code == 200
    with pytest.raises(openai.BadRequestError) as refused:
        await keys.update(ann.id, project_id=project, scopes=["api.everything"])
    assert refused.value.param == "scopes"
    assert strict(await keys.retrieve(ann.id, project_id=project)).expires_at == changed.expires_at

    assert strict(await keys.delete(ann.id, project_id=project)).deleted
    assert await ann.status() == 401
    assert ann.id not in [one.id async for one in keys.list(project)]
    for call in (keys.retrieve, keys.update, keys.delete):
        with pytest.raises(openai.NotFoundError):
            await call(ann.id, project_id=project)


async def test_keys_whose_owners_have_left(admin: AsyncOrganization, owner: Key) -> None:
    project = (await admin.projects.create(name="Red")).id
    boss = await join(owner, "boss", "organization_owner")
    here = await boss.make("project_member", project_id=project)
    other = await join(owner, "ann", "project_member", project)
    keys = admin.projects.api_keys

    async def ids(access: str) -> set[str]:
        return {one.id async for one in keys.list(project, owner_project_access=access)}  # type: ignore[arg-type]  # a name

    assert await ids("active") == {here.id, other.id}
    assert await ids("inactive") == set()
    assert (await owner.put("boss", "organization_reader")).status_code == 200
    assert await ids("active") == {other.id}
    assert await ids("inactive") == {here.id}
    assert await ids("any") == {here.id, other.id}
    shown = strict(await keys.retrieve(here.id, project_id=project))
    assert shown.owner_project_access == "inactive"


async def test_a_key_of_another_project_is_not_there(admin: AsyncOrganization, owner: Key) -> None:
    red, blue = [(await admin.projects.create(name=name)).id for name in ("Red", "Blue")]
    key = await owner.make("project_member", project_id=red)
    for call in (admin.projects.api_keys.retrieve, admin.projects.api_keys.delete):
        with pytest.raises(openai.NotFoundError):
            await call(key.id, project_id=blue)
    with pytest.raises(openai.NotFoundError):
        await admin.admin_api_keys.retrieve(key.id)
    assert await key.status() == 200


async def test_members_of_the_organization(admin: AsyncOrganization, owner: Key) -> None:
    await join(owner, "ann@example.com", "organization_reader")
    users = admin.users
    ann = strict(await users.retrieve("ann@example.com"))
    assert (ann.role, ann.email) == ("reader", "ann@example.com")
    assert strict(await users.update(ann.id, role="owner")).role == "owner"
    assert strict(await users.update(ann.id)).role == "owner"
    # Who administers the platform owns the organization, and is not made less by that name.
    assert strict(await users.update("owner", role="owner")).role == "owner"
    assert (await owner.ask("GET", "/v1/organizations")).status_code == 200
    assert {strict(one).id async for one in users.list(limit=1)} == {"owner", ann.id}
    assert [one.id async for one in users.list(emails=[ann.id, "nobody"])] == [ann.id]
    for setting in ("developer_persona", "technical_level"):
        with pytest.raises(openai.BadRequestError) as refused:
            await users.update(ann.id, **{setting: "x"})  # type: ignore[arg-type]  # by its name
        assert refused.value.param == setting
    with pytest.raises(openai.BadRequestError):
        await users.update(ann.id, role="member")
    assert strict(await users.delete(ann.id)).deleted
    with pytest.raises(openai.NotFoundError):
        await users.retrieve(ann.id)
    with pytest.raises(openai.NotFoundError):
        await users.delete(ann.id)


async def test_who_administers_a_project_alone(admin: AsyncOrganization, owner: Key) -> None:
    red, blue = [(await admin.projects.create(name=name)).id for name in ("Red", "Blue")]
    lead = await join(owner, "lead", "project_owner", red)
    member = await join(owner, "ann", "project_member", red)
    async with administering(owner.front, lead.secret) as client:
        assert [one.id async for one in client.projects.list()] == [red]
        await client.projects.users.create(red, role="member", user_id="bob")
        assert len([one async for one in client.projects.api_keys.list(red)]) == 2
        for refused in (
            client.projects.create(name="Green"),
            client.projects.users.create(blue, role="member", user_id="bob"),
            client.admin_api_keys.create(name="x"),
            client.projects.users.list(blue),
            client.users.list(),
            client.users.retrieve("ann"),
            client.users.update("ann", role="owner"),
            client.users.delete("ann"),
            client.roles.create(role_name="x", permissions=["files.read"]),
        ):
            with pytest.raises((openai.PermissionDeniedError, openai.NotFoundError)):
                await refused
    assert await member.status() == 200
    async with administering(owner.front, member.secret) as client:
        for denied in (
            client.projects.users.create(red, role="member", user_id="bob"),
            client.projects.service_accounts.create(red, name="x"),
            client.users.list(),
        ):
            with pytest.raises(openai.PermissionDeniedError):
                await denied


async def test_another_organization_sees_no_keys(admin: AsyncOrganization, owner: Key) -> None:
    project = (await admin.projects.create(name="Red")).id
    key = await owner.make("project_member", project_id=project)
    boss = await admin.admin_api_keys.create(name="ops")
    await join(owner, "ann", "organization_reader")
    async with administering(owner.front, await foreign_key(owner.front)) as other:
        for call in (
            other.projects.api_keys.retrieve(key.id, project_id=project),
            other.projects.api_keys.update(key.id, project_id=project, scopes=[]),
            other.projects.api_keys.delete(key.id, project_id=project),
            other.admin_api_keys.retrieve(boss.id),
            other.admin_api_keys.delete(boss.id),
            other.users.retrieve("ann"),
            other.users.update("ann", role="owner"),
            other.users.delete("ann"),
        ):
            with pytest.raises(openai.NotFoundError):
                await call
        with pytest.raises(openai.NotFoundError):
            await other.projects.api_keys.list(project)
        assert boss.id not in [one.id async for one in other.admin_api_keys.list()]
        assert "ann" not in [one.id async for one in other.users.list()]
    assert await key.status() == 200
