"""Roles that tenants make: what they add to a membership, and who cannot gain by them."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.services.front import running_front
from tests.support.services.member_keys import SECONDS, Key, join, project
from tests.support.waiting import until

SECRET = {"value": "x"}


@pytest.fixture
async def owner(database_url: str, tmp_path: Path) -> AsyncIterator[Key]:
    async with running_front(database_url, tmp_path / "data") as front:
        yield Key(front, "", front.owner_key, {})


@pytest.fixture
async def room(owner: Key) -> str:
    return await project(owner)


def at(room: str) -> str:
    return f"/v1/projects/{room}" if room else "/v1/organization"


async def make_role(by: Key, room: str, *permissions: str) -> str:
    answer = await try_role(by, room, *permissions)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


async def try_role(by: Key, room: str, *permissions: str) -> httpx.Response:
    body = {"role_name": f"r{time.time_ns()}", "permissions": permissions}
    return await by.ask("POST", f"{at(room)}/roles", json=body)


async def give(by: Key, room: str, user: str, role: str, **body: Any) -> httpx.Response:
    return await by.ask("POST", f"{at(room)}/users/{user}/roles", json={"role_id": role, **body})


async def take(by: Key, room: str, user: str, role: str) -> httpx.Response:
    return await by.ask("DELETE", f"{at(room)}/users/{user}/roles/{role}")


async def may(key: Key) -> set[str]:
    return await key.permissions()


async def put_secret(key: Key) -> int:
    return (await key.ask("PUT", "/v1/secrets/token", json=SECRET)).status_code


async def gets(key: Key, permission: str) -> None:
    await until(lambda: may(key), SECONDS, holds=lambda found: permission in found)


async def loses(key: Key, permission: str) -> None:
    await until(lambda: may(key), SECONDS, holds=lambda found: permission not in found)


async def test_a_role_adds_to_a_membership_and_is_taken_again(owner: Key, room: str) -> None:
    ann = await join(owner, "ann", "project_member", room)
    assert (await ann.try_make("project_owner", project_id=room)).status_code == 403
    role = await make_role(owner, room, "secrets.write")
    assert (await give(owner, room, "ann", role)).status_code == 200
    # Nobody's key becomes wider by itself: its own role is what it has at most.
    assert "secrets.write" not in await may(ann)
    own = await join_key(owner, "ann", room, ["secrets.write", "secrets.read"])
    assert await may(own) == {"secrets.write", "secrets.read", "self.read"}
    assert await put_secret(own) == 200
    assert await put_secret(ann) == 403
    assert (await take(owner, room, "ann", role)).status_code == 200
    await loses(own, "secrets.write")
    assert await put_secret(own) == 403
    assert "secrets.read" in await may(own)
    assert (await take(owner, room, "ann", role)).status_code == 404


async def join_key(owner: Key, user: str, room: str, scopes: list[str]) -> Key:
    return await owner.make("project_owner", project_id=room, user_id=user, scopes=scopes)


async def test_jobs_without_exec_for_who_is_no_member_of_the_project(owner: Key, room: str) -> None:
    ann = await join(owner, "ann", "organization_reader")
    scopes = ["files.read", "files.write", "jobs.read", "jobs.write"]
    body = {"project_id": room, "user_id": "ann", "scopes": scopes}
    assert (await owner.try_make("project_member", **body)).status_code == 400
    role = await make_role(owner, "", *scopes)
    assert (await give(owner, room, "ann", role)).status_code == 200
    key = await owner.make("project_member", **body)
    assert await may(key) == {*scopes, "self.read"}
    assert await key.roles() == []
    assert (await key.ask("GET", "/v1/fine_tuning/jobs")).status_code == 200
    assert (await key.ask("GET", "/v1/models")).status_code == 403
    other = await project(owner)
    await owner.try_make("project_member", **{**body, "project_id": other})
    assert (
        await owner.try_make("project_member", **{**body, "project_id": other})
    ).status_code == 400
    assert (await owner.remove("ann")).status_code == 200
    assert await key.ends_within_a_second()
    assert await ann.status() == 401
    # Who comes back does not have it any more.
    again = await owner.put("ann", "organization_reader")
    assert again.status_code == 200
    assert (await owner.try_make("project_member", **body)).status_code == 400


async def test_a_role_of_the_organization_holds_in_every_project(owner: Key, room: str) -> None:
    await join(owner, "ann", "organization_reader")
    role = await make_role(owner, "", "files.read")
    assert (await give(owner, "", "ann", role)).status_code == 200
    for where in (room, await project(owner)):
        key = await owner.make(
            "project_member", project_id=where, user_id="ann", scopes=["files.read"]
        )
        assert (await key.ask("GET", "/v1/files")).status_code == 200


async def test_a_role_ends_at_its_time(owner: Key, room: str) -> None:
    await join(owner, "ann", "project_member", room)
    role = await make_role(owner, room, "secrets.write")
    given = await give(owner, room, "ann", role, expires_in_seconds=6)
    assert given.status_code == 200
    key = await join_key(owner, "ann", room, ["secrets.write", "secrets.read"])
    assert "secrets.write" in await may(key)
    shown = (await owner.ask("GET", f"{at(room)}/users/ann/roles/{role}")).json()
    end = shown["metadata"]["ends_at"]
    await asyncio.sleep(max(0.0, end - time.time()))
    await until(lambda: may(key), SECONDS, holds=lambda found: "secrets.write" not in found)
    listed = (await owner.ask("GET", f"{at(room)}/users/ann/roles")).json()
    assert listed["data"] == []


async def test_holders_follow_a_role(owner: Key, room: str) -> None:
    await join(owner, "ann", "project_member", room)
    role = await make_role(owner, room, "members.read")
    await give(owner, room, "ann", role)
    key = await join_key(owner, "ann", room, ["members.read"])
    path = f"{at(room)}/roles/{role}"
    assert "members.read" in await may(key)
    await owner.ask("POST", path, json={"permissions": ["secrets.write"]})
    await loses(key, "members.read")
    await owner.ask("POST", path, json={"permissions": ["members.read", "secrets.write"]})
    await gets(key, "members.read")
    assert (await owner.ask("DELETE", path)).status_code == 200
    await loses(key, "members.read")
    assert (await owner.ask("GET", path)).status_code == 404


async def test_a_key_has_what_its_maker_may_give(owner: Key, room: str) -> None:
    boss = await join(owner, "boss", "project_owner", room)
    await join(owner, "ann", "project_member", room)
    role = await make_role(boss, room, "secrets.write")
    assert (await give(boss, room, "ann", role)).status_code == 200
    key = await join_key(boss, "ann", room, ["secrets.write", "secrets.read"])
    assert "secrets.write" in await may(key)
    assert (await owner.put("boss", "project_member", project_id=room)).status_code == 200
    await loses(key, "secrets.write")
    assert "secrets.read" in await may(key)


async def test_nobody_makes_or_gives_more_than_they_have(owner: Key, room: str) -> None:
    boss = await join(owner, "boss", "project_owner", room)
    await join(owner, "ann", "project_member", room)
    narrow = await boss.make(
        "project_owner", project_id=room, scopes=["members.read", "members.write", "files.read"]
    )
    strong = await make_role(boss, room, "secrets.write")
    weak = await make_role(narrow, room, "files.read")
    assert (await try_role(narrow, room, "secrets.write")).status_code == 403
    assert (await give(narrow, room, "ann", strong)).status_code == 403
    assert (await give(narrow, room, "ann", weak)).status_code == 200
    path = f"{at(room)}/roles"
    wider = {"permissions": ["files.read", "secrets.write"]}
    assert (await narrow.ask("POST", f"{path}/{weak}", json=wider)).status_code == 403
    rename = {"role_name": "mine"}
    assert (await narrow.ask("POST", f"{path}/{strong}", json=rename)).status_code == 403
    assert (await narrow.ask("DELETE", f"{path}/{strong}")).status_code == 403
    await give(boss, room, "ann", strong)
    assert (await take(narrow, room, "ann", strong)).status_code == 403

    # Of an organization, and of another project, neither.
    assert (await try_role(boss, "", "files.read")).status_code in (403, 404)
    of_organization = await make_role(owner, "", "files.read")
    seen = (await boss.ask("GET", "/v1/organization/roles")).json()["data"]
    assert [one["id"] for one in seen] == [of_organization]
    path = f"/v1/organization/roles/{of_organization}"
    assert (await boss.ask("POST", path, json=rename)).status_code == 404
    assert (await boss.ask("DELETE", path)).status_code == 404
    assert (await give(boss, room, "ann", of_organization)).status_code == 200
    for beyond in ("audit.read", "platform.write", "all_projects.read", "no.such"):
        refused = await try_role(owner, room, beyond)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "permissions")
    assert (await try_role(owner, "", "platform.write")).status_code == 400


async def test_what_a_role_gives_is_not_handed_on(owner: Key, room: str) -> None:
    """Somebody who may administer until tomorrow gives nobody a role for ever."""
    await join(owner, "ann", "project_member", room)
    await join(owner, "bob", "project_member", room)
    power = ["members.read", "members.write", "secrets.write", "files.read", "keys.write"]
    role = await make_role(owner, room, *power)
    await give(owner, room, "ann", role, expires_in_seconds=3600)
    ann = await join_key(owner, "ann", room, power)
    assert await may(ann) >= set(power)
    for user in ("ann", "bob"):
        assert (await give(ann, room, user, role)).status_code == 403
    assert (await try_role(ann, room, "secrets.write")).status_code == 403
    assert (await ann.put("bob", "project_owner", project_id=room)).status_code == 403
    weak = await make_role(ann, room, "files.read")
    assert (await give(ann, room, "bob", weak)).status_code == 200
    # Of her own keys, too, none outlasts it: they rest on what she has.
    child = await ann.make("project_owner", project_id=room, scopes=["secrets.write", "files.read"])
    await take(owner, room, "ann", role)
    await loses(child, "secrets.write")
    assert "files.read" in await may(child)


async def test_who_may_not_administer_sees_and_changes_nothing(owner: Key, room: str) -> None:
    ann = await join(owner, "ann", "project_member", room)
    role = await make_role(owner, room, "files.read")
    for answer in (
        await try_role(ann, room, "files.read"),
        await ann.ask("GET", f"{at(room)}/roles"),
        await ann.ask("DELETE", f"{at(room)}/roles/{role}"),
        await give(ann, room, "ann", role),
        await take(ann, room, "ann", role),
        await ann.ask("GET", f"{at(room)}/users/ann/roles"),
    ):
        assert answer.status_code == 403, answer.text


async def test_who_may_and_by_what(owner: Key, room: str) -> None:
    ann = await join(owner, "ann", "project_member", room)
    await join(owner, "boss", "organization_owner")
    await join(owner, "eve", "organization_reader")
    role = await make_role(owner, room, "secrets.write", "members.read")
    name = (await owner.ask("GET", f"{at(room)}/roles/{role}")).json()["name"]
    await give(owner, room, "eve", role)
    group = (await owner.ask("POST", "/v1/organization/groups", json={"name": "G"})).json()["id"]
    await owner.ask("POST", f"/v1/organization/groups/{group}/users", json={"user_id": "ann"})
    await owner.ask("POST", f"{at(room)}/groups/{group}/roles", json={"role_id": role})

    async def who(by: Key, permission: str, **query: Any) -> dict[str, list[str]]:
        path, found = f"/v1/permissions/{permission}/holders", dict[str, list[str]]()
        query["limit"] = 1
        while True:
            page = (await by.ask("GET", path, params=query)).json()
            found |= {one["id"]: one["by"] for one in page["data"]}
            if not page["has_more"]:
                return found
            query["after"] = page["last_id"]

    assert await who(owner, "secrets.write", project_id=room) == {
        "ann": [f"{name} (G)"],
        "boss": ["organization_owner"],
        "eve": [name],
        "owner": ["platform_admin", "project_owner"],
    }
    assert (await who(owner, "secrets.write")).keys() == {"boss", "owner"}
    bad = await owner.ask("GET", "/v1/permissions/no.such/holders")
    assert (bad.status_code, bad.json()["error"]["param"]) == (400, "permission")
    assert (await ann.ask("GET", "/v1/permissions/files.read/holders")).status_code == 403
    mine = (await ann.ask("GET", "/v1/permissions/files.read")).json()
    assert (mine["allowed"], mine["reason"]) == (True, None)
    for path, why in (
        ("members.write", "grants"),
        ("no.such", "is not a permission"),
        (f"files.read?project_id={await project(owner)}", "another project"),
    ):
        said = (await ann.ask("GET", f"/v1/permissions/{path}")).json()
        assert not said["allowed"]
        assert why in said["reason"]


async def test_bad_input_names_the_field(owner: Key, room: str) -> None:
    await join(owner, "ann", "project_member", room)
    other = await project(owner)
    role = await make_role(owner, room, "files.read")
    name = (await owner.ask("GET", f"{at(room)}/roles/{role}")).json()["name"]
    path, taken = f"{at(room)}/roles", {"role_name": name, "permissions": ["files.read"]}
    assert (await owner.ask("POST", path, json=taken)).status_code == 409
    assert (await owner.ask("POST", f"{at(other)}/roles", json=taken)).status_code == 200
    for answer, param in (
        (await try_role(owner, room), "permissions"),
        (await owner.ask("POST", path, json={**taken, "role_name": "a\nb"}), "role_name"),
        (await give(owner, other, "ann", role), "role_id"),
        (await give(owner, room, "nobody", role), "user_id"),
        (await give(owner, room, "ann", role, expires_in_seconds=0), "expires_in_seconds"),
    ):
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) in ((400, param), (400, "name")), error
    assert (await give(owner, room, "ann", "role_none")).status_code == 404
    assert (await owner.ask("GET", f"{at(other)}/roles/{role}")).status_code == 404
