"""Bulk requests: what refers to what, what fails alone, and what is too much."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.services.scim import OF_A_GROUP, OF_A_PATCH, OF_A_USER, Scim, running_directory

OF_A_BULK = "urn:ietf:params:scim:api:messages:2.0:BulkRequest"


@pytest.fixture
async def scim(database_url: str, tmp_path: Path) -> AsyncIterator[Scim]:
    async with running_directory(database_url, tmp_path / "data") as scim:
        yield scim


def user(name: str, bulk_id: str) -> dict[str, Any]:
    data = {"schemas": [OF_A_USER], "userName": name}
    return {"method": "POST", "path": "/Users", "bulkId": bulk_id, "data": data}


def group(name: str, bulk_id: str, *members: str) -> dict[str, Any]:
    people = [{"value": one} for one in members]
    data = {"schemas": [OF_A_GROUP], "displayName": name, "members": people}
    return {"method": "POST", "path": "/Groups", "bulkId": bulk_id, "data": data}


async def bulk(scim: Scim, *operations: Any, **said: Any) -> list[Any]:
    body = {"schemas": [OF_A_BULK], "Operations": list(operations), **said}
    answer = await scim.done("POST", "/Bulk", body)
    found: list[Any] = answer["Operations"]
    return found


async def test_operations_refer_to_each_other(scim: Scim) -> None:
    off = {
        "schemas": [OF_A_PATCH],
        "Operations": [{"op": "replace", "path": "active", "value": False}],
    }
    done = await bulk(
        scim,
        # Before those whom it refers to.
        group("Search", "g", "bulkId:a", "bulkId:b"),
        user("ann", "a"),
        user("ben", "b"),
        {"method": "PATCH", "path": "/Users/bulkId:b", "data": off},
        user("ANN", "again"),
        group("Lost", "l", "bulkId:nobody"),
        {"method": "DELETE", "path": "/Users/nobody"},
    )
    assert [one["status"] for one in done] == ["201", "201", "201", "200", "409", "409", "404"]
    assert done[0]["bulkId"] == "g"
    assert done[0]["version"].startswith('W/"')
    assert done[4]["response"]["scimType"] == "uniqueness"
    made = await scim.done("GET", "/Groups", params={"filter": 'displayName eq "Search"'})
    assert [one["value"] for one in made["Resources"][0]["members"]] == ["ann", "ben"]
    assert done[0]["location"] == made["Resources"][0]["meta"]["location"]
    assert (await scim.done("GET", "/Users/ben"))["active"] is False
    # The same again makes nothing twice.
    again = await bulk(scim, user("ann", "a"), user("ben", "b"), failOnErrors=1)
    assert [one["status"] for one in again] == ["409"]


async def test_what_is_too_much_or_makes_no_sense(scim: Scim) -> None:
    many = [user(f"u{number}", str(number)) for number in range(501)]
    said = await scim.refused("POST", "/Bulk", {"schemas": [OF_A_BULK], "Operations": many})
    assert said["status"] == "413"
    for operations in (
        [], "x", [1], [user("a", "1"), user("b", "1")], [{**user("a", "1"), "bulkId": None}],
        [{**user("a", "1"), "path": "/Users/../Groups"}], [{**user("a", "1"), "path": "/Bulk"}],
        [{**user("a", "1"), "method": "GET"}], [{"method": "DELETE", "path": "/Users"}],
    ):  # fmt: skip
        body = {"schemas": [OF_A_BULK], "Operations": operations}
        assert (await scim.refused("POST", "/Bulk", body))["status"] == "400", operations
    assert (await scim.done("GET", "/Users", params={"count": 0}))["totalResults"] == 1
    circle = [group("A", "a", "bulkId:b"), group("B", "b", "bulkId:a")]
    assert {one["status"] for one in await bulk(scim, *circle)} == {"409"}
