"""The audit log by openai-python's `client.admin.organization.audit_logs`."""

from typing import Any

import openai
import pytest
from openai.resources.admin.organization import AsyncOrganization
from tests.support.clients.audit_entries import details, entries, newest
from tests.support.clients.openai_admin import administering, foreign_key
from tests.support.services.front import Front
from tests.support.services.member_keys import Key, join
from tests.support.waiting import until


@pytest.fixture
def owner(front: Front) -> Key:
    return Key(front, "", front.owner_key, {})


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
