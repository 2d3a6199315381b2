"""What a process leaves behind when it ends, and what the next one makes of it."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.integration.tuning.test_log import Client, loss, send
from tests.support.services.front import Front, running_front

from windlass.core.objects import StoreUnavailable
from windlass.tuning.execution import runs
from windlass.tuning_api.trainers.null import NullTrainer

SETTINGS = {"trainer": "null", "base_models": ["toy"]}
Begin = Callable[[], AbstractAsyncContextManager[Front]]


@pytest.fixture
def begin(database_url: str, tmp_path: Path) -> Begin:
    return lambda: running_front(database_url, tmp_path / "data", tuning=SETTINGS)


async def test_a_run_goes_on_after_a_restart(begin: Begin) -> None:
    async with begin() as front, front.http() as http:
        client = Client(http)
        await client.begin()
        first = await client.step(1)
        await client.result(first)
        waiting = await client.step(3)
    async with begin() as front, front.http() as http:
        client.http = http
        assert (await client.result(first))["metrics"]["step:max"] == 1.0
        assert await client.step(1) == first
        assert (await client.result(await client.step(2)))["metrics"]["step:max"] == 2.0
        assert (await client.result(waiting))["metrics"]["step:max"] == 3.0


async def test_a_lost_trainer_says_so_and_a_checkpoint_goes_on(begin: Begin) -> None:
    async with begin() as front, front.http() as http:
        client = Client(http)
        await client.begin()
        await client.result(await client.step(1))
        saved = await client.post(
            "save_weights", {"model_id": client.run, "path": "s", "seq_id": 2}
        )
        path = (await client.result(saved))["path"]
        waiting = await client.step(9)
        url = front.app.database.url.replace("+psycopg", "")
    with psycopg.connect(url, autocommit=True) as connection:
        # As if it had been killed in the middle of a step.
        connection.execute("UPDATE tuning_runs SET is_dirty = true")
    async with begin() as front, front.http() as http:
        client.http = http
        for future in (await client.step(3), waiting):
            found = await client.result(future)
            assert (found["category"], "was lost" in found["error"]) == ("server", True)
        body = {"session_id": client.session, "model_seq_id": 1, "path": path, "optimizer": True}
        resumed = await client.result(await client.post("load_weights", body))
        client.run = resumed["model_id"]
        assert (await client.result(await client.step(1)))["metrics"]["step:max"] == 2.0


async def test_a_store_that_is_away_has_nothing_done_twice(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with begin() as front, front.http() as http:
        client = Client(http)
        await client.begin()
        put, failures = front.app.objects.put, iter((True, True))

        async def away(key: str, *values: Any, **named: Any) -> Any:
            if "/result-" in key and next(failures, False):
                raise StoreUnavailable("away")
            return await put(key, *values, **named)

        monkeypatch.setattr(front.app.objects, "put", away)
        answer = await send(client, loss(client, 1, *range(30_000)).SerializeToString())
        assert "loss_fn_outputs" in await client.result(answer.json())
        assert next(failures, None) is None
        assert (await client.result(await client.step(2)))["metrics"]["step:max"] == 1.0


async def test_a_trainer_that_fails_ends_what_it_was_asked(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with begin() as front, front.http() as http:
        client = Client(http)
        await client.begin()

        async def fail(*_: object) -> Any:
            raise ValueError("a bug")

        monkeypatch.setattr(NullTrainer, "execute", fail)
        monkeypatch.setattr(runs, "TRIES", 2)
        found = await client.result(await client.step(1))
        assert (found["category"], "bug" in found["error"]) == ("server", False)
