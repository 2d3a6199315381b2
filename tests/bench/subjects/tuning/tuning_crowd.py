"""Another route's latency while samples are in flight and thousands of polls wait for results.

`windlass serve` as it is by default, one process. The samples go to an engine that never answers,
so that each poll waits as long as one may. Beside it, the same requests when nothing waits.
"""

import asyncio
import time
from typing import Any

import aiohttp
import psycopg
from tests.bench.figures import Figure, Options, at_most
from tests.bench.load import paced, percentile
from tests.bench.plant import NO_AGENT, script, served_on
from tests.support.processes.windlass import free_port

SAMPLES, POLLS = 512, 2000
RATE, SECONDS, QUICK_SECONDS = 50.0, 20.0, 3.0
P99_MS = 50
# All of them come from here.
ONE_ADDRESS = {"http": {"max_connections_per_address": 2 * POLLS}}
PROMPT = {"chunks": [{"type": "encoded_text", "tokens": [1, 2, 3]}]}
_CONNECTIONS = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"


async def measure(options: Options) -> list[Figure]:
    """The 99th percentile of the other route, and the connections to Postgres meanwhile."""
    seconds = QUICK_SECONDS if options.quick else SECONDS
    port = free_port()
    tuning = {
        "trainer": "null",
        "base_models": ["toy"],
        "samplers": {"toy": f"http://127.0.0.1:{port}"},
    }
    with script("endless_engine", str(port)):
        async with served_on({**NO_AGENT, **ONE_ADDRESS, "tuning": tuning}) as (plant, url):
            headers = {"authorization": f"Bearer {plant.windlass.owner_key}"}
            connector = aiohttp.TCPConnector(limit=0)
            async with aiohttp.ClientSession(
                plant.windlass.url, headers=headers, connector=connector
            ) as session:
                quiet = await _listed(session, seconds)
                futures = await _sampled(session)
                polls = [
                    asyncio.create_task(_poll(session, futures[number % SAMPLES]))
                    for number in range(POLLS)
                ]
                await asyncio.sleep(1)
                crowded = await _listed(session, seconds)
                if ended := [one for one in polls if one.done()]:
                    raise RuntimeError(f"{len(ended)} polls ended: {ended[0]}")
                connections = _connections(url)
                for one in polls:
                    one.cancel()
                await asyncio.gather(*polls, return_exceptions=True)
    p99, alone = (1000 * percentile(found, 0.99) for found in (crowded, quiet))
    return [
        at_most("tuning_crowd_p99", p99, "ms", P99_MS).beside("nobody waits", alone),
        at_most("tuning_crowd_connections", connections, "to Postgres", POLLS / 20),
    ]


async def _listed(session: aiohttp.ClientSession, seconds: float) -> list[float]:
    took: list[float] = []

    async def call() -> None:
        began = time.perf_counter()
        async with session.get("/v1/files", raise_for_status=True) as answer:
            await answer.read()
        took.append(time.perf_counter() - began)

    await paced(call, count=int(RATE * seconds), rate=RATE)
    return took


async def _sampled(session: aiohttp.ClientSession) -> list[str]:
    """The futures of samples that are not answered."""
    made = await _post(session, "create_session", {})
    body = {"session_id": made["session_id"], "sampling_session_seq_id": 0, "base_model": "toy"}
    sampler = (await _post(session, "create_sampling_session", body))["sampling_session_id"]
    futures = []
    for number in range(SAMPLES):
        asked = {
            "sampling_session_id": sampler,
            "seq_id": number,
            "prompt": PROMPT,
            "sampling_params": {"max_tokens": 16},
        }
        futures.append(str((await _post(session, "asample", asked))["request_id"]))
    return futures


async def _poll(session: aiohttp.ClientSession, future: str) -> Any:
    """Polls again and again; returns the result, or the refusal."""
    while True:
        async with session.post("/api/v1/retrieve_future", json={"request_id": future}) as answer:
            found = await answer.json()
            if answer.status != 200 or found.get("type") != "try_again":
                return found


async def _post(session: aiohttp.ClientSession, path: str, body: Any) -> Any:
    async with session.post(f"/api/v1/{path}", json=body, raise_for_status=True) as answer:
        return await answer.json()


def _connections(url: str) -> float:
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        found = connection.execute(_CONNECTIONS).fetchone()
    return float(found[0]) if found else 0.0
