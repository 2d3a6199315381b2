"""Polls of many futures: what a client of a sampler asked, reported once and waited for."""

import asyncio
from typing import Any

import pytest
from tests.integration.tuning.test_log import Client
from tests.support.services.front import Front
from tests.support.waiting import until

from windlass.metrics.database import CONNECTIONS

PROMPT = {"chunks": [{"type": "encoded_text", "tokens": [1]}]}
THIRD = 3_000_000_000


@pytest.fixture
async def client(front: Front) -> Any:
    async with front.http() as http:
        made = Client(http)
        await made.begin()
        yield made


async def sampler(client: Client, number: int = 0) -> str:
    body = {
        "session_id": client.session, "sampling_session_seq_id": number, "base_model": "toy",
    }  # fmt: skip
    return str((await client.post("create_sampling_session", body))["sampling_session_id"])


async def asked(client: Client, name: str, seq_id: int) -> str:
    body = {
        "sampling_session_id": name, "seq_id": seq_id, "prompt": PROMPT,
        "sampling_params": {"max_tokens": 1},
    }  # fmt: skip
    return str((await client.post("asample", body))["request_id"])


async def poll(
    client: Client, name: str, cursor: int = 0, number: int = 0, timeout: float | None = None
) -> tuple[list[str], int]:
    target = {
        "type": "sampling_session", "sampling_session_id": name, "cloned_sampler_id": number,
    }  # fmt: skip
    body = {"target": target, "prev_cursor": cursor, "timeout": timeout}
    found = await client.post("retrieve_futures", body)
    assert {one["state"] for one in found["completions"]} <= {"finished"}
    return [one["request_id"] for one in found["completions"]], found["cursor"]


async def test_each_end_is_reported_once(client: Client) -> None:
    name = await sampler(client)
    wanted = {await asked(client, name, number) for number in range(20)}
    found: list[str] = []
    cursor = 0
    while len(found) < len(wanted):
        ids, cursor = await poll(client, name, cursor)
        found += ids
    assert sorted(found) == sorted(wanted)
    assert await poll(client, name, cursor, timeout=0) == ([], cursor)
    # From the beginning, all of them again.
    assert set((await poll(client, name, timeout=0))[0]) == wanted
    body = {"request_id": found[0]}
    assert "error" not in await client.post("retrieve_future", body)


async def test_clients_of_a_sampler_hear_of_their_own(client: Client) -> None:
    name, other = await sampler(client), await sampler(client, 1)
    ours = await asked(client, name, 5)
    theirs = await asked(client, name, THIRD + 5)
    assert (await poll(client, name))[0] == [ours]
    assert (await poll(client, name, number=3))[0] == [theirs]
    assert (await poll(client, name, number=2, timeout=0))[0] == []
    assert (await poll(client, other, timeout=0))[0] == []


async def test_a_cancelled_request_has_ended(client: Client, front: Front) -> None:
    name = await sampler(client)
    front.app.database.expose()
    waiting = asyncio.create_task(poll(client, name))
    request = await asked(client, name, 0)
    await client.http.post("/api/v1/cancel_future", json={"request_id": request})
    assert (await waiting)[0] == [request]


async def test_polls_wait_without_a_connection(client: Client, front: Front) -> None:
    name = await sampler(client)
    polls = [asyncio.create_task(poll(client, name)) for _ in range(64)]
    front.app.database.expose()

    async def used() -> float:
        samples = [one for metric in CONNECTIONS.collect() for one in metric.samples]
        return sum(one.value for one in samples if one.labels["state"] == "used")

    await until(used, holds=lambda number: number == 0)
    assert not any(one.done() for one in polls)
    request = await asked(client, name, 0)
    assert {tuple(ids) for ids, _ in await asyncio.gather(*polls)} == {(request,)}


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"prev_cursor": -1}, 400),
        ({"prev_cursor": 2**70}, 400),
        ({"timeout": "soon"}, 400),
        ({"target": {"sampling_session_id": "x"}}, 404),
        ({"target": {"sampling_session_id": "x", "type": "run"}}, 400),
        ({"target": {}}, 400),
        ({"target": None}, 400),
        ({"retrieved_request_ids": [1]}, 400),
    ],
)
async def test_a_bad_poll_is_refused(client: Client, change: dict[str, Any], status: int) -> None:
    body = {"target": {"sampling_session_id": await sampler(client)}, "timeout": 0} | change
    await client.post("retrieve_futures", body, status)


@pytest.mark.parametrize("number", [-1, 2**40, 2**60])
async def test_a_client_that_cannot_be_is_refused(client: Client, number: int) -> None:
    target = {"sampling_session_id": await sampler(client), "cloned_sampler_id": number}
    await client.post("retrieve_futures", {"target": target}, 400)


@pytest.mark.parametrize("front", [{"quotas": {"tuning_operations": 8}}], indirect=True)
async def test_a_client_sends_no_more_than_the_queue_takes(client: Client) -> None:
    config = await client.post("client/config", {"sdk_version": "x"})
    assert config["sample_max_concurrent_requests"] == 8
    assert config["fwdbwd_dispatch_bytes_semaphore_size"] == 40_000_000
    for seq_id in range(2, 8):
        await client.step(seq_id)
    config = await client.post("client/config", {"sdk_version": "x"})
    assert config["sample_max_concurrent_requests"] == 2
    assert config["fwdbwd_dispatch_bytes_semaphore_size"] == 10_000_000
    assert config["fwdbwd_max_chunk_len"] == 1024
