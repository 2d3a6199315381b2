"""Who is deactivated is out within a second, streams included; owners remain by any path."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from tests.support.clients.openai_admin import foreign_key
from tests.support.services import front as stand
from tests.support.services.front import running_engine
from tests.support.services.member_keys import SECONDS, Key, join, project
from tests.support.services.scim import OF_A_PATCH, OF_A_USER, Scim, directory_of, running_directory
from tests.support.waiting import soon, until

BODY = {"model": "toy", "messages": [{"role": "user", "content": "hi"}], "stream": True}


@pytest.fixture
async def scim(database_url: str, tmp_path: Path) -> AsyncIterator[Scim]:
    async with running_directory(database_url, tmp_path / "data") as scim:
        yield scim


async def ended(pieces: AsyncIterator[bytes]) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        async for _ in pieces:
            pass


async def test_streams_end_within_a_second(scim: Scim) -> None:
    async def endless(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = await stand.begin(request)
        await response.write(stand.sse(stand.chunk("word")))
        await asyncio.Event().wait()
        return response

    room = await project(scim.owner)
    async with running_engine() as engine:
        engine.handler = endless
        scim.front.board.pin("toy", engine.address)
        for user, leaves in (
            ("ann", lambda: scim.active("ann", so=False)),
            ("ben", lambda: scim.done("DELETE", "/Users/ben")),
        ):
            key = await join(scim.owner, user, "project_member", room)
            await breaks_off_after(key, leaves)
            await key.ends_within_a_second()


async def breaks_off_after(key: Key, leaves: Callable[[], Awaitable[Any]]) -> None:
    """Asserts that an answer ends within a second once its owner has left."""
    async with (
        key.front.http(key.secret) as http,
        http.stream("POST", "/v1/chat/completions", json=BODY) as response,
    ):
        pieces = response.aiter_bytes()
        assert b"word" in await anext(pieces)
        ending = asyncio.create_task(ended(pieces))
        await leaves()
        async with soon(SECONDS):
            await ending


async def test_memberships_come_back_and_keys_do_not(scim: Scim) -> None:
    room = await project(scim.owner)
    key = await join(scim.owner, "ann", "project_owner", room)
    child = await key.make("project_member", project_id=room)
    # Made by her for another, it rests on her.
    await key.put("bob", "project_member", project_id=room)
    resting = await key.make("project_member", project_id=room, user_id="bob")
    beside = await join(scim.owner, "bob", "project_member", room)
    await scim.active("ann", so=False)
    for one in (key, child, resting):
        await one.ends_within_a_second()
    assert await beside.status() == 200
    refused = await scim.owner.try_make("project_member", project_id=room, user_id="ann")
    assert refused.status_code == 400
    holders = await scim.owner.ask("GET", "/v1/roles/holders", params={"permission": "jobs.write"})
    assert "ann" not in holders.text
    await scim.active("ann", so=False)
    await scim.active("ann", so=True)
    await until(resting.status, SECONDS, holds=lambda status: status == 200)
    for one in (key, child):
        assert await one.status() == 401
    again = await scim.owner.make("project_owner", project_id=room, user_id="ann")
    assert await again.status() == 200


async def test_the_last_owner_stays(scim: Scim) -> None:
    owner = await foreign_owner(scim)
    assert (await owner.remove("owner")).status_code == 200
    mine = await directory_of(owner)
    for body in ({"active": False}, {"displayName": "S", "active": "False"}):
        put = {"schemas": [OF_A_USER], "userName": "stranger", **body}
        said = await mine.refused("PUT", "/Users/stranger", put)
        assert said["status"] == "409"
        assert "last owner" in said["detail"]
    assert (await mine.refused("DELETE", "/Users/stranger"))["status"] == "409"
    await owner.put("second", "organization_owner")
    assert (await mine.active("second", so=False))["active"] is False
    # One who is deactivated answers for nothing.
    assert (await mine.refused("DELETE", "/Users/stranger"))["status"] == "409"
    demoted = await owner.put("stranger", "organization_reader")
    assert demoted.json()["error"]["code"] == "last_owner"


async def test_two_owners_cannot_leave_at_once(scim: Scim) -> None:
    owner = await foreign_owner(scim)
    await owner.remove("owner")
    await owner.put("second", "organization_owner")
    mine = await directory_of(owner)
    theirs = await directory_of(await owner.make("organization_owner", user_id="second"))
    body = {"op": "replace", "path": "active", "value": False}
    patch = {"schemas": [OF_A_PATCH], "Operations": [body]}
    answers = await asyncio.gather(
        mine.ask("PATCH", "/Users/second", json=patch),
        theirs.ask("DELETE", "/Users/stranger"),
        mine.ask("DELETE", "/Users/second"),
        theirs.ask("PATCH", "/Users/stranger", json=patch),
    )
    assert min(one.status_code for one in answers) < 300
    # Whoever it is, somebody remains.
    left = [person for person in ("stranger", "second") if await is_owner(scim, person)]
    assert len(left) == 1


async def is_owner(scim: Scim, user_id: str) -> bool:
    """Whether an active owner of the other organization is this one."""
    async with scim.front.http() as http:
        (foreign,) = [
            one["id"]
            for one in (await http.get("/v1/organizations")).json()["data"]
            if one["title"] == "Foreign"
        ]
    async with scim.front.http(**{"OpenAI-Organization": foreign}) as http:
        answer = await http.get(f"/scim/v2/Users/{user_id}")
    return answer.status_code == 200 and answer.json()["active"]


async def foreign_owner(scim: Scim) -> Key:
    return Key(scim.front, "", await foreign_key(scim.front), {})


async def test_one_organizations_directory_knows_nothing_of_another(scim: Scim) -> None:
    theirs = await directory_of(await foreign_owner(scim))
    ann = await scim.user("ann", externalId="1")
    group = await scim.group("Search", "ann")
    await theirs.user("eve")
    their_group = await theirs.group("Search")
    for path, never in (
        (f"/Users/{ann['id']}", "/Users/nobody"),
        (f"/Groups/{group['id']}", f"/Groups/group_{'n' * 24}"),
    ):
        body = {"schemas": [OF_A_USER], "userName": "x", "displayName": "x"}
        for method in ("GET", "PUT", "DELETE"):
            said = {
                (error["status"], error["detail"].replace(one.rpartition("/")[2], "…"))
                for one in (path, never)
                for error in [await theirs.refused(method, one, body if method == "PUT" else None)]
            }
            assert len(said) == 1
            assert said.pop()[0] == "404"
    joined = {"op": "add", "path": "members", "value": [{"value": "ann"}]}
    patch = {"schemas": [OF_A_PATCH], "Operations": [joined]}
    refused = await theirs.refused("PATCH", f"/Groups/{their_group['id']}", patch)
    assert refused["scimType"] == "invalidValue"
    listed = await theirs.done("GET", "/Users")
    assert {one["id"] for one in listed["Resources"]} == {"eve", "owner", "stranger"}
    # No directory names somebody who administers the platform.
    assert (await theirs.done("GET", "/Users/owner"))["id"] == "owner"
    assert (await theirs.owner.remove("owner")).status_code == 200
    assert (await theirs.user("owner"))["id"].startswith("user_")
    # The same name there is another's, and its end is the other's.
    key = await join(scim.owner, "ann", "project_member", await project(scim.owner))
    await theirs.user("ann")
    await theirs.done("DELETE", "/Users/ann")
    assert await key.status() == 200
