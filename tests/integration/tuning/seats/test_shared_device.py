"""Trainers of several base models on one device: by turns to the end, or refused with numbers."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from tests.integration.tuning.test_log import Client
from tests.integration.tuning.test_trained import BODY, trainers
from tests.support.factories import tuning_engines as make
from tests.support.services.front import Front, running_front
from tests.support.waiting import until

from windlass.tuning.seats.tables import leases, seats

GIB = 2**30
ONE, OTHER, HUGE = "one", "other", "huge"
DEMAND = {"device_bytes": GIB, "host_bytes": GIB}
STEPS = 12


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    found = {}
    for seed, name in enumerate((ONE, OTHER, HUGE)):
        path = tmp_path_factory.mktemp("base") / name
        make.network(seed).save_pretrained(path)
        found[name] = str(path)
    return found


def sharing(**others: Any) -> dict[str, Any]:
    """A device that has room for one active trainer at a time."""
    return {
        "devices": {"gpu-0": {"device_bytes": GIB}},
        "host_bytes": 8 * GIB,
        "demands": {ONE: DEMAND, OTHER: DEMAND, HUGE: DEMAND | {"device_bytes": 4 * GIB}},
        "turns": "fifo",
        "turn_seconds": 0.3,
        "rest_seconds": 0.1,
        **others,
    }


@pytest.fixture
async def front(
    database_url: str, tmp_path: Path, folders: dict[str, str], request: pytest.FixtureRequest
) -> AsyncIterator[Front]:
    tuning = {
        "trainer": "lora",
        "model_folders": folders,
        "seats": sharing(**getattr(request, "param", {})),
    }
    async with running_front(database_url, tmp_path / "data", tuning=tuning) as made:
        yield made
    assert trainers() == []


async def begun(http: httpx.AsyncClient, model: str) -> Client:
    """A client of an exclusive run on a model."""
    client = Client(http)
    client.run = (await client.result(await asked(client, model)))["model_id"]
    return client


async def asked(client: Client, model: str) -> Any:
    """The future of a run in a session of its own."""
    made = await client.post("create_session", {"sdk_version": "x"})
    client.session = made["session_id"]
    body = {
        "session_id": client.session, "model_seq_id": 0, "base_model": model,
        "lora_config": {"rank": 8, "seed": 1}, "user_metadata": {"windlass.exclusive": True},
    }  # fmt: skip
    return await client.post("create_model", body)


async def learned(client: Client, number: int, begin: int = 0) -> list[float]:
    """Losses of so many steps, of which each waits for the one before it."""
    losses = []
    for place in range(begin, begin + number):
        body = {"model_id": client.run, "seq_id": 2 * place + 1, "forward_backward_input": BODY}
        computed = await client.post("forward_backward", body)
        stepped = await client.step(2 * place + 2, learning_rate=1e-2)
        losses.append(float((await client.result(computed))["metrics"]["loss:sum"]))
        assert "metrics" in await client.result(stepped)
    return losses


async def rows(front: Front, table: sa.Table = seats) -> list[Any]:
    async with front.app.database.autocommit() as connection:
        return list(await connection.execute(table.select()))


async def test_two_models_train_by_turns_bit_for_bit_as_alone(front: Front) -> None:
    async with front.http() as http:
        alone = {name: await learned(await begun(http, name), STEPS) for name in (ONE, OTHER)}
        assert alone[ONE] != alone[OTHER]
        clients = [await begun(http, name) for name in (ONE, OTHER)]
        before = sum(one.switches for one in await rows(front))
        together = await asyncio.gather(*(learned(client, STEPS) for client in clients))
        assert together == [alone[ONE], alone[OTHER]]
        found = await rows(front)
        assert sorted(one.workload for one in found) == [ONE, OTHER]
        assert sum(one.switches for one in found) >= before + 2
        assert len({one.process for one in found}) == len(trainers()) == 2


async def test_a_model_that_never_fits_is_refused_with_the_numbers(front: Front) -> None:
    async with front.http() as http:
        client = Client(http)
        refused = await client.result(await asked(client, HUGE))
        # What it is asked all the same is refused too, and waits for nothing that never comes.
        client.run = f"{client.session}:train:0"
        for seq_id in (1, 2):
            asked_again = await client.result(await client.step(seq_id))
            assert asked_again["error"] == refused["error"]
    assert "gpu-0 has 1 GiB, and 4 GiB would be needed" in refused["error"]
    assert await rows(front) == []
    assert [one.device_bytes for one in await rows(front, leases)] == [GIB]


@pytest.mark.parametrize("front", [{"parking_seconds": 1.0, "restore_seconds": 1.0}], indirect=True)
async def test_who_does_not_park_or_come_back_is_started_anew_to_the_bit(front: Front) -> None:
    async with front.http() as http:
        clients = {name: await begun(http, name) for name in (ONE, OTHER)}
        first = {name: await learned(client, 2) for name, client in clients.items()}
        # It has the device, and will not park.
        stopped(await process_of(front, OTHER))
        found = await learned(clients[ONE], 1, begin=2)
        # It is parked, and will not come back.
        again = {OTHER: await learned(clients[OTHER], 1, begin=2)}
        stopped(await process_of(front, ONE))
        rest = await learned(clients[ONE], 1, begin=3)
        undisturbed = [await learned(await begun(http, name), 4) for name in (ONE, OTHER)]
    assert [*first[ONE], *found, *rest] == undisturbed[0]
    assert [*first[OTHER], *again[OTHER]] == undisturbed[1][:3]


async def process_of(front: Front, workload: str) -> int:
    [row] = [one for one in await rows(front) if one.workload == workload]
    return int(row.process.partition(":")[0])


def stopped(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


TIGHT = {"demands": {name: DEMAND | {"host_bytes": 6 * GIB} for name in (ONE, OTHER, HUGE)}}


@pytest.mark.parametrize("front", [TIGHT], indirect=True)
async def test_a_third_waits_for_room_until_a_trainer_is_killed(front: Front) -> None:
    async with front.http() as http:
        await begun(http, ONE)
        other = Client(http)
        future = await asked(other, OTHER)

        async def why() -> str | None:
            waiting = [row for row in await rows(front) if not row.lease_id]
            return waiting[0].reason if waiting else None

        said = await until(why)
        assert "8 GiB of memory for residents, of which 6 GiB are taken" in said
        [trainer] = trainers()
        os.kill(trainer.pid, signal.SIGKILL)
        assert "model_id" in await other.result(future)
        assert [row.workload for row in await rows(front)] == [OTHER]
