"""Guessing keys: the address waits, whoever has a good key there does not."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import httpx
import pytest
from tests.support.clients.raw_http import Raw, raw
from tests.support.services.front import Front, running_front

from windlass.api.clusters.v1 import clusters_pb2, clusters_pb2_grpc
from windlass.core.app import runtime_dir

ALLOWED = 5


@pytest.fixture
async def front(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    async with running_front(
        database_url,
        tmp_path / "data",
        auth={"wrong_keys": ALLOWED, "wrong_registration_keys": ALLOWED},
        http={"trusted_proxies": ["127.0.0.0/8"]},
    ) as front:
        yield front


@pytest.fixture
async def direct(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    """With no proxy before it."""
    allowed = {"wrong_keys": ALLOWED}
    async with running_front(database_url, tmp_path / "data", auth=allowed) as front:
        yield front


async def guess(front: Front, address: str, number: int = 0) -> tuple[int, str]:
    async with front.http(f"wl-wrong{number}", **{"X-Forwarded-For": address}) as http:
        answer = await http.get("/v1/me")
    return answer.status_code, answer.headers.get("retry-after", "")


async def test_guessers_wait_and_good_keys_do_not(front: Front) -> None:
    first = [await guess(front, "192.0.2.1", number) for number in range(ALLOWED + 3)]
    assert first == [(401, "")] * ALLOWED + [(429, "1"), (429, "2"), (429, "4")]
    # Another address, and the rest of an IPv6 network.
    assert await guess(front, "192.0.2.2") == (401, "")
    for number in range(ALLOWED):
        await guess(front, f"2001:db8::{number}", number)
    assert (await guess(front, "2001:db8::ffff"))[0] == 429
    assert await guess(front, "2001:db8:0:1::1") == (401, "")
    # Keys that are good pass from there, known or not.
    async with front.http() as http:
        fresh = (await http.post("/v1/api_keys", json={"name": "x"})).json()["value"]
    for key in (front.owner_key, fresh):
        async with front.http(key, **{"X-Forwarded-For": "192.0.2.1"}) as http:
            assert (await http.get("/v1/me")).status_code == 200
    # A crowd that guesses from there gets no more than a few look-ups at once.
    crowd = await asyncio.gather(*(guess(front, "192.0.2.1", number) for number in range(100)))
    assert {status for status, _ in crowd} == {429}


def _port(front: Front) -> int:
    return httpx.URL(front.url).port or 80


def _asking(number: int, key: str = "") -> bytes:
    shown = (key or f"wl-wrong{number}").encode()
    return b"GET /v1/me HTTP/1.1\r\nhost: x\r\nauthorization: Bearer %b\r\n\r\n" % shown


async def test_what_follows_wrong_keys_on_a_connection_waits(direct: Front) -> None:
    port = _port(direct)
    async with raw(port) as guesser, raw(port) as other:
        await guesser.send(b"".join(map(_asking, range(2000))))
        statuses = [await _answer(guesser) for _ in range(ALLOWED + 1)]
        assert statuses == [401] * ALLOWED + [429]
        # The rest waits by itself; the same address is answered elsewhere, and by a good key.
        following = asyncio.create_task(_answer(guesser))
        await other.send(_asking(0, direct.owner_key) * 3)
        assert [await _answer(other) for _ in range(3)] == [200] * 3
        await other.send(_asking(1))
        assert await _answer(other) == 429
        assert not following.done()
        # A second, and then two.
        assert await following == 429


async def test_a_proxys_connection_does_not_wait(front: Front) -> None:
    """It has requests of others too."""
    async with raw(_port(front)) as proxy:
        await proxy.send(b"".join(map(_asking, range(200))) + _asking(0, front.owner_key))
        # Each 429 would have had it wait as long as all before together.
        statuses = [await _answer(proxy) for _ in range(201)]
    assert statuses == [401] * ALLOWED + [429] * (200 - ALLOWED) + [200]


async def _answer(client: Raw) -> int:
    """The status of the next answer, which is read to its end."""
    status, size = await client.status(), 0
    while line := (await client.reader.readline()).strip():
        name, _, value = line.partition(b":")
        size = int(value) if name.lower() == b"content-length" else size
    await client.reader.readexactly(size)
    return status


async def test_enrolments_are_slowed_down_too(front: Front) -> None:
    socket = runtime_dir(front.app.settings.data_dir) / "front.sock"
    said = []
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        stub = clusters_pb2_grpc.ClustersAgentServiceStub(channel)
        for number in range(ALLOWED + 2):
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await stub.Enroll(clusters_pb2.EnrollRequest(registration_key=f"wlr-{number}"))
            said.append(caught.value.code())
    code = grpc.StatusCode
    assert said == [code.UNAUTHENTICATED] * (ALLOWED + 1) + [code.RESOURCE_EXHAUSTED]
