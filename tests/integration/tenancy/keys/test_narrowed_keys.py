"""Keys with less than their role: scopes, networks, and nobody who gets around them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from tests.support.services.front import running_front
from tests.support.services.member_keys import SECONDS, Key, join, project
from tests.support.waiting import until, within

from windlass.bounds import MAX_KEY_NETWORKS
from windlass.gateway.authentication import origins
from windlass.users.tables import api_keys

HERE, ELSEWHERE = "127.0.0.0/8", "192.0.2.0/24"
BEHIND = {"X-Forwarded-For": "192.0.2.7"}


@pytest.fixture
async def owner(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Key]:
    """The gateway believes a proxy on this machine, as a caller without the header shows."""
    monkeypatch.setattr(origins, "TELL_SECONDS", 0.1)
    http = {"trusted_proxies": ["127.0.0.1/32"]}
    async with running_front(database_url, tmp_path / "data", http=http) as front:
        yield Key(front, "", front.owner_key, {})


def param(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["param"]


async def update(by: Key, key: Key, **body: Any) -> httpx.Response:
    return await by.ask("PATCH", f"/v1/api_keys/{key.id}", json=body)


async def permissions(key: Key) -> set[str]:
    return await key.permissions()


async def test_a_key_has_its_scopes_alone(owner: Key) -> None:
    room = await project(owner)
    key = await owner.make("project_owner", project_id=room, scopes=["files.read", "keys.write"])
    assert key.body["scopes"] == ["files.read", "keys.write"]
    assert await permissions(key) == {"files.read", "keys.write", "self.read"}
    assert (await key.ask("GET", "/v1/files")).status_code == 200
    refused = await key.ask("GET", "/v1/fine_tuning/jobs")
    assert refused.status_code == 403
    assert "jobs.read" in refused.json()["error"]["message"]


async def test_what_a_narrowed_key_makes_is_as_narrow(owner: Key) -> None:
    room = await project(owner)
    scopes = ["files.read", "keys.read", "keys.write"]
    key = await owner.make("project_owner", project_id=room, scopes=scopes, networks=[HERE])
    child = await key.make("project_owner")
    assert (child.body["scopes"], child.body["networks"]) == (scopes, [HERE])
    less = await key.make(scopes=["files.read"], networks=["127.0.0.1"])
    assert less.body["networks"] == ["127.0.0.1/32"]
    refused = await key.try_make("project_owner", scopes=["jobs.read"])
    assert refused.status_code == 403
    assert param(await key.try_make(networks=[ELSEWHERE])) == (400, "networks")
    # It sees itself and what it has made, as a key that is weaker than its owner.
    assert await key.sees() == {key.id, child.id, less.id}


async def test_scopes_hold_against_roles_that_it_could_give(owner: Key) -> None:
    room = await project(owner)
    key = await owner.make("organization_owner", scopes=["members.write", "projects.write"])
    for user, role, body in (
        ("eve", "organization_owner", {}),
        ("eve", "project_member", {"project_id": room}),
        ("owner", "organization_reader", {}),
    ):
        refused = await key.put(user, role, **body)
        assert refused.status_code == 403, refused.text
    await owner.put("eve", "project_member", project_id=room)
    assert (await key.remove("eve", project_id=room)).status_code == 403
    assert (await key.remove("eve")).status_code == 403


async def test_a_scoped_administrator_stays_in_its_organization(owner: Key) -> None:
    other = (await owner.ask("POST", "/v1/organizations", json={"title": "Bolt"})).json()["id"]
    key = await owner.make("platform_admin", scopes=["members.read"])
    answer = await key.ask("GET", "/v1/members", headers={"OpenAI-Organization": other})
    assert answer.status_code == 403


async def test_a_key_is_taken_from_its_networks_alone(owner: Key) -> None:
    key = await owner.make("organization_owner", networks=[ELSEWHERE])
    refused = await key.ask("GET", "/v1/me")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "address_not_allowed")
    assert "192.0.2" not in refused.text
    assert (await key.ask("GET", "/v1/me", headers=BEHIND)).status_code == 200
    # What is before our own proxy's entry was written by the client.
    forged = {"X-Forwarded-For": "192.0.2.7, 198.51.100.1"}
    assert (await key.ask("GET", "/v1/me", headers=forged)).status_code == 403
    here = await owner.make("organization_owner", networks=[HERE, "2001:db8::/32"])
    assert await here.status() == 200
    assert (await here.ask("GET", "/v1/me", headers=BEHIND)).status_code == 403


async def test_a_key_does_not_widen_itself_nor_what_stands_above_it(owner: Key) -> None:
    room = await project(owner)
    scopes = ["keys.write", "keys.read", "files.read"]
    key = await owner.make(
        "project_owner", project_id=room, scopes=scopes, networks=[HERE], expires_in=3600
    )
    child = await key.make("project_owner")
    for who in (key, child):
        for body, where in (
            ({"scopes": []}, None),
            ({"scopes": [*scopes, "jobs.read"]}, None),
            ({"networks": []}, "networks"),
            ({"networks": ["0.0.0.0/0"]}, "networks"),
            ({"expires_in": 0}, "expires_in"),
            ({"expires_in": 7200}, "expires_in"),
        ):
            refused = await update(who, key, **body)
            # A child does not even see it.
            expected = (400 if where else 403) if who is key else 404
            assert refused.status_code == expected, (body, refused.text)
    assert (await update(key, key, name="renamed")).json()["name"] == "renamed"
    assert (await update(key, key, scopes=["files.read"])).status_code == 200
    assert (await update(key, key, name="again")).status_code == 403


async def test_scopes_hold_against_keys_of_others(owner: Key) -> None:
    """To administer projects is not to administer their members' keys."""
    room = await project(owner)
    bob = await join(owner, "bob", "project_member", room)
    strong = await owner.make("organization_owner")
    key = await owner.make("organization_owner", scopes=["keys.write", "projects.write"])
    for whose in (bob, strong):
        assert (await key.revoke(whose)).status_code == 404
        assert (await update(key, whose, expires_in=1)).status_code == 404
        refused = await key.ask("POST", f"/v1/api_keys/{whose.id}/rotate", json={})
        assert refused.status_code == 404


async def test_a_narrow_key_of_the_organization_is_its_own(owner: Key) -> None:
    key = await owner.make("organization_owner", scopes=["keys.read", "keys.write"])
    assert await key.sees() == {key.id}
    assert (await update(key, key, name="mine")).status_code == 200
    assert (await key.ask("POST", f"/v1/api_keys/{key.id}/rotate", json={})).status_code == 200


async def test_a_change_reaches_what_lives_below_a_key_that_has_ended(owner: Key) -> None:
    room = await project(owner)
    await owner.put("xena", "organization_owner")
    await owner.put("xena", "project_owner", project_id=room)
    await owner.put("bob", "project_member", project_id=room)
    top = await owner.make("organization_owner", user_id="xena")
    between = await top.make("project_owner", project_id=room)
    below = await between.make(user_id="bob")
    assert (await owner.remove("xena", project_id=room)).status_code == 200
    await between.ends_within_a_second()
    assert await below.status() == 200
    assert (await update(owner, top, scopes=["files.read"])).status_code == 200
    expected = {"files.read", "self.read"}
    await until(lambda: permissions(below), SECONDS, holds=lambda got: got == expected)
    assert (await update(owner, below, name="renamed")).status_code == 200
    assert param(await update(owner, below, scopes=[])) == (400, "scopes")


async def test_a_change_of_many_leaves_others_their_turn(owner: Key) -> None:
    """Whoever has many keys with many networks narrows none of them by a change of a name."""
    nets = [f"2001:db8:{n:x}::/48" for n in range(MAX_KEY_NETWORKS)]
    key = await owner.make("organization_owner", networks=[*nets[1:], HERE])
    async with owner.front.app.database.begin() as connection:
        row = (await connection.execute(api_keys.select().where(api_keys.c.id == key.id))).one()
        rows = [
            dict(row._mapping) | {"id": f"key_{n}", "digest": b"%d" % n, "parent_key_id": key.id}
            for n in range(2000)
        ]
        await connection.execute(api_keys.insert(), rows)
    # Seconds for all of them, where each comparison in Python took forty milliseconds.
    with within(30):
        assert (await update(owner, key, name="renamed")).status_code == 200
        assert (await update(owner, key, networks=[HERE])).status_code == 200
    async with owner.front.app.database.autocommit() as connection:
        left = sa.select(sa.func.count()).where(api_keys.c.networks == [HERE])
        assert await connection.scalar(left) == 2001


async def test_a_change_reaches_what_was_made_with_the_key(owner: Key) -> None:
    key = await owner.make("organization_owner")
    both = await key.make("organization_owner", scopes=["files.read", "jobs.read"])
    lower = await key.make("organization_owner")
    files = await key.make("organization_owner", scopes=["files.read"])
    assert await files.status() == 200
    changed = await update(owner, key, scopes=["jobs.read", "keys.write"], networks=[HERE])
    assert changed.status_code == 200, changed.text

    async def seen() -> list[set[str]]:
        return [await permissions(one) for one in (key, both, lower)]

    full = {"jobs.read", "keys.write", "self.read"}
    await until(seen, SECONDS, holds=lambda got: got == [full, {"jobs.read", "self.read"}, full])
    # Nothing is left of a key that had something else alone.
    assert "revoked" in await files.ends_within_a_second()
    listed = (await owner.ask("GET", "/v1/api_keys", params={"limit": 100})).json()["data"]
    assert {one["id"]: one["networks"] for one in listed}[lower.id] == [HERE]
    # Wider again: the key is, and what was narrowed with it is not.
    assert (await update(owner, key, scopes=[], networks=[])).status_code == 200
    await until(lambda: permissions(key), SECONDS, holds=lambda got: "files.read" in got)
    assert await permissions(lower) == full


async def test_others_neither_see_nor_change_a_key(owner: Key) -> None:
    room = await project(owner)
    bob = await join(owner, "bob", "project_member", room)
    carol = await join(owner, "carol", "project_owner", room)
    strong = await owner.make("organization_owner")
    made = (await owner.ask("POST", "/v1/organizations", json={"title": "Bolt"})).json()["id"]
    headers = {"OpenAI-Organization": made}
    body = {"name": "o", "role": "organization_owner"}
    answer = await owner.ask("POST", "/v1/api_keys", json=body, headers=headers)
    stranger = Key(owner.front, "", answer.json()["value"], {})
    for who, whose in ((stranger, bob), (bob, carol), (carol, strong), (bob, strong)):
        for path, body in (("", {"name": "mine"}), ("/rotate", {})):
            method = "POST" if path else "PATCH"
            refused = await who.ask(method, f"/v1/api_keys/{whose.id}{path}", json=body)
            assert refused.status_code == 404, refused.text
        assert await whose.status() == 200


async def test_networks_change_within_a_second(owner: Key) -> None:
    key = await owner.make("organization_owner")
    assert (await key.ask("GET", "/v1/me", headers=BEHIND)).status_code == 200
    assert (await update(owner, key, networks=[HERE])).status_code == 200

    async def status() -> int:
        return (await key.ask("GET", "/v1/me", headers=BEHIND)).status_code

    await until(status, SECONDS, holds=lambda got: got == 403)
    assert await key.status() == 200


async def test_the_last_use_is_noted_with_its_address(owner: Key) -> None:
    key = await owner.make("organization_owner")
    assert (await key.ask("GET", "/v1/me", headers=BEHIND)).status_code == 200

    async def used() -> str:
        listed = (await owner.ask("GET", "/v1/api_keys", params={"limit": 100})).json()["data"]
        return str(next(one for one in listed if one["id"] == key.id)["last_used_address"])

    await until(used, holds=lambda address: address == "192.0.2.7")
