"""A person whom a directory provisions: in by a group, signed in without a key, and out at once."""

import asyncio
from typing import Any

import httpx
import pytest
from aiohttp import web
from tests.support.clients.browser import Browser
from tests.support.environments.oidc_provider import Issuer
from tests.support.services import front as stand
from tests.support.services.front import running_engine
from tests.support.services.member_keys import SECONDS, Key, project
from tests.support.services.scim import Scim, directory_of
from tests.support.services.signed_in import login, signed_in, trust
from tests.support.waiting import soon, until

PROVIDERS = "/v1/organization/identity_providers"
MINE = {"of_installation": False, "person_claim": "email"}


async def organization_of(owner: Key) -> str:
    me = (await owner.ask("GET", "/v1/me")).json()
    return str(me["principal"]["organization_id"])


async def endless(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    response = await stand.begin(request)
    await response.write(stand.sse(stand.chunk("word")))
    await asyncio.Event().wait()
    return response


async def role_of_group(owner: Key, room: str, group: str) -> None:
    """Gives a group what a member of a project may."""
    body = {
        "role_name": "member",
        "permissions": ["models.read", "inference.invoke", "files.read", "jobs.read"],
    }
    role = (await owner.ask("POST", f"/v1/projects/{room}/roles", json=body)).json()["id"]
    path = f"/v1/projects/{room}/groups/{group}/roles"
    assert (await owner.ask("POST", path, json={"role_id": role})).status_code == 200


async def test_who_joins_by_a_group_and_leaves_during_a_stream(owner: Key, issuer: Issuer) -> None:
    scim: Scim = await directory_of(owner)
    organization, room = await organization_of(owner), await project(owner)
    ann = await scim.user("Ann@a.example", externalId="00u1", displayName="Ann")
    group = await scim.group("Tuners", ann["id"])
    await role_of_group(owner, room, group["id"])
    await trust(owner, issuer, **MINE)
    session = await signed_in(owner, "ann", organization=organization)
    there = {"OpenAI-Project": room}
    me = (await session.ask("GET", "/v1/me", headers=there)).json()["principal"]
    assert me["user_id"] == ann["id"]
    assert "inference.invoke" in me["permissions"]

    async with running_engine() as engine:
        engine.handler = endless
        owner.front.board.pin("toy", engine.address)
        body = {"model": "toy", "messages": [{"role": "user", "content": "hi"}], "stream": True}
        async with (
            owner.front.http(session.secret, **there) as http,
            http.stream("POST", "/v1/chat/completions", json=body) as response,
        ):
            pieces = response.aiter_bytes()
            assert b"word" in await anext(pieces)
            await scim.active(ann["id"], so=False)
            async with soon(SECONDS):
                with pytest.raises(httpx.RemoteProtocolError):
                    async for _ in pieces:
                        pass
    await session.ends_within_a_second()
    async with Browser("ann") as browser:
        assert (await browser.open(login(owner, organization=organization))).status_code == 403
    # Active again, they sign in again; the session of before stays ended.
    await scim.active(ann["id"], so=True)
    again = await signed_in(owner, "ann", organization=organization)
    assert (await again.ask("GET", "/v1/me")).json()["principal"]["user_id"] == ann["id"]
    assert await session.status() == 401
    # What the directory says of somebody, their issuer does not overwrite.
    kept = await scim.done("GET", f"/Users/{ann['id']}")
    assert (kept["displayName"], kept["externalId"]) == ("Ann", "00u1")
    # Out of the group, out of the project.
    await scim.patch(
        f"/Groups/{group['id']}", {"op": "remove", "path": f'members[value eq "{ann["id"]}"]'}
    )

    async def may() -> bool:
        answer = await again.ask("GET", "/v1/me", headers=there)
        permissions = answer.json().get("principal", {}).get("permissions", ())
        return "inference.invoke" in permissions

    await until(may, SECONDS, holds=lambda allowed: not allowed)


async def test_nobody_is_taken_for_a_person_of_a_directory(owner: Key, issuer: Issuer) -> None:
    scim = await directory_of(owner)
    organization = await organization_of(owner)
    me = (await owner.ask("GET", "/v1/me")).json()["principal"]["user_id"]
    # Somebody whom the directory does not provision, and who operates the platform.
    await scim.user("other@a.example")
    await scim.done("PUT", f"/Users/{me}", {"userName": "bob@b.example", "active": True})
    await trust(owner, issuer, **MINE)
    for person in ("ann", "bob", "eve"):
        async with Browser(person) as browser:
            page = await browser.open(login(owner, organization=organization))
            assert (page.status_code, "Signed in" in page.text) == (403, False)
    refused = await owner.ask(
        "POST",
        PROVIDERS,
        json=issuer.provider(name="all", of_installation=True, person_claim="email"),
    )
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "person_claim")
    # Whom the directory removes, or an owner, would come in as somebody new.
    both = issuer.provider(name="both", **MINE, default_role="organization_reader")
    refused = await owner.ask("POST", PROVIDERS, json=both)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "default_role")


async def test_an_address_that_nobody_verified_is_no_person(owner: Key, issuer: Issuer) -> None:
    scim = await directory_of(owner)
    organization = await organization_of(owner)
    ann = await scim.user("ann@a.example")
    await trust(owner, issuer, **MINE)
    async with Browser("eve") as browser:
        assert (await browser.open(login(owner, organization=organization))).status_code == 403
    # An owner needs an invite: who may rename people in the directory would choose who owns.
    assert (await owner.put(ann["id"], "organization_owner")).status_code == 200
    async with Browser("ann") as browser:
        assert (await browser.open(login(owner, organization=organization))).status_code == 403
    assert (await owner.put(ann["id"], "organization_reader")).status_code == 200
    session = await signed_in(owner, "ann", organization=organization)
    assert await session.roles() == ["organization_reader"]


async def test_a_name_that_is_given_again_is_another_person_s(owner: Key, issuer: Issuer) -> None:
    scim = await directory_of(owner)
    organization = await organization_of(owner)
    first = await scim.user("ann@a.example")
    await trust(owner, issuer, **MINE)
    old = await signed_in(owner, "ann", organization=organization)
    await scim.done("DELETE", f"/Users/{first['id']}")
    await old.ends_within_a_second()
    again = await scim.user("bob@b.example")
    assert again["id"] != first["id"]
    assert (await owner.put(first["id"], "organization_reader")).status_code == 200
    async with Browser("ann") as browser:
        assert (await browser.open(login(owner, organization=organization))).status_code == 403
    # Whom the directory provisions anew comes in anew.
    assert (await owner.remove(first["id"])).status_code == 200
    back = await scim.user("ann@a.example")
    session = await signed_in(owner, "ann", organization=organization)
    assert (await session.ask("GET", "/v1/me")).json()["principal"]["user_id"] == back["id"]


async def test_claims_change_no_group_of_the_directory(
    owner: Key, issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    scim = await directory_of(owner)
    organization = await organization_of(owner)
    admins = await scim.group("Admins")
    ids = {"admins": str(admins["id"])}
    for name in ("taken", "own", "full"):
        body = {"name": name}
        made = (await owner.ask("POST", "/v1/organization/groups", json=body)).json()
        ids[name] = str(made["id"])
    by_claims: dict[str, Any] = {"of_installation": False, "groups_claim": "groups"}
    by_claims["default_role"] = "organization_reader"
    provider = await trust(owner, issuer, **by_claims, groups={"organization_owner": ids["taken"]})
    changes: tuple[tuple[str, dict[str, Any]], ...] = (
        (PROVIDERS, issuer.provider(**by_claims, name="x", groups={"ml": ids["admins"]})),
        (f"{PROVIDERS}/{provider}", {"groups": {"ml": ids["admins"]}}),
    )
    for path, body in changes:
        refused = await owner.ask("POST", path, json=body)
        error = refused.json()["error"]
        assert (refused.status_code, error["code"]) == (409, "managed_by_directory"), error
    mine = {"organization_owner": ids["taken"], "ml": ids["own"]}
    answer = await owner.ask("POST", f"{PROVIDERS}/{provider}", json={"groups": mine})
    assert answer.status_code == 200, answer.text

    async def group(name: str) -> tuple[int, str]:
        found = await scim.done("GET", f"/Groups/{ids[name]}")
        return len(found.get("members", ())), str(found["meta"]["version"])

    # The directory takes over one that claims stood for; its provider can be changed still.
    takes = {"op": "replace", "path": "externalId", "value": "1"}
    await scim.patch(f"/Groups/{ids['taken']}", takes)
    answer = await owner.ask("POST", f"{PROVIDERS}/{provider}", json={"name": "renamed"})
    assert answer.status_code == 200, answer.text
    before = {name: await group(name) for name in ("taken", "own")}
    ann = await signed_in(owner, "ann", organization=organization)
    assert await group("taken") == before["taken"]
    joined, version = await group("own")
    assert (joined, version != before["own"][1]) == (1, True)
    # Nor does anybody leave it by a claim that they lack.
    user = (await ann.ask("GET", "/v1/me")).json()["principal"]["user_id"]
    await scim.patch(
        f"/Groups/{ids['taken']}", {"op": "add", "path": "members", "value": [{"value": user}]}
    )
    mine = {"nothing": ids["taken"], "none": ids["own"], "ml": ids["full"]}
    moved = await owner.ask("POST", f"{PROVIDERS}/{provider}", json={"groups": mine})
    assert moved.status_code == 200, moved.text
    # Whoever comes to a group that is full signs in without it.
    monkeypatch.setattr("windlass.users.sign_in.people.MAX_GROUP_MEMBERS", 0)
    again = await signed_in(owner, "ann", organization=organization)
    assert await again.status() == 200
    found = [(await group(name))[0] for name in ("taken", "own", "full")]
    assert found == [1, 0, 0]
    assert (await group("own"))[1] != version
