"""Projects, their people and their service accounts by openai-python's `client.admin`."""

import openai
import pytest
from openai.resources.admin.organization import AsyncOrganization
from tests.support.clients.openai_admin import administering, foreign_key, strict
from tests.support.services.front import Front


async def test_projects(admin: AsyncOrganization) -> None:
    made = strict(await admin.projects.create(name="Red"))
    assert (made.name, made.status, made.archived_at) == ("Red", "active", None)
    assert strict(await admin.projects.retrieve(made.id)) == made
    renamed = strict(await admin.projects.update(made.id, name="Blue"))
    assert renamed.name == "Blue"
    assert strict(await admin.projects.update(made.id)) == renamed
    archived = strict(await admin.projects.archive(made.id))
    assert archived.status == "archived"
    assert archived.archived_at
    live = [one.id async for one in admin.projects.list()]
    every = [strict(one) async for one in admin.projects.list(include_archived=True, limit=1)]
    assert made.id not in live
    assert {one.id for one in every} == {made.id, *live}
    assert len(every) == len(live) + 1


async def test_titles_of_projects_are_their_own(admin: AsyncOrganization) -> None:
    red, blue = [await admin.projects.create(name=name) for name in ("Red", "Blue")]
    with pytest.raises(openai.ConflictError):
        await admin.projects.update(blue.id, name="Red")
    assert (await admin.projects.retrieve(blue.id)).name == "Blue"
    assert (await admin.projects.update(red.id, name="Red")).name == "Red"
    with pytest.raises(openai.NotFoundError):
        await admin.projects.update("proj_none", name="Green")


async def test_people_of_a_project(admin: AsyncOrganization) -> None:
    project = (await admin.projects.create(name="Red")).id
    people = admin.projects.users
    ann = strict(await people.create(project, role="member", user_id="ann"))
    assert (ann.id, ann.role, ann.name, ann.email) == ("ann", "member", "ann", None)
    bob = strict(await people.create(project, role="owner", email="bob@example.com"))
    assert (bob.id, bob.role, bob.email) == ("bob@example.com", "owner", "bob@example.com")
    assert strict(await people.update("ann", project_id=project, role="owner")).role == "owner"
    assert strict(await people.update("ann", project_id=project)).role == "owner"
    assert strict(await people.retrieve("ann", project_id=project)).role == "owner"
    listed = [strict(one).id async for one in people.list(project, limit=1)]
    assert sorted(listed) == ["ann", "bob@example.com", "owner"]
    gone = strict(await people.delete("ann", project_id=project))
    assert gone.deleted
    for call in (people.retrieve, people.update, people.delete):
        with pytest.raises(openai.NotFoundError):
            await call("ann", project_id=project)
    for wrong in (
        people.create(project, role="reader", user_id="x"),
        people.create(project, role="member", user_id="x", email="x@example.com"),
        people.create(project, role="member"),
    ):
        with pytest.raises(openai.BadRequestError):
            await wrong


async def test_service_accounts(admin: AsyncOrganization, front: Front) -> None:
    project = (await admin.projects.create(name="Red")).id
    accounts = admin.projects.service_accounts
    made = strict(await accounts.create(project, name="CI bot", expires_in_seconds=60))
    assert (made.name, made.role) == ("CI bot", "member")
    assert made.api_key
    assert made.api_key.expires_at
    async with front.http(made.api_key.value) as http:
        me = (await http.get("/v1/me")).json()["principal"]
    assert (me["user_id"], me["project_id"]) == (made.id, project)

    renamed = strict(await accounts.update(made.id, project_id=project, name="Robot"))
    assert (renamed.name, renamed.role) == ("Robot", "member")
    promoted = strict(await accounts.update(made.id, project_id=project, role="owner"))
    assert (promoted.name, promoted.role) == ("Robot", "owner")
    assert strict(await accounts.retrieve(made.id, project_id=project)) == promoted
    assert [strict(one).id async for one in accounts.list(project)] == [made.id]

    more = strict(
        await accounts.api_keys.create(
            made.id, project_id=project, name="two", scopes=["api.files.read"]
        )
    )
    async with front.http(more.value) as http:
        assert (await http.get("/v1/files")).status_code == 200
        assert (await http.get("/v1/fine_tuning/jobs")).status_code == 403

    # People and service accounts are apart.
    assert made.id not in [one.id async for one in admin.projects.users.list(project)]
    with pytest.raises(openai.NotFoundError):
        await admin.projects.users.retrieve(made.id, project_id=project)
    with pytest.raises(openai.NotFoundError):
        await accounts.retrieve("owner", project_id=project)

    assert strict(await accounts.delete(made.id, project_id=project)).deleted
    async with front.http(more.value) as http:
        assert (await http.get("/v1/me")).status_code == 401


async def test_a_service_account_that_gets_no_key_is_not_left_behind(
    admin: AsyncOrganization, front: Front
) -> None:
    project = (await admin.projects.create(name="Red")).id
    accounts = admin.projects.service_accounts
    with pytest.raises(openai.BadRequestError) as refused:
        await accounts.create(project, name="x", create_service_account_only=True)
    assert refused.value.param == "create_service_account_only"
    short = await admin.admin_api_keys.create(name="short", expires_in_seconds=60)
    async with administering(front, short.value) as client:
        with pytest.raises(openai.BadRequestError):
            await client.projects.service_accounts.create(
                project, name="x", expires_in_seconds=3600
            )
    assert [one async for one in accounts.list(project)] == []


async def test_a_title_given_elsewhere_is_the_name(admin: AsyncOrganization, front: Front) -> None:
    project = (await admin.projects.create(name="Red")).id
    member = {"user_id": "ann", "role": "project_member", "project_id": project}
    async with front.http() as http:
        put = await http.put("/v1/members", json={**member, "title": "Ann Lee"})
        assert put.json()["title"] == "Ann Lee"
        # What is not said stays.
        again = await http.put("/v1/members", json={**member, "role": "project_owner"})
        assert again.json()["title"] == "Ann Lee"
        bad = await http.put("/v1/members", json={**member, "title": "a\nb"})
        assert bad.json()["error"]["param"] == "title"
    shown = await admin.projects.users.retrieve("ann", project_id=project)
    assert (shown.name, shown.role) == ("Ann Lee", "owner")


async def test_another_organization_finds_nothing(front: Front, admin: AsyncOrganization) -> None:
    project = (await admin.projects.create(name="Red")).id
    await admin.projects.users.create(project, role="member", user_id="ann")
    account = await admin.projects.service_accounts.create(project, name="bot")
    foreign = await foreign_key(front)
    async with administering(front, foreign) as other:
        projects, accounts = other.projects, other.projects.service_accounts
        for call in (
            projects.retrieve(project),
            projects.update(project, name="Mine"),
            projects.archive(project),
            projects.users.retrieve("ann", project_id=project),
            projects.users.create(project, role="member", user_id="eve"),
            projects.users.delete("ann", project_id=project),
            accounts.retrieve(account.id, project_id=project),
            accounts.create(project, name="eve"),
            accounts.delete(account.id, project_id=project),
            accounts.api_keys.create(account.id, project_id=project),
        ):
            with pytest.raises(openai.NotFoundError):
                await call
        for page in (projects.users.list(project), accounts.list(project)):
            with pytest.raises(openai.NotFoundError):
                await page
    assert (await admin.projects.retrieve(project)).name == "Red"
