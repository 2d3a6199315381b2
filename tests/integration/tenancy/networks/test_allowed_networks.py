"""Networks from which alone an organization's credentials are taken."""

import asyncio
import contextlib
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from tests.support.services.front import (
    Front,
    begin,
    chunk,
    running_engine,
    running_front,
    sse,
)
from tests.support.services.member_keys import SECONDS, Key, project
from tests.support.waiting import soon, until

from windlass.bounds import MAX_ORGANIZATION_NETWORKS

OFFICE, SIX, ELSEWHERE = "203.0.113.0/24", "2001:db8::/32", "192.0.2.0/24"
REFUSED, LOCKED = "address_not_allowed_by_organization", "networks_lock_you_out"


def at(address: str) -> dict[str, str]:
    """What the proxy writes of a client at an address."""
    return {"X-Forwarded-For": address}


INSIDE, OUTSIDE = at("203.0.113.7"), at("192.0.2.7")


async def organization(key: Key, headers: dict[str, str] = INSIDE) -> str:
    me = await key.ask("GET", "/v1/me", headers=headers)
    return str(me.json()["principal"]["organization_id"])


async def put(
    key: Key, *networks: str, headers: dict[str, str] = INSIDE, of: str = "", **body: Any
) -> httpx.Response:
    url = f"/v1/organizations/{of or await organization(key)}/networks"
    body |= {"networks": list(networks)}
    return await key.ask("PUT", url, json=body, headers=headers)


async def why(key: Key, headers: dict[str, str] | None = None, path: str = "/v1/me") -> str:
    """The reason of a refusal; empty where there is none."""
    answer = await key.ask("GET", path, headers=headers or {})
    if answer.status_code == 200:
        return ""
    assert answer.status_code == 403, answer.text
    return str(answer.json()["error"]["code"])


async def listed(key: Key, *networks: str) -> None:
    """Has the organization's credentials taken from these alone, and waits until it is heard."""
    answer = await put(key, *networks)
    assert answer.status_code == 200, answer.text
    await until(lambda: why(key, OUTSIDE), SECONDS, holds=lambda found: found == REFUSED)


async def test_every_credential_and_path_is_held_to_them(owner: Key, platform: Key) -> None:
    room = await project(owner)
    other = await owner.make("project_owner", project_id=room, user_id="stranger")
    assert await why(other, OUTSIDE) == ""
    await listed(owner, OFFICE, SIX)
    for key in (owner, other):
        assert await until(partial(why, key, OUTSIDE), SECONDS, holds=bool) == REFUSED
        # The proxy's own address is none of them either.
        assert await why(key) == REFUSED
        for headers in (INSIDE, at("2001:db8::7"), at("::ffff:203.0.113.9")):
            assert await why(key, headers) == "", headers
        for path in ("/v1/models", "/v1/files", "/v1/api_keys", "/docs", "/openapi.json"):
            assert await why(key, OUTSIDE, path) == REFUSED, path
        chat = await key.ask("POST", "/v1/chat/completions", json={"model": "m"}, headers=OUTSIDE)
        assert (chat.status_code, chat.json()["error"]["code"]) == (403, REFUSED)
    assert (await owner.ask("GET", "/scim/v2/Users", headers=OUTSIDE)).status_code == 403
    # Another tenant is not concerned, nor is who operates the platform.
    there = {"OpenAI-Organization": await organization(owner)}
    assert await why(platform, OUTSIDE) == ""
    assert await why(platform, OUTSIDE | there) == ""
    assert (await put(owner)).json()["networks"] == []
    await until(lambda: why(other, OUTSIDE), SECONDS, holds=lambda found: found == "")


async def test_a_keys_own_networks_hold_in_addition(owner: Key) -> None:
    key = await owner.make("organization_owner", networks=["203.0.113.128/25", ELSEWHERE])
    await listed(owner, OFFICE)
    assert await until(partial(why, key, OUTSIDE), SECONDS, holds=lambda f: f == REFUSED) == REFUSED
    assert await why(key, at("203.0.113.129")) == ""
    assert await why(key, at("203.0.113.7")) == "address_not_allowed"


async def test_nobody_else_is_believed(database_url: str, tmp_path: Path) -> None:
    data, http = tmp_path / "data", {"trusted_proxies": ["127.0.0.1/32"]}
    async with running_front(database_url, data, http=http) as front:
        await listed(Key(front, "", front.owner_key, {}), OFFICE)
    async with running_front(database_url, data) as front:
        owner = Key(front, "", front.owner_key, {})
        assert await why(owner, INSIDE) == REFUSED
        assert await why(owner) == REFUSED


async def test_what_a_client_wrote_before_the_proxy_is_not_believed(owner: Key) -> None:
    await listed(owner, OFFICE)
    assert await why(owner, at("203.0.113.7, 192.0.2.7")) == REFUSED
    assert await why(owner, at("192.0.2.7, 203.0.113.7")) == ""
    for nonsense in ("", "office", "203.0.113.7/24", "203.0.113.7, unknown"):
        assert await why(owner, at(nonsense)) == REFUSED, nonsense


async def test_nobody_shuts_themselves_out(owner: Key, platform: Key) -> None:
    for headers in (OUTSIDE, {}):
        refused = await put(owner, OFFICE, headers=headers)
        error = refused.json()["error"]
        told = (refused.status_code, error["code"], error["param"])
        assert told == (409, LOCKED, "networks")
    assert "192.0.2.7" in (await put(owner, OFFICE, headers=OUTSIDE)).json()["error"]["message"]
    forced = await put(owner, OFFICE, headers=OUTSIDE, force=True)
    assert (forced.status_code, forced.json()["error"]["param"]) == (403, "force")
    assert await why(owner, OUTSIDE) == ""
    await listed(owner, OFFICE)
    # What remains would not admit the caller.
    assert (await put(owner, SIX)).json()["error"]["code"] == LOCKED
    # Not from elsewhere: a key that was stolen must not take the list away.
    there = await organization(owner)
    assert (await put(owner, headers=OUTSIDE, of=there)).status_code == 403
    # The platform's administrator lets a tenant in again, and is not shut out by it.
    acting = OUTSIDE | {"OpenAI-Organization": there}
    assert (await put(platform, SIX, headers=acting, of=there)).json()["error"]["code"] == LOCKED
    forced = await put(platform, SIX, headers=acting, of=there, force=True)
    assert forced.json()["networks"] == [SIX]
    await until(lambda: why(owner, INSIDE), SECONDS, holds=lambda found: found == REFUSED)
    assert (await put(platform, headers=acting, of=there)).status_code == 200
    await until(lambda: why(owner, OUTSIDE), SECONDS, holds=lambda found: found == "")


async def test_owners_alone_set_them_and_each_their_own(owner: Key, platform: Key) -> None:
    there, home = await organization(owner), await organization(platform)
    room = await project(owner)
    member = await owner.make("project_owner", project_id=room, user_id="stranger")
    narrow = await owner.make("organization_owner", scopes=["projects.write", "all_projects.read"])
    reader = await owner.make("organization_reader")
    for key in (member, narrow, reader):
        assert (await put(key, OFFICE, of=there)).status_code == 403
    url = f"/v1/organizations/{there}/networks"
    assert (await member.ask("GET", url)).status_code == 403
    assert (await reader.ask("GET", url)).json() == {
        "object": "organization.networks",
        "organization_id": there,
        "networks": [],
        "updated_at": None,
    }
    # Others' are as those of an organization that does not exist.
    for key, of in ((owner, home), (owner, "org_none"), (platform, there)):
        assert (await put(key, OFFICE, of=of)).status_code == 404
        assert (await key.ask("GET", f"/v1/organizations/{of}/networks")).status_code == 404
    assert await why(platform, OUTSIDE) == ""


@pytest.mark.parametrize(
    "networks",
    [
        ["10.0.0.1/8"], ["300.0.0.0/8"], ["office"], ["10.0.0.0/33"], ["::ffff:10.0.0.0/104"],
        [""], [f"10.{n // 256}.{n % 256}.0/24" for n in range(MAX_ORGANIZATION_NETWORKS + 1)],
    ],
)  # fmt: skip
async def test_what_is_no_network_is_refused_by_its_field(owner: Key, networks: list[str]) -> None:
    refused = await put(owner, OFFICE, *networks)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"].startswith("networks")
    assert await why(owner, OUTSIDE) == ""


async def test_as_many_as_there_may_be_admit_and_refuse(owner: Key) -> None:
    some = [f"10.{n // 256}.{n % 256}.0/24" for n in range(MAX_ORGANIZATION_NETWORKS - 2)]
    await listed(owner, OFFICE, SIX, *some)
    for address in ("10.0.0.0", "10.0.77.255", "2001:db8:ffff::1"):
        assert await why(owner, at(address)) == "", address
    for address in ("9.255.255.255", "10.1.0.0", "2001:db9::"):
        assert await why(owner, at(address)) == REFUSED, address


async def test_changes_and_refusals_are_audited(owner: Key) -> None:
    there = await organization(owner)
    await listed(owner, OFFICE)
    assert (await put(owner, OFFICE, SIX)).status_code == 200

    async def events() -> list[dict[str, Any]]:
        answer = await owner.ask("GET", "/v1/audit_events", headers=INSIDE)
        found: list[dict[str, Any]] = answer.json()["data"]
        return found

    def are_there(rows: list[dict[str, Any]]) -> bool:
        changes = sum(one["action"].endswith("/PutAllowedNetworks") for one in rows)
        return changes == 2 and any(one["reason"] == REFUSED for one in rows)

    found = await until(events, holds=are_there)
    (refused, *_) = [one for one in found if one["reason"] == REFUSED]
    assert (refused["outcome"], refused["address"]) == ("PERMISSION_DENIED", "192.0.2.7")
    changes = [one for one in found if one["action"].endswith("/PutAllowedNetworks")]
    assert [one["resource"] for one in changes] == [there] * 2
    newest, oldest = changes
    assert OFFICE in oldest["after"]
    assert OFFICE not in (oldest["before"] or "")
    assert SIX in newest["after"]
    assert SIX not in newest["before"]


async def test_an_open_answer_ends_with_its_address(front: Front, owner: Key) -> None:
    goes_on = asyncio.Event()

    async def endless(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = await begin(request)
        await response.write(sse(chunk("more")))
        await goes_on.wait()
        return response

    async with running_engine() as engine:
        engine.handler = endless
        front.board.pin("toy", engine.address)
        body = {"model": "toy", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
        async with (
            front.http(owner.secret, **OUTSIDE) as http,
            http.stream("POST", "/v1/chat/completions", json=body) as answer,
        ):
            assert answer.status_code == 200
            lines = answer.aiter_lines()
            assert "more" in await anext(lines)
            async with soon(3 * SECONDS):
                assert (await put(owner, OFFICE)).status_code == 200
                with contextlib.suppress(httpx.RemoteProtocolError):
                    async for _ in lines:
                        pass
            goes_on.set()


async def test_two_who_change_at_once_shut_nobody_out(owner: Key) -> None:
    """Each takes away what the other stands on; one of them must be refused."""
    await listed(owner, OFFICE, SIX)
    there = await organization(owner)
    answers = await asyncio.gather(
        put(owner, OFFICE, of=there), put(owner, SIX, of=there, headers=at("2001:db8::7"))
    )
    found = {one.status_code: one for one in answers}
    assert found.keys() == {200, 403}
    assert found[403].json()["error"]["code"] == REFUSED
