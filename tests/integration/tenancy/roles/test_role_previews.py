"""Previews of changes of roles: who and which keys would gain or lose, and that nothing changes."""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.clients.openai_admin import foreign_key
from tests.support.services.front import running_front
from tests.support.services.member_keys import Key, join, project

Place = tuple[Any, list[str], list[str]]
POWER = ["files.read", "secrets.write"]


@pytest.fixture
async def owner(database_url: str, tmp_path: Path) -> AsyncIterator[Key]:
    async with running_front(database_url, tmp_path / "data") as front:
        yield Key(front, "", front.owner_key, {})


def at(room: str) -> str:
    return f"/v1/projects/{room}" if room else "/v1/organization"


async def ok(answer: httpx.Response) -> Any:
    assert answer.status_code == 200, answer.text
    return answer.json()


async def role_of(owner: Key, room: str, *permissions: str) -> str:
    body = {"role_name": f"r{time.time_ns()}", "permissions": permissions}
    return str((await ok(await owner.ask("POST", f"{at(room)}/roles", json=body)))["id"])


async def give(owner: Key, room: str, kind: str, holder: str, role: str, **body: Any) -> None:
    path = f"{at(room)}/{kind}s/{holder}/roles"
    await ok(await owner.ask("POST", path, json={"role_id": role, **body}))


async def group_of(owner: Key, *people: str) -> str:
    name = f"g{time.time_ns()}"
    made = await ok(await owner.ask("POST", "/v1/organization/groups", json={"name": name}))
    for person in people:
        path = f"/v1/organization/groups/{made['id']}/users"
        await ok(await owner.ask("POST", path, json={"user_id": person}))
    return str(made["id"])


async def try_preview(by: Key, room: str, role: str, **change: Any) -> httpx.Response:
    query = change.pop("query", {})
    return await by.ask("POST", f"{at(room)}/roles/{role}/preview", json=change, params=query)


def gains(answer: Any) -> dict[str, list[Place]]:
    return {
        one["user_id"]: [(p["project_id"], p["gains"], p["losses"]) for p in one["places"]]
        for one in answer["data"]
    }


def keys(answer: Any) -> dict[str, tuple[list[str], list[str], bool]]:
    return {one["key_id"]: (one["gains"], one["losses"], one["ends"]) for one in answer["keys"]}


async def test_who_and_which_keys_lose_by_a_change_that_is_not_made(owner: Key) -> None:
    room = await project(owner)
    for user in ("ann", "bob", "cleo"):
        await join(owner, user, "organization_reader")
    role = await role_of(owner, room, *POWER)
    await give(owner, room, "user", "ann", role, expires_in_seconds=3600)
    group = await group_of(owner, "bob", "cleo")
    await give(owner, room, "group", group, role)
    # Cleo keeps what a second role gives her.
    await give(owner, room, "user", "cleo", await role_of(owner, room, "secrets.write"))
    body = {"project_id": room, "scopes": POWER}
    key = await owner.make("project_owner", user_id="ann", name="deploy", **body)
    narrow = await owner.make(
        "project_owner", user_id="bob", project_id=room, scopes=["files.read"]
    )
    own = await owner.make("project_owner", user_id="cleo", **body)

    fewer = await ok(
        await try_preview(owner, room, role, change="update", permissions=["files.read"])
    )
    assert gains(fewer) == {
        "ann": [(room, [], ["secrets.write"])],
        "bob": [(room, [], ["secrets.write"])],
        "cleo": [],
    }
    ann, bob = fewer["data"][:2]
    assert [(one["group_id"], one["project_id"]) for one in ann["by"]] == [(None, room)]
    assert abs(ann["by"][0]["ends_at"] - time.time() - 3600) < 60
    assert [one["group_id"] for one in bob["by"]] == [group]
    assert keys(fewer) == {key.id: ([], ["secrets.write"], False)}
    assert fewer["keys"][0]["redacted"].endswith(key.secret[-4:])
    assert key.secret not in str(fewer)

    gone = await ok(await try_preview(owner, room, role, change="delete"))
    assert gains(gone)["bob"] == [(room, [], POWER)]
    assert gains(gone)["cleo"] == [(room, [], ["files.read"])]
    assert keys(gone) == {
        key.id: ([], [*POWER, "self.read"], True),
        narrow.id: ([], ["files.read", "self.read"], True),
        own.id: ([], ["files.read"], False),
    }
    wider = [*POWER, "jobs.read"]
    more = await ok(await try_preview(owner, room, role, change="update", permissions=wider))
    assert gains(more)["ann"] == [(room, ["jobs.read"], [])]
    # A key gains within its scopes alone.
    assert keys(more) == {}

    assert (await owner.ask("GET", f"{at(room)}/roles/{role}")).json()["permissions"] == POWER
    assert (await key.ask("PUT", "/v1/secrets/token", json={"value": "x"})).status_code == 200
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 1}
    while True:
        page = await ok(await try_preview(owner, room, role, change="delete", query=query))
        seen += [one["user_id"] for one in page["data"]]
        if not page["has_more"]:
            break
        query["after"] = page["last_id"]
    assert seen == ["ann", "bob", "cleo"]


async def test_a_role_in_all_of_the_organization_spares_what_projects_give(owner: Key) -> None:
    room = await project(owner)
    await join(owner, "ann", "organization_reader")
    await join(owner, "ann", "project_member", room)
    role = await role_of(owner, "", "files.read", "jobs.write")
    given = await ok(await try_preview(owner, "", role, change="give", user_id="ann"))
    everywhere: Place = (None, ["files.read", "jobs.write"], [])
    assert gains(given) == {"ann": [everywhere, (room, [], [])]}
    assert [one["ends_at"] for one in given["data"][0]["by"]] == [None]
    await give(owner, "", "user", "ann", role)
    taken = await ok(await try_preview(owner, "", role, change="take", user_id="ann"))
    assert gains(taken) == {"ann": [(None, [], ["files.read", "jobs.write"]), (room, [], [])]}
    # Of somebody else who has it, nothing is said.
    await join(owner, "bob", "organization_reader")
    asked = await ok(await try_preview(owner, "", role, change="give", user_id="bob"))
    assert gains(asked) == {"bob": [everywhere]}
    empty = await ok(await try_preview(owner, "", role, change="take", user_id="bob"))
    assert empty["data"] == empty["keys"] == []


async def test_a_key_gains_where_all_behind_it_do(owner: Key) -> None:
    room = await project(owner)
    boss = await join(owner, "boss", "project_owner", room)
    await join(owner, "ann", "project_member", room)
    role = await role_of(owner, room, "secrets.write")
    await give(owner, room, "user", "ann", role)
    scopes = ["secrets.read", "secrets.write"]
    rested = await boss.make("project_owner", project_id=room, user_id="ann", scopes=scopes)
    await owner.ask("DELETE", f"{at(room)}/users/ann/roles/{role}")
    await owner.put("boss", "project_member", project_id=room)
    gained: list[Place] = [(room, ["secrets.write"], [])]
    alone = await ok(await try_preview(owner, room, role, change="give", user_id="ann"))
    assert gains(alone) == {"ann": gained}
    assert keys(alone) == {}
    group = await group_of(owner, "ann", "boss")
    # One page has the first of them alone, and judges the key by both.
    query = {"limit": 1}
    both = await try_preview(owner, room, role, change="give", group_id=group, query=query)
    assert gains(await ok(both)) == {"ann": gained}
    assert keys(both.json()) == {rested.id: (["secrets.write"], [], False)}


async def test_a_preview_is_refused_where_its_change_is(owner: Key) -> None:
    room, other = await project(owner), await project(owner)
    ann = await join(owner, "ann", "project_member", room)
    boss = await join(owner, "boss", "project_owner", room)
    narrow = await boss.make(
        "project_owner", project_id=room, scopes=["members.read", "files.read"]
    )
    weak = await boss.make(
        "project_owner", project_id=room, scopes=["members.read", "members.write", "files.read"]
    )
    strong, wide = (
        await role_of(boss, room, "secrets.write"),
        await role_of(owner, "", "files.read"),
    )
    update = {"change": "update", "permissions": ["files.read"]}
    assert (await try_preview(boss, room, strong, **update)).status_code == 200
    for by in (ann, narrow, weak):
        assert (await try_preview(by, room, strong, **update)).status_code == 403
    assert (await try_preview(weak, room, strong, change="delete")).status_code == 403
    assert (await try_preview(weak, room, strong, change="give", user_id="ann")).status_code == 403
    assert (await try_preview(boss, "", wide, change="delete")).status_code == 404
    assert (await try_preview(boss, "", wide, change="give", user_id="ann")).status_code == 403
    # Nor does it say where else somebody has the role.
    await join(owner, "ann", "project_member", other)
    await give(owner, other, "user", "ann", wide)
    given = await ok(await try_preview(boss, room, wide, change="give", user_id="ann"))
    assert [one["project_id"] for one in given["data"][0]["by"]] == [room]
    assert other not in str(given)
    assert (await try_preview(boss, other, wide, change="give", user_id="ann")).status_code == 403
    stranger = Key(owner.front, "", await foreign_key(owner.front), {})
    for role in (strong, "role_none"):
        said = await try_preview(stranger, "", role, change="delete")
        assert (said.status_code, said.json()["error"]["message"]) == (404, f"No role '{role}'.")
    for change, param in (
        ({"change": "update", "permissions": ["platform.write"]}, "permissions"),
        ({"change": "update"}, "permissions"),
        ({"change": "delete", "user_id": "ann"}, "user_id"),
        ({"change": "give"}, "user_id"),
        ({"change": "give", "user_id": "nobody"}, "user_id"),
        ({"change": "take", "user_id": "ann", "expires_in_seconds": 5}, "expires_in_seconds"),
        ({"change": "swap"}, "change"),
    ):
        refused = await try_preview(owner, room, strong, **change)
        error = refused.json()["error"]
        assert (refused.status_code, error["param"]) == (400, param), error
