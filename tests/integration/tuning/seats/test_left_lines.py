"""Places in line of runs that go while they wait: nobody waits behind one that nobody wants."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
from tests.integration.tuning.full_parameters.test_trained import FULL, begun
from tests.integration.tuning.test_log import Client
from tests.support.factories import tuning_engines as make
from tests.support.services.front import Front, running_front
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core.db import Database
from windlass.tuning.pods.keeping import PodKeeper
from windlass.tuning.pods.places import TrainingPlace
from windlass.tuning.pods.seating import PodSeating
from windlass.tuning.pods.store import PodStore
from windlass.tuning.pods.tables import pods
from windlass.tuning_api.trainers.elsewhere import PodWish
from windlass.tuning_api.trainers.records import TrainableModel
from windlass.tuning_api.trainers.seats import SeatAwaited, SeatedWorkload

# A place that nobody asks for goes by itself after 60.
SOON = 20.0


@pytest.fixture
async def front(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Front]:
    # Who has the seat keeps it.
    monkeypatch.setattr("windlass.tuning.storage.execution.REST_SECONDS", 600)
    folder = tmp_path / "model"
    make.network().save_pretrained(folder)
    tuning = {
        "trainer": "lora",
        "model_folders": {"toy": str(folder)},
        "full_parameter_trainers": 8,
        "seats": {"max_residents": 1},
    }
    async with running_front(
        database_url, tmp_path / "data", tuning=tuning, quotas={"tuning_full_runs": 8}
    ) as made:
        yield made


async def waiting(http: httpx.AsyncClient) -> int:
    """The number of places in line whose holders were told why."""
    found = (await http.get("/api/v1/seats")).raise_for_status().json()["seats"]
    return sum(one["state"] == "waiting" and "was just asked" not in one["reason"] for one in found)


def exactly(number: int) -> Callable[[int], bool]:
    return lambda found: found == number


async def asked(http: httpx.AsyncClient, metadata: Mapping[str, str]) -> tuple[Client, Any]:
    """A client whose run waits for a seat, and the future of its beginning."""
    client = Client(http)
    body = {"sdk_version": "x", "user_metadata": metadata}
    client.session = (await client.post("create_session", body))["session_id"]
    wish = {"session_id": client.session, "model_seq_id": 0, "base_model": "toy"}
    future = await client.post("create_model", wish)
    client.run = future["model_id"]
    return client, future


async def unload(client: Client) -> None:
    await client.post("unload_model", {"model_id": client.run})


async def test_runs_that_go_while_they_wait_leave_the_line(front: Front) -> None:
    async with front.http() as http:
        resident = await begun(http)
        deleted, future = await asked(http, FULL)
        finished, _ = await asked(http, FULL)
        await until(lambda: waiting(http), holds=exactly(2))
        await unload(deleted)
        await until(lambda: waiting(http), SOON, holds=exactly(1))
        assert "deleted" in (await deleted.result(future))["error"]
        end = {"reason": {"type": "success"}}
        await finished.post(f"sessions/{finished.session}/finish", end)
        await until(lambda: waiting(http), SOON, holds=exactly(0))
        # A trainer that several share waits for as long as one of them does.
        shared = [await asked(http, {}) for _ in range(2)]
        await until(lambda: waiting(http), holds=exactly(1))
        await unload(shared[0][0])
        await shared[0][0].result(shared[0][1])
        assert await waiting(http) == 1
        await unload(shared[1][0])
        await until(lambda: waiting(http), SOON, holds=exactly(0))
        last, future = await asked(http, FULL)
        await until(lambda: waiting(http), holds=exactly(1))
        await unload(resident)
        assert (await last.result(future))["model_id"] == last.run


class FullCluster:
    """A cluster that has no quota for a pod, and takes note of what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def place(self, name: str, project_id: str) -> TrainingPlace:
        return TrainingPlace(pb.Cluster(id="c"), pb.Assignment())

    async def model(self, project_id: str, name: str) -> Any:
        return SimpleNamespace(HasField=lambda name: False)

    async def make(self, row: Any) -> pb.Workload:
        self.told.append(row.desired)
        return pb.Workload()

    async def PutWorkload(self, request: pb.PutWorkloadRequest) -> None:
        """Takes it."""


async def test_a_pod_that_nobody_wants_any_more_leaves_its_queue(database_url: str) -> None:
    database, full = Database(database_url), FullCluster()
    there: Any = full
    store = PodStore(database, "server")
    keeper = PodKeeper(store, there, there, url_seconds=60.0)
    wish = PodWish("trainer", TrainableModel("toy", 64, 8, 128), "run", "c")
    nothing: Any = None
    seating = PodSeating(wish, there, store, there, keeper, nothing, Path())
    workload = SeatedWorkload("toy", "run", 1)
    try:
        taking = asyncio.create_task(seating.take(workload, "p"))
        await until(lambda: full.told == ["running"])
        async with asyncio.timeout(2):
            await seating.give_up(workload)
            with pytest.raises(SeatAwaited, match="given up"):
                await taking
        assert full.told == ["running", "deleted"]
        async with database.autocommit() as connection:
            assert not await connection.scalar(sa.select(pods.c.id))
    finally:
        await database.close()
