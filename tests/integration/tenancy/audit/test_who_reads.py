"""Reads of what is others' are events, once for each thing; the use of a secret is one too."""

from typing import Any

from tests.integration.tenancy.audit.test_who_and_from_where import events
from tests.support.services.member_keys import Key, join, project
from tests.support.waiting import until

from windlass.api.users.v1 import users_pb2, users_pb2_grpc


def reads(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["action"].rpartition("/")[2], one["resource"]) for one in found]


async def test_what_an_administrator_reads_is_an_event(owner: Key) -> None:
    room = await project(owner)
    admin = await owner.make("organization_owner")
    for user in ("bob", "carol"):
        await join(owner, user, "project_member", room)
    for _ in range(3):
        await admin.ask("GET", "/v1/members/bob/affected_keys")
    await admin.ask("GET", "/v1/members/carol/affected_keys")
    for path in ("members", "api_keys", "secrets", "usage?start_time=1", "models", "files"):
        for _ in range(2):
            answer = await admin.ask("GET", f"/v1/{path}")
            assert answer.status_code == 200, answer.text
    await admin.ask("GET", "/v1/audit_events")
    found = await events(owner, admin, 7)
    assert {one["outcome"] for one in found} == {"OK"}
    assert reads(found) == [
        ("ListAffectedKeys", "bob"), ("ListAffectedKeys", "carol"), ("ListMembers", ""),
        ("ListApiKeys", ""), ("ListSecrets", ""), ("QueryUsage", ""), ("ListAuditEvents", ""),
    ]  # fmt: skip


async def test_what_a_member_reads_of_their_own_is_none(owner: Key) -> None:
    room = await project(owner)
    bob = await join(owner, "bob", "project_member", room)
    for path in ("api_keys", "secrets", "usage?start_time=1"):
        assert (await bob.ask("GET", f"/v1/{path}")).status_code == 200
    assert (await bob.ask("GET", "/v1/members")).status_code == 403
    assert reads(await events(owner, bob, 1)) == [("ListMembers", "")]


async def test_the_use_of_a_secret_is_an_event(owner: Key) -> None:
    me = (await owner.ask("GET", "/v1/me")).json()
    project_id = me["principal"]["project_id"]
    await owner.ask("PUT", "/v1/secrets/wandb", json={"value": "hunter2"})
    users = owner.front.app.clients.stub(users_pb2_grpc.UsersInternalServiceStub)
    request = users_pb2.RevealSecretRequest(project_id=project_id, name="wandb", used_by="ftjob-1")
    assert (await users.RevealSecret(request)).value == b"hunter2"

    async def used() -> list[dict[str, Any]]:
        rows = (await owner.ask("GET", "/v1/audit_events", params={"limit": 100})).json()["data"]
        return [one for one in rows if one["action"].endswith("/RevealSecret")]

    (event,) = await until(used)
    assert (event["resource"], event["after"]) == ("wandb", '{"used_by":"ftjob-1"}')
    assert (event["project_id"], event["user_id"]) == (project_id, None)


async def test_who_may_not_read_the_log_sends_it_nowhere(owner: Key) -> None:
    body = {"kind": "webhook", "url": "https://logs.example/windlass"}
    for more, status in ([], 403), (["audit.read"], 200):
        key = await owner.make("organization_owner", scopes=["projects.write", *more])
        answer = await key.ask("POST", "/v1/audit_destinations", json=body)
        assert answer.status_code == status, answer.text
        assert status == 200 or "audit.read" in answer.json()["error"]["message"]
