"""Certificates that an organization demands of its clients, as a named proxy tells of them."""

import asyncio
import contextlib
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from tests.integration.tenancy.certificates.conftest import PROXIES
from tests.support.environments.client_certificates import SERVERS, Made, made
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

URL = "/v1/organization/certificates"
REQUIRED, REFUSED = "client_certificate_required", "client_certificate_not_admitted"


async def upload(key: Key, one: Made, **headers: str) -> str:
    answer = await key.ask("POST", URL, json={"certificate": one.pem}, headers=headers)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


async def change(
    key: Key, what: str, *ids: str, url: str = URL, headers: dict[str, str], **body: Any
) -> httpx.Response:
    body |= {"certificate_ids": list(ids)}
    return await key.ask("POST", f"{url}/{what}", json=body, headers=headers)


async def activated(key: Key, one: Made, client: Made) -> str:
    """The id of a certificate that is active, and heard of."""
    certificate_id = await upload(key, one)
    answer = await change(key, "activate", certificate_id, headers=client.headers())
    assert answer.status_code == 200, answer.text
    await until(lambda: why(key), SECONDS, holds=lambda found: found == REQUIRED)
    return certificate_id


async def why(key: Key, headers: dict[str, str] | None = None, path: str = "/v1/me") -> str:
    """The reason of a refusal; empty where there is none."""
    answer = await key.ask("GET", path, headers=headers or {})
    if answer.status_code == 200:
        return ""
    assert answer.status_code == 403, answer.text
    return str(answer.json()["error"]["code"])


async def test_every_path_and_credential_needs_one(
    owner: Key, platform: Key, authority: Made, client: Made
) -> None:
    room = await project(owner)
    other = await owner.make("project_owner", project_id=room, user_id="stranger")
    assert await why(owner) == ""
    await activated(owner, authority, client)
    for key in (owner, other):
        assert await until(partial(why, key), SECONDS, holds=bool) == REQUIRED
        assert await why(key, client.headers()) == ""
        for path in ("/v1/models", "/v1/files", URL, "/docs", "/openapi.json"):
            assert await why(key, path=path) == REQUIRED, path
        chat = await key.ask("POST", "/v1/chat/completions", json={"model": "m"})
        assert (chat.status_code, chat.json()["error"]["code"]) == (403, REQUIRED)
    scim = await owner.ask("GET", "/scim/v2/Users")
    assert scim.status_code == 403
    # Another tenant is not concerned, nor is who operates the platform.
    assert await why(platform) == ""


async def test_what_leads_to_an_active_one_is_admitted(
    owner: Key, authority: Made, client: Made
) -> None:
    middle = made("middle", authority, ca=True)
    below = made("below", middle)
    await activated(owner, authority, client)
    assert await why(owner, below.headers(middle)) == ""
    assert await why(owner, below.headers()) == REFUSED
    assert await why(owner, authority.headers()) == ""
    # The same name is not the same key.
    impostor = made("acme authority", ca=True)
    for one in (
        made("acme client", impostor),
        made("expired", authority, days=(-3, -1)),
        made("not yet", authority, days=(1, 2)),
        made("a server", authority, usage=SERVERS),
        made("of a client", client),
        made("alone"),
    ):
        assert await why(owner, one.headers()) == REFUSED, one.certificate.subject
    assert await why(owner, made("x", impostor).headers(impostor)) == REFUSED
    assert await why(owner, made("of a client", client).headers(client)) == REFUSED


async def test_a_leaf_admits_itself_alone(owner: Key) -> None:
    leaf = made("laptop")
    await activated(owner, leaf, leaf)
    assert await why(owner, leaf.headers()) == ""
    assert await why(owner, made("laptop", secret=leaf.secret).headers()) == REFUSED
    assert await why(owner, made("signed by it", leaf).headers()) == REFUSED


@pytest.mark.parametrize(
    "value", ["", "nonsense", ":::", ":AAAA:", "{}, {}", '"{}"', "{};a=b", ":" + "A" * 12000 + ":"]
)
async def test_a_header_that_is_no_certificate_is_none(
    owner: Key, authority: Made, client: Made, value: str
) -> None:
    await activated(owner, authority, client)
    good = client.headers()["Client-Cert"]
    assert await why(owner, {"Client-Cert": value.format(good, good)}) in (REQUIRED, REFUSED)
    assert await why(owner, {"Client-Cert": good, "Client-Cert-Chain": "nonsense"}) == REQUIRED
    chain = ",".join([good] * 5)
    assert await why(owner, {"Client-Cert": good, "Client-Cert-Chain": chain}) == REQUIRED


async def test_two_headers_are_refused(owner: Key, authority: Made, client: Made) -> None:
    await activated(owner, authority, client)
    async with owner.front.http(owner.secret) as http:
        good = client.headers()["Client-Cert"]
        for pair in ([good, good], [good, made("forged").headers()["Client-Cert"]]):
            headers = [(b"client-cert", one.encode()) for one in pair]
            answer = await http.get("/v1/me", headers=headers)
            assert answer.status_code == 400


async def test_nobody_else_is_believed(
    database_url: str, tmp_path: Path, authority: Made, client: Made
) -> None:
    data = tmp_path / "data"
    async with running_front(database_url, data, http=dict(PROXIES)) as front:
        owner = Key(front, "", front.owner_key, {})
        await activated(owner, authority, client)
        assert await why(owner, client.headers()) == ""
    http = {"trusted_proxies": ["192.0.2.0/24"]}
    async with running_front(database_url, data, http=http) as front:
        owner = Key(front, "", front.owner_key, {})
        assert await why(owner, client.headers()) == REQUIRED
        forged = client.headers() | {"X-Forwarded-For": "192.0.2.1"}
        assert await why(owner, forged) == REQUIRED


async def test_nobody_shuts_themselves_out(
    owner: Key, platform: Key, authority: Made, client: Made
) -> None:
    other = made("another authority", ca=True)
    first, second = await upload(owner, authority), await upload(owner, other)
    for headers in ({}, made("alone").headers()):
        refused = await change(owner, "activate", first, headers=headers)
        assert (refused.status_code, refused.json()["error"]["code"]) == (
            409,
            "certificate_locks_you_out",
        )
    forced = await change(owner, "activate", first, headers={}, force=True)
    assert (forced.status_code, forced.json()["error"]["param"]) == (403, "force")
    assert (
        await change(owner, "activate", first, second, headers=client.headers())
    ).status_code == 200
    # What remains would not admit the caller.
    refused = await change(owner, "deactivate", first, headers=client.headers())
    assert refused.json()["error"]["code"] == "certificate_locks_you_out"
    await until(lambda: why(owner), SECONDS, holds=lambda found: found == REQUIRED)
    # Not without a certificate: a key that was stolen must not take the demand away.
    assert (await change(owner, "deactivate", first, second, headers={})).status_code == 403
    assert (
        await change(owner, "deactivate", first, headers=made("b", other).headers())
    ).status_code == 200
    await until(lambda: why(owner, client.headers()), SECONDS, holds=lambda found: found == REFUSED)
    # The platform's administrator lets a tenant in again, and is not shut out by it.
    me = await owner.ask("GET", "/v1/me", headers=made("b", other).headers())
    there = {"OpenAI-Organization": me.json()["principal"]["organization_id"]}
    assert (await change(platform, "deactivate", second, headers=there)).status_code == 200
    await until(lambda: why(owner), SECONDS, holds=lambda found: found == "")
    forced = await change(platform, "activate", second, headers=there, force=True)
    assert forced.status_code == 200


async def test_a_project_narrows_what_its_organization_demands(
    owner: Key, authority: Made, client: Made
) -> None:
    room, next_door = await project(owner), await project(owner)
    team = made("team", authority, ca=True)
    member = made("member", team)
    inside = await owner.make("project_owner", project_id=room, user_id="stranger")
    outside = await owner.make("project_owner", project_id=next_door, user_id="stranger")
    second = await upload(owner, team)
    url = f"/v1/organization/projects/{room}/certificates"
    refused = await change(owner, "activate", second, url=url, headers=client.headers())
    assert refused.json()["error"]["code"] == "certificate_locks_you_out"
    assert (
        await change(owner, "activate", second, url=url, headers=member.headers())
    ).status_code == 200
    await until(lambda: why(inside), SECONDS, holds=lambda found: found == REQUIRED)
    assert await why(inside, member.headers()) == ""
    assert await why(inside, client.headers()) == REFUSED
    assert await why(outside) == ""
    assert await why(owner) == ""
    assert await why(owner, {"OpenAI-Project": room}) == REQUIRED
    await activated(owner, authority, client)
    both = member.headers(team)
    await until(lambda: why(outside), SECONDS, holds=lambda found: found == REQUIRED)
    assert [await why(key, both) for key in (inside, outside, owner)] == ["", "", ""]
    assert await why(inside, client.headers()) == REFUSED


async def test_an_open_answer_ends_with_its_certificate(
    front: Front, owner: Key, authority: Made, client: Made
) -> None:
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
            front.http(owner.secret) as http,
            http.stream("POST", "/v1/chat/completions", json=body) as answer,
        ):
            assert answer.status_code == 200
            lines = answer.aiter_lines()
            assert "more" in await anext(lines)
            certificate_id = await upload(owner, authority)
            async with soon(3 * SECONDS):
                await change(owner, "activate", certificate_id, headers=client.headers())
                with contextlib.suppress(httpx.RemoteProtocolError):
                    async for _ in lines:
                        pass
            goes_on.set()


async def test_two_who_change_at_once_shut_nobody_out(
    owner: Key, authority: Made, client: Made
) -> None:
    """Each takes away what the other stands on; one of them must be refused."""
    other = made("another authority", ca=True)
    newer = made("newer", other)
    first = await activated(owner, authority, client)
    second = await upload(owner, other, **client.headers())
    await change(owner, "activate", second, headers=client.headers())
    await until(lambda: why(owner, newer.headers()), SECONDS, holds=lambda found: found == "")
    answers = await asyncio.gather(
        change(owner, "deactivate", second, headers=client.headers()),
        change(owner, "deactivate", first, headers=newer.headers()),
    )
    found = {one.status_code: one for one in answers}
    assert found.keys() == {200, 403}
    assert found[403].json()["error"]["code"] == REFUSED
