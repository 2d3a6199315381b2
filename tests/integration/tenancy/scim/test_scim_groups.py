"""Groups by SCIM: their people have their roles, and nobody but the directory changes them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.services.member_keys import SECONDS, Key, join, project
from tests.support.services.scim import (
    OF_A_GROUP,
    OF_A_PATCH,
    OF_A_USER,
    SCOPES,
    Scim,
    running_directory,
)
from tests.support.waiting import until


@pytest.fixture
async def scim(database_url: str, tmp_path: Path) -> AsyncIterator[Scim]:
    async with running_directory(database_url, tmp_path / "data") as scim:
        yield scim


async def people(scim: Scim, path: str) -> list[str]:
    group = await scim.done("GET", path)
    return [one["value"] for one in group.get("members", [])]


async def may(key: Key) -> set[str]:
    return await key.permissions()


async def has(key: Key, permission: str, *, so: bool) -> None:
    await until(lambda: may(key), SECONDS, holds=lambda found: (permission in found) == so)


async def test_groups_as_okta_and_entra_change_them(scim: Scim) -> None:
    ids = [(await scim.user(name))["id"] for name in ("ann", "ben", "cid")]
    group = await scim.group("Search", *ids[:2])
    path = f"/Groups/{group['id']}"
    assert group["members"][0] == {
        "value": "ann",
        "$ref": f"{scim.front.url}/scim/v2/Users/ann",
        "type": "User",
    }
    for operations, left in (
        ([{"op": "Add", "path": "members", "value": [{"value": "cid"}, {"value": "ann"}]}], ids),
        ([{"op": "Remove", "path": "members", "value": [{"value": "ben"}]}], ["ann", "cid"]),
        # Again, and of somebody who was never there.
        ([{"op": "remove", "path": 'members[value eq "ben"]'}], ["ann", "cid"]),
        ([{"op": "remove", "path": 'members[value eq "ann" or value eq "x"]'}], ["cid"]),
        ([{"op": "replace", "path": "members", "value": [{"value": "ben"}]}], ["ben"]),
        ([{"op": "replace", "value": {"id": group["id"], "displayName": "Ads"}}], ["ben"]),
        ([{"op": "add", "value": {"members": [{"value": "ann"}]}},
          {"op": "remove", "path": 'members[value eq "ben"]'}], ["ann"]),
        ([{"op": "remove", "path": "members"},
          {"op": "add", "path": "members", "value": [{"value": "cid"}]}], ["cid"]),
    ):  # fmt: skip
        changed = await scim.patch(path, *operations)
        assert [one["value"] for one in changed["members"]] == left, operations
    assert changed["displayName"] == "Ads"
    # The same again is no change.
    again = {"op": "add", "path": "members", "value": [{"value": "cid"}]}
    same = await scim.patch(path, again, headers={"If-Match": changed["meta"]["version"]})
    assert same["meta"]["version"] == changed["meta"]["version"]
    stale = await scim.refused("DELETE", path, headers={"If-Match": group["meta"]["version"]})
    assert stale["status"] == "412"
    put = {"schemas": [OF_A_GROUP], "displayName": "Ads", "externalId": "9"}
    assert "members" not in await scim.done("PUT", path, put)
    query = {"filter": 'externalId eq "9" and displayName eq "ADS"'}
    assert (await scim.done("GET", "/Groups", params=query))["totalResults"] == 1
    await scim.patch(path, again)
    for text, total in (
        ('members.value eq "cid"', 1), ('members[value eq "ann"]', 0), ("members pr", 1),
        ('displayName eq "x\' OR 1=1"', 0),
    ):  # fmt: skip
        query = {"filter": text, "excludedAttributes": "members"}
        listed = await scim.done("GET", "/Groups", params=query)
        assert listed["totalResults"] == total, text
        assert all("members" not in one for one in listed["Resources"])
    strange = {"op": "add", "path": "members", "value": [{"value": "nobody"}]}
    nested = {"op": "add", "path": "members", "value": [{"value": group["id"], "type": "Group"}]}
    for wrong in (strange, nested, {"op": "add", "path": "members", "value": ["ann"]}):
        patch = {"schemas": [OF_A_PATCH], "Operations": [wrong]}
        said = await scim.refused("PATCH", path, patch)
        assert said["scimType"] == "invalidValue"
    twice = {"schemas": [OF_A_GROUP], "displayName": "Ads"}
    assert (await scim.refused("POST", "/Groups", twice))["scimType"] == "uniqueness"
    # Who leaves the organization is in no group, of which the version tells.
    before = (await scim.done("GET", path))["meta"]["version"]
    await scim.done("DELETE", "/Users/cid")
    after = await scim.done("GET", path)
    assert "members" not in after
    assert after["meta"]["version"] != before
    assert await scim.done("DELETE", path) is None
    assert (await scim.refused("GET", path))["status"] == "404"


async def test_roles_come_by_groups(scim: Scim) -> None:
    room = await project(scim.owner)
    body = {"role_name": "keeper", "permissions": ["secrets.write"]}
    role = (await scim.owner.ask("POST", f"/v1/projects/{room}/roles", json=body)).json()["id"]
    key = await join(scim.owner, "ann", "project_member", room)
    # Named like a role, it gives nothing.
    group = await scim.group("platform_admin", "ann")
    assert "platform.write" not in await may(key)
    held = f"/v1/projects/{room}/groups/{group['id']}/roles"
    assert (await scim.owner.ask("POST", held, json={"role_id": role})).status_code == 200
    wide = await scim.owner.make(
        "project_owner", project_id=room, user_id="ann", scopes=["secrets.write", "secrets.read"]
    )
    await has(wide, "secrets.write", so=True)
    await scim.patch(f"/Groups/{group['id']}", {"op": "remove", "path": 'members[value eq "ann"]'})
    await has(wide, "secrets.write", so=False)
    await scim.patch(
        f"/Groups/{group['id']}", {"op": "add", "path": "members", "value": [{"value": "ann"}]}
    )
    await has(wide, "secrets.write", so=True)
    await scim.done("DELETE", f"/Groups/{group['id']}")
    await has(wide, "secrets.write", so=False)


async def test_what_the_directory_manages_is_read_only_elsewhere(scim: Scim) -> None:
    await scim.user("ann")
    mine = (await scim.owner.ask("POST", "/v1/organization/groups", json={"name": "Mine"})).json()
    path, users = f"/v1/organization/groups/{mine['id']}", "users"
    assert (await scim.owner.ask("POST", f"{path}/{users}", json={"user_id": "ann"})).is_success
    assert await people(scim, f"/Groups/{mine['id']}") == ["ann"]
    await scim.patch(f"/Groups/{mine['id']}", {"op": "replace", "path": "externalId", "value": "1"})
    assert (await scim.owner.ask("GET", path)).json()["is_scim_managed"] is True
    for method, below, body in (
        ("POST", "", {"name": "Other"}), ("DELETE", "", None),
        ("POST", "/users", {"user_id": "ann"}), ("DELETE", "/users/ann", None),
    ):  # fmt: skip
        refused = await scim.owner.ask(method, path + below, json=body)
        assert refused.status_code == 409
        assert refused.json()["error"]["code"] == "managed_by_directory"
    assert (await scim.owner.ask("DELETE", "/v1/organization/directory")).is_success
    assert (await scim.owner.ask("GET", path)).json()["is_scim_managed"] is False
    assert (await scim.owner.ask("DELETE", f"{path}/users/ann")).is_success


async def test_a_key_has_no_more_power_than_its_role(scim: Scim) -> None:
    """Whoever gets the permission by a role of the tenant's own does not get its owners' power."""
    body = {"role_name": "desk", "permissions": SCOPES}
    role = (await scim.owner.ask("POST", "/v1/organization/roles", json=body)).json()["id"]
    await scim.owner.put("bob", "organization_reader")
    held = "/v1/organization/users/bob/roles"
    assert (await scim.owner.ask("POST", held, json={"role_id": role})).is_success
    key = await scim.owner.make("organization_owner", user_id="bob", scopes=SCOPES)
    desk = Scim(scim.front, scim.owner, key)
    await scim.owner.put("boss", "organization_owner")
    strong: dict[str, Any] = {"role_name": "strong", "permissions": ["jobs.write"]}
    role = (await scim.owner.ask("POST", "/v1/organization/roles", json=strong)).json()["id"]
    group = await scim.group("Strong")
    given = await scim.owner.ask(
        "POST", f"/v1/organization/groups/{group['id']}/roles", json={"role_id": role}
    )
    assert given.is_success, given.text
    assert (await desk.user("new"))["id"] == "new"
    assert (await desk.active("new", so=False))["active"] is False
    joined = {"schemas": [OF_A_GROUP], "displayName": "Strong", "members": [{"value": "bob"}]}
    boss = {"schemas": [OF_A_USER], "userName": "boss"}
    # Of the same role as bob, and more by one of the tenant's own.
    await scim.owner.put("keeper", "organization_reader")
    held = "/v1/organization/users/keeper/roles"
    assert (await scim.owner.ask("POST", held, json={"role_id": role})).is_success
    for method, path, said in (
        ("PUT", f"/Groups/{group['id']}", joined),
        ("DELETE", f"/Groups/{group['id']}", None),
        ("PUT", "/Users/boss", {**boss, "active": False}),
        ("DELETE", "/Users/boss", None),
        ("PUT", "/Users/keeper", {**boss, "userName": "keeper", "externalId": "eve"}),
        ("DELETE", "/Users/keeper", None),
    ):
        assert (await desk.refused(method, path, said))["status"] == "403"
    # The directory's own key sees to people and groups, and to nothing else.
    for method, path in (("GET", "/v1/files"), ("PUT", "/v1/members"), ("GET", "/v1/members")):
        answer = await scim.key.ask(method, path, json={"user_id": "x", "role": "project_member"})
        assert answer.status_code == 403
    none = await scim.owner.ask("PUT", "/v1/organization/directory", json={"role": None})
    assert none.json()["role"] is None
    await scim.user("guest")
    members = (await scim.owner.ask("GET", "/v1/members")).json()["data"]
    assert "guest" not in {one["user_id"] for one in members}
    for role in ("organization_owner", "project_member"):
        refused = await scim.owner.ask("PUT", "/v1/organization/directory", json={"role": role})
        assert refused.status_code == 400


async def test_who_leaves_a_project_stays_in_the_directory_s_groups(scim: Scim) -> None:
    none = await scim.owner.ask("PUT", "/v1/organization/directory", json={"role": None})
    assert none.json()["role"] is None
    guest = await scim.user("guest", displayName="Guest")
    group = await scim.group("Research", guest["id"])
    room = await project(scim.owner)
    await scim.owner.put("guest", "project_member", project_id=room)
    await scim.owner.remove("guest", project_id=room)
    found = await scim.done("GET", f"/Groups/{group['id']}")
    assert [one["value"] for one in found["members"]] == ["guest"]
    assert (await scim.done("GET", "/Users/guest"))["displayName"] == "Guest"
    await scim.done("DELETE", "/Users/guest")
    assert "members" not in await scim.done("GET", f"/Groups/{group['id']}")
