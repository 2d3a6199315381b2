"""Revocation of a key ends its streams, downloads and signed URLs within a second."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from aiohttp import web
from tests.support.processes.front_door import MODEL, promise
from tests.support.services import front as stand
from tests.support.services.front import Engine, Front, running_engine, running_front
from tests.support.waiting import PATIENCE, soon, until

SECONDS = 1.0
WORD_SECONDS = 0.02
BODY = {"model": "toy", "messages": [{"role": "user", "content": "hi"}], "stream": True}


@pytest.fixture
async def front(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    async with running_front(database_url, tmp_path / "data") as front:
        yield front


@pytest.fixture
async def engine(front: Front) -> AsyncIterator[Engine]:
    """An engine whose streams never end of themselves."""

    async def endless(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = await stand.begin(request)
        while True:
            await response.write(stand.sse(stand.chunk("word")))
            await asyncio.sleep(WORD_SECONDS)

    async with running_engine() as engine:
        engine.handler = endless
        front.board.pin("toy", engine.address)
        yield engine


async def make(front: Front, by: str | None = None, **body: Any) -> dict[str, Any]:
    async with front.http(by) as http:
        answer = await http.post("/v1/api_keys", json={"name": "k", **body})
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def end(front: Front, how: str, key: dict[str, Any]) -> None:
    """Ends a key of bob in one of the ways that there are."""
    async with front.http() as http:
        if how == "revoked":
            answer = await http.delete(f"/v1/api_keys/{key['id']}")
        elif how == "its maker's is revoked":
            answer = await http.delete(f"/v1/api_keys/{key['parent_key_id']}")
        elif how == "its owner leaves":
            answer = await http.delete("/v1/members/bob", params={"project_id": key["project_id"]})
        elif how == "rotated":
            answer = await http.post(f"/v1/api_keys/{key['id']}/rotate", json={})
        elif how in NARROWED:
            answer = await http.patch(f"/v1/api_keys/{key['id']}", json=NARROWED[how])
        else:
            await asyncio.sleep(key["expires_at"] - time.time())
            return
    assert answer.status_code == 200, answer.text


async def a_key_of_bob(front: Front, **body: Any) -> dict[str, Any]:
    async with front.http() as http:
        room = (await http.post("/v1/projects", json={"title": "room"})).json()["id"]
        member = {"user_id": "bob", "role": "project_member", "project_id": room}
        await http.put("/v1/members", json=member)
    maker = await make(front, role="organization_owner")
    return await make(front, maker["value"], user_id="bob", project_id=room, **body)


async def broken(pieces: AsyncIterator[bytes]) -> None:
    """Returns when an answer breaks off."""
    with pytest.raises(httpx.RemoteProtocolError):
        await drained(pieces)


async def drained(pieces: AsyncIterator[bytes]) -> None:
    async for _ in pieces:
        pass


NARROWED = {
    "taken from elsewhere alone": {"networks": ["192.0.2.0/24"]},
    "without its permission": {"scopes": ["files.read"]},
}
WAYS = ("revoked", "its maker's is revoked", "its owner leaves", "expired")


@pytest.mark.parametrize("how", [*WAYS, "rotated", *NARROWED])
async def test_a_running_answer_ends(front: Front, engine: Engine, how: str) -> None:
    key = await a_key_of_bob(front, **({"expires_in": 6} if how == "expired" else {}))
    beside = await make(front)
    async with (
        asyncio.timeout(PATIENCE),
        front.http(key["value"]) as http,
        front.http(beside["value"]) as other,
        other.stream("POST", "/v1/chat/completions", json=BODY) as going_on,
        http.stream("POST", "/v1/chat/completions", json=BODY) as response,
    ):
        pieces, theirs = response.aiter_bytes(), going_on.aiter_bytes()
        assert b"word" in await anext(pieces)
        broke = asyncio.create_task(broken(pieces))
        await end(front, how, key)
        async with soon(SECONDS):
            await broke
        # Only that one.
        for _ in range(5):
            assert await anext(theirs)
    async with asyncio.timeout(PATIENCE):
        await engine.left.wait()


async def test_a_key_that_ends_itself_hears_so(front: Front) -> None:
    for _ in range(10):
        key = await make(front)
        async with front.http(key["value"]) as http:
            answer = await http.delete(f"/v1/api_keys/{key['id']}")
        assert (answer.status_code, answer.json()["deleted"]) == (200, True), answer.text


async def test_a_request_that_waits_is_told_why(front: Front) -> None:
    asked = asyncio.Event()

    async def silent(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with running_engine() as engine, asyncio.timeout(PATIENCE):
        engine.handler = silent
        front.board.pin("toy", engine.address)
        key = await a_key_of_bob(front)
        async with front.http(key["value"]) as http:
            waiting = asyncio.create_task(http.post("/v1/chat/completions", json=BODY))
            await asked.wait()
            await end(front, "revoked", key)
            async with soon(SECONDS):
                answer = await waiting
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")


async def test_a_download_ends(front: Front) -> None:
    key = await a_key_of_bob(front)
    content = b'{"messages": [{"role": "user", "content": "' + b"x" * 1000 + b'"}]}\n'
    async with asyncio.timeout(60), front.http(key["value"]) as http:
        files = {"file": ("d.jsonl", content * 30_000)}
        made = await http.post("/v1/files", data={"purpose": "user_data"}, files=files)
        assert made.status_code == 200, made.text
        async with http.stream("GET", f"/v1/files/{made.json()['id']}/content") as response:
            pieces = response.aiter_bytes(2**16)
            await anext(pieces)
            with structlog.testing.capture_logs() as logs:
                await end(front, "revoked", key)
                await until(lambda: "request_revoked" in [one["event"] for one in logs], SECONDS)
            await broken(pieces)


@pytest.mark.parametrize("how", WAYS)
async def test_a_signed_url_ends(front: Front, how: str) -> None:
    key = await a_key_of_bob(front, **({"expires_in": 6} if how == "expired" else {}))
    async with front.http(key["value"]) as http, httpx.AsyncClient() as bare:
        body = {"id": "m", "files": promise(MODEL)}
        begun = await http.post("/v1/models/imports", json=body)
        assert begun.status_code == 200, begun.text
        target = begun.json()["uploads"][0]
        url, content = target["url"], MODEL[target["path"]]
        assert (await bare.put(url, content=content)).status_code == 200
        await end(front, how, key)
        answer = await until(
            lambda: bare.put(url, content=content),
            SECONDS,
            holds=lambda got: got.status_code != 200,
        )
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
        forged = url.replace(key["id"], key["parent_key_id"])
        assert (await bare.put(forged, content=content)).status_code == 403
