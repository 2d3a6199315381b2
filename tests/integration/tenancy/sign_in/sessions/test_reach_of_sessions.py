"""How far a session reaches: its roles are many, and each counts where it is held alone."""

from typing import Any

import httpx
from tests.support.environments.oidc_provider import Issuer
from tests.support.services.front import running_engine
from tests.support.services.member_keys import SECONDS, Key, join, organization, project
from tests.support.services.signed_in import by_invite, signed_in, trust
from tests.support.waiting import until


async def operator(owner: Key) -> Key:
    """A session of whoever operates the platform."""
    me = (await owner.ask("GET", "/v1/me")).json()["principal"]["user_id"]
    return await by_invite(owner, "ann", user_id=me)


async def live(owner: Key, **options: Any) -> set[str]:
    answer = await owner.ask("GET", "/v1/auth/sessions", **options)
    return {one["id"] for one in answer.json()["data"]}


async def asked(owner: Key, by: Key, room: str) -> str:
    """The path of a request for a role in a project, or in all of the organization."""
    at = f"/v1/projects/{room}" if room else "/v1/organization"
    body: dict[str, Any] = {"role_name": "keeper", "permissions": ["secrets.read"]}
    role = (await owner.ask("POST", f"{at}/roles", json=body)).json()["id"]
    askers = "project" if room else "organization"
    body = {"askers": askers, "longest_seconds": 3600, "approvals": 1}
    await owner.ask("PUT", f"{at}/roles/{role}/elevation", json=body)
    body = {"role_id": role, "reason": "A token leaked.", "seconds": 600}
    answer = await by.ask("POST", f"{at}/elevations", json=body)
    assert answer.status_code == 200, answer.text
    return f"{at}/elevations/{answer.json()['id']}"


async def test_an_owner_of_one_project_decides_there_alone(owner: Key, issuer: Issuer) -> None:
    """Ann owns a project and reads the organization: each role alone approves nothing elsewhere."""
    await trust(owner, issuer)
    own, other = await project(owner), await project(owner)
    ann = await by_invite(owner, "ann", role="reader", projects=[{"id": own, "role": "owner"}])
    bob = await join(owner, "bob", "project_member", other)
    await owner.put("bob", "organization_reader")
    carl = await join(owner, "carl", "project_member", own)

    async def decide(path: str, verb: str, room: str = own) -> httpx.Response:
        there = {"OpenAI-Project": room}
        return await ann.ask("POST", f"{path}/{verb}", json={}, headers=there)

    everywhere = await owner.make("organization_reader", user_id="bob")
    for by, room in ((bob, other), (everywhere, "")):
        path = await asked(owner, by, room)
        for verb in ("approve", "deny"):
            refused = await decide(path, verb)
            assert refused.status_code == 403, refused.text
        assert (await owner.ask("POST", f"{path}/approve", json={})).status_code == 200
        assert (await decide(path, "end")).status_code == 403
    path = await asked(owner, carl, own)
    approved = await decide(path, "approve")
    assert (approved.status_code, approved.json()["state"]) == (200, "approved")


async def test_nobody_ends_sessions_of_who_is_above_them(owner: Key, issuer: Issuer) -> None:
    await trust(owner, issuer)
    admin = await operator(owner)
    room = await project(owner)
    bob = await by_invite(owner, "bob", role="reader", projects=[{"id": room, "role": "owner"}])
    boss = await join(owner, "boss", "organization_owner")
    narrow = await boss.make("organization_owner", scopes=["projects.write", "keys.write"])

    async def end(by: Key, session: Key) -> int:
        return (await by.ask("DELETE", f"/v1/auth/sessions/{session.id}")).status_code

    # A key that is narrowed to less than what Bob may is below him too.
    assert [await end(boss, admin), await end(narrow, admin), await end(narrow, bob)] == [403] * 3
    assert await live(owner) == {admin.id, bob.id}
    assert await end(boss, bob) == 200
    # One's own is one's to end, however little the key may otherwise.
    mine = await owner.make("organization_owner", scopes=["projects.write", "keys.write"])
    assert await end(mine, admin) == 200


async def test_who_leaves_the_platform_stays_signed_in_elsewhere(
    owner: Key, issuer: Issuer
) -> None:
    await trust(owner, issuer)
    there = await organization(owner, "other")
    await owner.put("carl", "platform_admin")
    member = {"user_id": "carl", "role": "organization_reader"}
    put = await owner.ask("PUT", "/v1/members", json=member, headers=there)
    assert put.status_code == 200, put.text
    link = await owner.ask(
        "POST", "/v1/organization/invites", json={"user_id": "carl"}, headers=there
    )
    query = {"invite": link.json()["link"].rpartition("/")[2]}
    carl = await signed_in(owner, "bob", **query)
    assert (await owner.remove("carl")).status_code == 200
    assert await live(owner, headers=there) == {carl.id}
    assert await carl.status() == 200


async def test_an_operator_s_session_hears_of_other_organizations(
    owner: Key, issuer: Issuer
) -> None:
    """Within a second: of the models of a project there, its archiving, and the deletion."""
    await trust(owner, issuer)
    admin = await operator(owner)
    there = await organization(owner, "other")
    made = await owner.ask("POST", "/v1/projects", json={"title": "there"}, headers=there)
    room = str(made.json()["id"])

    async def chat() -> int:
        body = {"model": "toy", "messages": [{"role": "user", "content": "hi"}]}
        headers = {**there, "OpenAI-Project": room}
        return (
            await admin.ask("POST", "/v1/chat/completions", json=body, headers=headers)
        ).status_code

    async def status(**headers: str) -> int:
        return (await admin.ask("GET", "/v1/me", headers={**there, **headers})).status_code

    async with running_engine() as engine:
        owner.front.board.pin("toy", engine.address)
        await until(chat, holds=lambda got: got == 200)
        policy = {"mode": "deny_list", "model_ids": ["toy"]}
        path = f"/v1/organization/projects/{room}/model_permissions"
        answer = await owner.ask("POST", path, json=policy, headers=there)
        assert answer.status_code == 200, answer.text
        await until(chat, SECONDS, holds=lambda got: got == 404)
    assert await status(**{"OpenAI-Project": room}) == 200
    archived = await owner.ask("POST", f"/v1/projects/{room}/archive", headers=there)
    assert archived.status_code == 200, archived.text
    await until(lambda: status(**{"OpenAI-Project": room}), SECONDS, holds=lambda got: got == 403)
    assert await status() == 200
    path = f"/v1/organizations/{there['OpenAI-Organization']}"
    deleted = await owner.ask("DELETE", path, params={"title": "other"})
    assert deleted.status_code == 200, deleted.text
    await until(status, SECONDS, holds=lambda got: got == 401)
