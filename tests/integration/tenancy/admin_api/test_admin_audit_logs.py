"""The audit log by openai-python's `client.admin.organization.audit_logs`."""

from collections.abc import Awaitable, Callable
from typing import Any, get_args

import openai
import pytest
from openai.resources.admin.organization import AsyncOrganization
from tests.support.clients.audit_entries import Entry, details, entries, newest
from tests.support.clients.openai_admin import administering, foreign_key
from tests.support.services.front import Front
from tests.support.services.member_keys import Key, join
from tests.support.waiting import until

from windlass.gateway.openai_admin.audit.event_types import NAMES, TENANT, TYPES


@pytest.fixture
def owner(front: Front) -> Key:
    return Key(front, "", front.owner_key, {})


def test_the_table_has_openais_types_and_no_others() -> None:
    known = set(get_args(Entry.model_fields["type"].annotation))
    assert {one for one in known if not one.startswith(TENANT)} == NAMES
    assert len(NAMES) == 61
    assert {one.name for one in TYPES} <= NAMES


async def test_each_type_has_its_details(admin: AsyncOrganization, owner: Key) -> None:
    async def step(kind: str, call: Callable[[], Awaitable[Any]]) -> tuple[Any, Any]:
        made = await call()
        entry = await newest(admin, kind)
        assert entry.actor
        assert entry.actor.api_key
        assert entry.actor.api_key.user
        assert entry.actor.api_key.user.id == "owner"
        return made, details(entry)

    projects, roles, groups = admin.projects, admin.roles, admin.groups
    red, told = await step("project.created", lambda: projects.create(name="Red"))
    assert told == {"id": red.id, "data": {"name": "Red", "title": "Red"}}
    _, told = await step("project.updated", lambda: projects.update(red.id, name="Blue"))
    assert told == {"id": red.id, "changes_requested": {"title": "Blue"}}
    _, told = await step(
        "user.added", lambda: owner.put("ann@example.com", "project_member", project_id=red.id)
    )
    assert told == {"id": "ann@example.com", "data": {"role": "member"}}
    _, told = await step(
        "user.updated",
        lambda: projects.users.update("ann@example.com", project_id=red.id, role="owner"),
    )
    assert told == {"id": "ann@example.com", "changes_requested": {"role": "owner"}}
    _, told = await step(
        "service_account.created",
        lambda: owner.put("bot", "project_viewer", project_id=red.id, kind="service_account"),
    )
    assert told == {"id": "bot", "data": {"role": "member"}}
    _, told = await step(
        "service_account.updated",
        lambda: projects.service_accounts.update("bot", project_id=red.id, role="owner"),
    )
    assert told == {"id": "bot", "changes_requested": {"role": "owner"}}
    _, told = await step(
        "service_account.deleted",
        lambda: projects.service_accounts.delete("bot", project_id=red.id),
    )
    assert told == {"id": "bot"}
    key, told = await step(
        "api_key.created",
        lambda: owner.make("project_member", project_id=red.id, scopes=["files.read"]),
    )
    assert told == {"id": key.id, "data": {"scopes": ["files.read"]}}
    _, told = await step(
        "api_key.updated",
        lambda: projects.api_keys.update(key.id, project_id=red.id, expires_in_seconds=600),
    )
    assert told["changes_requested"]["expires_in_seconds"] in range(598, 601)
    _, told = await step(
        "api_key.deleted", lambda: projects.api_keys.delete(key.id, project_id=red.id)
    )
    assert told == {"id": key.id}
    role, told = await step(
        "role.created", lambda: roles.create(role_name="r", permissions=["jobs.read", "files.read"])
    )
    assert (told["role_name"], told["resource_type"]) == ("r", "api.organization")
    _, told = await step(
        "role.updated", lambda: roles.update(role.id, permissions=["jobs.read", "models.read"])
    )
    assert told["changes_requested"]["permissions_added"] == ["models.read"]
    assert told["changes_requested"]["permissions_removed"] == ["files.read"]
    group, told = await step("group.created", lambda: groups.create(name="g"))
    assert told == {"id": group.id, "data": {"group_name": "g"}}
    _, told = await step("group.updated", lambda: groups.update(group.id, name="h"))
    assert told == {"id": group.id, "changes_requested": {"group_name": "h"}}
    _, told = await step(
        "role.assignment.created", lambda: groups.roles.create(group.id, role_id=role.id)
    )
    assert (told["id"], told["principal_id"], told["principal_type"]) == (
        role.id,
        group.id,
        "group",
    )
    _, told = await step(
        "role.assignment.deleted", lambda: groups.roles.delete(role.id, group_id=group.id)
    )
    assert told["principal_id"] == group.id
    _, told = await step("group.deleted", lambda: groups.delete(group.id))
    assert told == {"id": group.id}
    _, told = await step("role.deleted", lambda: roles.delete(role.id))
    assert told == {"id": role.id}
    await step("user.deleted", lambda: owner.remove("ann@example.com", project_id=red.id))
    _, told = await step("project.archived", lambda: projects.archive(red.id))
    assert told == {"id": red.id}


async def test_filters(admin: AsyncOrganization, owner: Key, front: Front) -> None:
    red = await admin.projects.create(name="Red")
    ann = await join(owner, "ann@example.com", "project_owner", red.id)
    made = await ann.make("project_member", project_id=red.id)
    account = await admin.projects.service_accounts.create(red.id, name="bot")
    everything = await until(lambda: entries(admin), holds=lambda found: len(found) == 6)
    assert [one.type for one in everything] == [
        "api_key.created", "service_account.created", "api_key.created", "api_key.created",
        "user.added", "project.created",
    ]  # fmt: skip
    assert account.api_key
    assert details(everything[0])["id"] == account.api_key.id
    by_ann = everything[2]
    assert by_ann.actor
    assert by_ann.actor.api_key
    assert by_ann.actor.api_key.id == ann.id
    assert by_ann.project
    assert (by_ann.project.id, by_ann.project.name) == (red.id, "Red")

    async def ids(**asked: Any) -> list[str]:
        return [one.id for one in await entries(admin, **asked)]

    assert await ids(actor_emails=["ann@example.com"]) == [by_ann.id]
    assert await ids(actor_ids=[ann.id]) == await ids(actor_ids=["ann@example.com"]) == [by_ann.id]
    assert await ids(actor_emails=["owner"]) == []
    assert await ids(actor_ids=["owner"], actor_emails=["ann@example.com"]) == []
    assert await ids(resource_ids=[made.id, red.id]) == [by_ann.id, everything[-1].id]
    assert await ids(project_ids=[red.id]) == [by_ann.id]
    assert await ids(event_types=["user.added", "service_account.created"]) == [
        everything[1].id, everything[4].id,
    ]  # fmt: skip
    assert await ids(event_types=["login.failed"]) == []
    assert await ids(event_types=["tenant.user.added"], tenant_only=True) == []
    last, first = everything[0].effective_at, everything[-1].effective_at
    whole = [one.id for one in everything]
    assert await ids(effective_at={"gte": first, "lte": last}) == whole
    assert await ids(effective_at={"gt": last}) == []
    assert await ids(effective_at={"lt": first}) == []
    assert await ids(effective_at={"gt": first - 1, "lt": last + 1}) == whole
    assert await ids(effective_at={"lt": 0}) == []
    # Whatever the size of a page, forward and back.
    assert await ids(limit=2) == whole
    assert await ids(after=whole[3]) == whole[4:]
    back = await admin.audit_logs.list(before=whole[4], limit=2)
    assert ([one.id for one in back.data], back.has_more) == (whole[2:4], True)
    assert await ids(before=whole[2], limit=10) == whole[:2]
    async with administering(front, await foreign_key(front)) as stranger:
        assert whole[0] not in [one.id for one in await entries(stranger)]
        assert await entries(stranger, after=whole[0]) == []


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"event_types": ["project.exploded"]}, "event_types"),
        ({"event_types": ["user.added"], "tenant_only": True}, "event_types"),
        ({"extra_query": {"effective_at[gt]": "soon"}}, "effective_at[gt]"),
        ({"extra_query": {"effective_at[around]": "1"}}, "effective_at[around]"),
        ({"extra_query": {"effective_at": "1"}}, "effective_at"),
        ({"after": "a", "before": "b"}, "before"),
        ({"actor_ids": [str(n) for n in range(101)]}, "actor_ids"),
        ({"limit": 101}, "limit"),
    ],
)
async def test_what_is_asked_wrongly_is_refused(
    admin: AsyncOrganization, asked: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await admin.audit_logs.list(**asked)
    assert refused.value.param == param


async def test_the_log_is_for_those_who_may_read_it(owner: Key, front: Front) -> None:
    project = (await owner.ask("POST", "/v1/projects", json={"title": "Red"})).json()["id"]
    ann = await join(owner, "ann", "project_owner", project)
    async with administering(front, ann.secret) as admin:
        with pytest.raises(openai.PermissionDeniedError):
            await admin.audit_logs.list()
    scoped = await owner.make("organization_owner", scopes=["audit.read"])
    async with administering(front, scoped.secret) as admin:
        assert (await newest(admin, "api_key.created")).actor
