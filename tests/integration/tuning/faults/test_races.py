"""A key that ends while its loop runs, and a session that expires while it is alive."""

import asyncio
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.integration.tuning.test_log import Client
from tests.support.services.filled_tenant import ok
from tests.support.services.front import Front, running_front
from tests.support.waiting import until

from windlass.tuning import module
from windlass.tuning.results import ResultBoard

STEPS, PARKINGS = 25, 3
SILENCE = "UPDATE tuning_sessions SET heartbeat_at = extract(epoch FROM now()) - 3600"
PARKED = "SELECT state_checkpoint_id FROM tuning_runs WHERE state_checkpoint_id <> ''"


async def test_a_key_that_ends_ends_its_polls_and_another_goes_on(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait, waited = ResultBoard.wait, list[str]()

    async def noted(board: ResultBoard, project_id: str, operation_id: str, seconds: float) -> Any:
        waited.append(operation_id)
        return await wait(board, project_id, operation_id, seconds)

    monkeypatch.setattr(ResultBoard, "wait", noted)
    async with front.http() as owner:
        body = {"name": "loop", "role": "project_owner"}
        key = await ok(owner.post("/v1/api_keys", json=body))
        async with front.http(key["value"]) as http:
            client = Client(http)
            await client.begin()
            await client.result(await client.step(1))
            # Its turn never comes: the poll lasts as long as one may.
            waiting = await client.step(3)
            question = {"request_id": waiting["request_id"]}
            poll = asyncio.create_task(http.post("/api/v1/retrieve_future", json=question))
            await until(lambda: waiting["request_id"] in waited)
            await ok(owner.delete(f"/v1/api_keys/{key['id']}"))

            async def refused() -> int:
                body = {"model_id": client.run, "seq_id": 2, "adam_params": {"learning_rate": 1}}
                return (await http.post("/api/v1/optim_step", json=body)).status_code

            assert await until(refused, holds=lambda status: status != 200) == 401
            assert (await poll).status_code == 401
        # What was asked before counts, and the project's next key fills the gap.
        client.http = owner
        assert (await client.result(await client.step(2)))["metrics"]["step:max"] == 2
        assert (await client.result(waiting))["metrics"]["step:max"] == 3


async def test_heartbeats_and_expiry_race_and_nothing_is_lost(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SWEEP_SECONDS", 0.01)
    tuning = {"trainer": "null", "base_models": ["toy"]}
    async with running_front(database_url, tmp_path, tuning=tuning) as front, front.http() as http:
        client, over, parked = Client(http), asyncio.Event(), set[str]()
        await client.begin()
        url = front.app.database.url.replace("+psycopg", "")

        async def live() -> None:
            while not over.is_set():
                await client.post("session_heartbeat", {"session_id": client.session})

        def expire_and_look() -> None:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(SILENCE)
                parked.update(str(one) for (one,) in connection.execute(PARKED))

        async def expire() -> None:
            while not over.is_set():
                await asyncio.to_thread(expire_and_look)

        async def work() -> list[float]:
            found: list[float] = []
            while len(found) < STEPS or len(parked) < PARKINGS:
                result = await client.result(await client.step(len(found) + 1))
                found.append(result["metrics"]["step:max"])
            over.set()
            return found

        async with asyncio.TaskGroup() as group:
            group.create_task(live())
            group.create_task(expire())
            done = group.create_task(work())
        assert done.result() == [float(number + 1) for number in range(len(done.result()))]
