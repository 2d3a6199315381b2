"""Requests of a directory that come twice, late or in another order; and lists without members."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.services.member_keys import join, project
from tests.support.services.scim import OF_A_GROUP, OF_A_USER, Scim, running_directory

from windlass.gateway.scim.groups import ScimGroups

OF_A_BULK = "urn:ietf:params:scim:api:messages:2.0:BulkRequest"
ANN = {"schemas": [OF_A_USER], "userName": "ann"}


@pytest.fixture
async def scim(database_url: str, tmp_path: Path) -> AsyncIterator[Scim]:
    async with running_directory(database_url, tmp_path / "data") as scim:
        yield scim


async def test_a_deactivation_that_comes_again_changes_nothing(scim: Scim) -> None:
    await scim.user("ann")
    key = await join(scim.owner, "ann", "project_member", await project(scim.owner))
    first = await scim.active("ann", so=False)
    await key.ends_within_a_second()
    again = await scim.active("ann", so=False)
    assert (again["active"], again["meta"]["version"]) == (False, first["meta"]["version"])
    # A body that does not mention it is no activation either.
    put = {**ANN, "displayName": "Ann"}
    assert (await scim.done("PUT", "/Users/ann", put))["active"] is False
    assert (await scim.active("ann", so=False))["active"] is False
    assert await key.status() == 401


async def test_a_change_that_comes_late_is_refused_by_its_version(scim: Scim) -> None:
    old = (await scim.user("ann"))["meta"]["version"]
    await scim.active("ann", so=False)
    late = {"headers": {"If-Match": old}}
    body = {**ANN, "active": True}
    assert (await scim.refused("PUT", "/Users/ann", body, **late))["status"] == "412"
    assert (await scim.done("GET", "/Users/ann"))["active"] is False


async def test_who_is_created_after_a_removal_begins_anew(scim: Scim) -> None:
    old = (await scim.user("ann"))["meta"]["version"]
    key = await join(scim.owner, "ann", "project_member", await project(scim.owner))
    await scim.done("DELETE", "/Users/ann")
    assert (await scim.refused("DELETE", "/Users/ann"))["status"] == "404"
    await key.ends_within_a_second()
    created = await scim.user("ann")
    assert (await scim.refused("POST", "/Users", ANN))["scimType"] == "uniqueness"
    assert await key.status() == 401
    # What was meant for the person of before does not reach this one.
    path, late = f"/Users/{created['id']}", {"headers": {"If-Match": old}}
    for method, body in (("PUT", {**ANN, "active": False}), ("DELETE", None)):
        assert (await scim.refused(method, path, body, **late))["status"] == "412"
    assert (await scim.done("GET", path))["active"] is True


async def test_groups_are_listed_without_their_members(
    scim: Scim, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ann", "ben"):
        await scim.user(name)
    group = await scim.group("Search", "ann", "ben")
    path = f"/Groups/{group['id']}"
    without = {"params": {"excludedAttributes": "members"}}
    asked: list[str] = []
    found = ScimGroups._members

    async def noted(self: ScimGroups, group_id: str) -> list[str]:
        asked.append(group_id)
        return await found(self, group_id)

    monkeypatch.setattr(ScimGroups, "_members", noted)
    (listed,) = (await scim.done("GET", "/Groups", **without))["Resources"]
    assert (listed["displayName"], "members" in listed) == ("Search", False)
    assert "members" not in await scim.done("GET", path, **without)
    put = {"schemas": [OF_A_GROUP], "displayName": "Search", "members": [{"value": "ann"}]}
    assert "members" not in await scim.done("PUT", path, put, **without)
    # Nor are they looked up for a bulk request, whose answers show none.
    operation = {"method": "PUT", "path": path, "data": {**put, "displayName": "Ads"}}
    (done,) = await bulk(scim, operation)
    assert (done["status"], asked) == ("200", [])
    assert [one["value"] for one in (await scim.done("GET", path))["members"]] == ["ann"]
    assert asked == [group["id"]]


async def test_a_bulk_request_that_stops_keeps_what_it_has_done(scim: Scim) -> None:
    await scim.user("ann")
    operations = [user("ben", "b"), user("ann", "a"), user("cid", "c"), user("ann", "again")]
    done = await bulk(scim, *operations, failOnErrors=1)
    assert [(one["bulkId"], one["status"]) for one in done] == [("b", "201"), ("a", "409")]
    assert (await scim.done("GET", "/Users/ben"))["active"] is True
    assert (await scim.refused("GET", "/Users/cid"))["status"] == "404"
    # The same once more, as a directory does that lost the answer.
    done = await bulk(scim, *operations)
    assert [one["status"] for one in done] == ["409", "409", "201", "409"]


def user(name: str, bulk_id: str) -> dict[str, Any]:
    data = {"schemas": [OF_A_USER], "userName": name}
    return {"method": "POST", "path": "/Users", "bulkId": bulk_id, "data": data}


async def bulk(scim: Scim, *operations: Any, **said: Any) -> list[Any]:
    body = {"schemas": [OF_A_BULK], "Operations": list(operations), **said}
    found: list[Any] = (await scim.done("POST", "/Bulk", body))["Operations"]
    return found
