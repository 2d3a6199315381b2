"""Roles of organizations and projects by openai-python's `client.admin`."""

import openai
import pytest
from openai.resources.admin.organization import AsyncOrganization
from tests.support.clients.openai_admin import administering, foreign_key, strict
from tests.support.services.front import Front
from tests.support.services.member_keys import Key, join


@pytest.fixture
def owner(front: Front) -> Key:
    return Key(front, "", front.owner_key, {})


async def test_roles_of_the_organization(admin: AsyncOrganization, owner: Key) -> None:
    roles = admin.roles
    made = strict(await roles.create(role_name="Auditor", permissions=["usage.read", "audit.read"]))
    assert (made.name, made.description) == ("Auditor", None)
    assert made.permissions == ["audit.read", "usage.read"]
    assert (made.resource_type, made.predefined_role) == ("api.organization", False)
    assert strict(await roles.retrieve(made.id)) == made
    changed = strict(await roles.update(made.id, description="Reads.", permissions=["usage.read"]))
    assert (changed.name, changed.description) == ("Auditor", "Reads.")
    others = [(await roles.create(role_name=name, permissions=["files.read"])).id for name in "ab"]
    upward = [strict(one).id async for one in roles.list(limit=1)]
    assert sorted(upward) == sorted([made.id, *others])
    assert [one.id async for one in roles.list(limit=2, order="desc")] == upward[::-1]

    await join(owner, "ann@example.com", "organization_reader")
    held = admin.users.roles
    given = strict(await held.create("ann@example.com", role_id=made.id))
    assert (given.role.id, given.user.id) == (made.id, "ann@example.com")
    await held.create("ann@example.com", role_id=others[0])
    listed = [strict(one) async for one in held.list("ann@example.com", limit=1)]
    assert [one.id for one in listed] == sorted([made.id, others[0]])
    back = [one.id async for one in held.list("ann@example.com", limit=1, order="desc")]
    assert back == [one.id for one in listed][::-1]
    # Given by the member's own settings too, beside what they have; never with another change.
    assert strict(await admin.users.update("ann@example.com", role_id=others[1])).role == "reader"
    assert {one.id async for one in held.list("ann@example.com")} == {made.id, *others}
    with pytest.raises(openai.BadRequestError) as both:
        await admin.users.update("ann@example.com", role="owner", role_id=others[1])
    assert both.value.param == "role"
    with pytest.raises(openai.NotFoundError):
        await admin.users.update("ann@example.com", role_id="role_nobodys")
    await held.delete(others[1], user_id="ann@example.com")
    shown = strict(await held.retrieve(made.id, user_id="ann@example.com"))
    assert (shown.created_by, shown.permissions) == ("owner", ["usage.read"])
    assert strict(await held.delete(made.id, user_id="ann@example.com")).deleted
    with pytest.raises(openai.NotFoundError):
        await held.delete(made.id, user_id="ann@example.com")
    assert strict(await roles.delete(others[0])).deleted
    assert [one async for one in held.list("ann@example.com")] == []


async def test_roles_of_a_project(admin: AsyncOrganization, owner: Key) -> None:
    project = (await admin.projects.create(name="Red")).id
    await join(owner, "ann", "project_member", project)
    roles, held = admin.projects.roles, admin.projects.users.roles
    made = strict(await roles.create(project, role_name="Keeper", permissions=["secrets.write"]))
    assert made.resource_type == "api.project"
    assert strict(await roles.retrieve(made.id, project_id=project)) == made
    renamed = strict(await roles.update(made.id, project_id=project, role_name="Holder"))
    assert renamed.name == "Holder"
    assert [strict(one).id async for one in roles.list(project)] == [made.id]
    assert [one async for one in admin.roles.list()] == []
    given = strict(await held.create("ann", project_id=project, role_id=made.id))
    assert given.user.id == "ann"
    assert [strict(one).id async for one in held.list("ann", project_id=project)] == [made.id]
    assert strict(await held.retrieve(made.id, project_id=project, user_id="ann")).id == made.id
    assert strict(await held.delete(made.id, project_id=project, user_id="ann")).deleted
    assert strict(await roles.delete(made.id, project_id=project)).deleted
    with pytest.raises(openai.NotFoundError):
        await roles.retrieve(made.id, project_id=project)


async def test_another_organization_sees_no_roles(admin: AsyncOrganization, owner: Key) -> None:
    project = (await admin.projects.create(name="Red")).id
    await join(owner, "ann", "project_member", project)
    roles, held = admin.projects.roles, admin.projects.users.roles
    mine = (await roles.create(project, role_name="Keeper", permissions=["secrets.write"])).id
    top = (await admin.roles.create(role_name="Top", permissions=["files.read"])).id
    await held.create("ann", project_id=project, role_id=mine)
    async with administering(owner.front, await foreign_key(owner.front)) as other:
        theirs = await other.projects.create(name="Theirs")
        for call in (
            other.roles.retrieve(top),
            other.roles.update(top, role_name="x"),
            other.roles.delete(top),
            other.users.roles.create("stranger", role_id=top),
            other.projects.roles.create(project, role_name="x", permissions=["files.read"]),
            other.projects.roles.retrieve(mine, project_id=project),
            other.projects.roles.update(mine, project_id=theirs.id, role_name="x"),
            other.projects.roles.delete(mine, project_id=project),
            other.projects.users.roles.create("ann", project_id=project, role_id=mine),
            other.projects.users.roles.create("stranger", project_id=theirs.id, role_id=mine),
            other.projects.users.roles.retrieve(mine, project_id=project, user_id="ann"),
            other.projects.users.roles.delete(mine, project_id=project, user_id="ann"),
        ):
            with pytest.raises(openai.NotFoundError):
                await call
        with pytest.raises(openai.NotFoundError):
            await other.projects.roles.list(project)
        with pytest.raises(openai.NotFoundError):
            await other.projects.users.roles.list("ann", project_id=project)
        assert [one async for one in other.roles.list()] == []
        assert [one async for one in other.users.roles.list("ann")] == []
    assert (await roles.retrieve(mine, project_id=project)).name == "Keeper"
    assert [one.id async for one in held.list("ann", project_id=project)] == [mine]
