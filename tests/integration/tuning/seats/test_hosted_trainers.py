"""Trainers in the pod of a counted lease take turns without a restart and to the bit.

All but the cluster's API and the tunnel is real: leases and seats, the agent's driver, launchers,
keepers, doors and trainers.
"""

import asyncio
import contextlib
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.contract.tuning.test_lora_trainer import BASE
from tests.integration.tuning.seats.test_cluster_leases import (
    FakeCluster,
    Server,
    nothing_is_left,
    role_of,
    rows,
    started,
)
from tests.integration.tuning.seats.test_leased_trainers import (
    ROUNDS,
    RUNS,
    leased,
    opened,
    step,
)
from tests.support.agents.file_store import file_store
from tests.support.agents.hosting_cluster import VERSION, HostingCluster, hosting_cluster
from tests.support.factories import tuning_engines as make
from tests.support.trainers import trainers
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core.db import Database
from windlass.tuning.leases import seating
from windlass.tuning.seats.tables import leases, seats
from windlass.tuning_api.trainers.described import described
from windlass.tuning_api.trainers.port import RunNotOpen, TrainerLost
from windlass.tuning_api.trainers.records import Outcome
from windlass.tuning_api.trainers.remote.process import TrainerCommand
from windlass.tuning_api.trainers.remote.trainer import RemoteTrainer
from windlass_agent.keeper.trainer_door import _join

pytestmark = pytest.mark.torch


class CountedCluster(FakeCluster):
    """Stands for the clusters service in front of an agent, whose statuses it passes on."""

    def __init__(self, agent: HostingCluster, model: Path):
        super().__init__()
        self.agent = agent
        self.model = model
        self.task = asyncio.create_task(agent.follow(self.say))

    async def PutWorkload(self, request: pb.PutWorkloadRequest) -> None:
        made = pb.Workload()
        made.CopyFrom(request.workload)
        if made.desired == pb.DESIRED_STATE_DELETED:
            self.known.pop(made.id, None)
        else:
            if made.id not in self.known:
                self.ever.append(made)
            self.known[made.id] = made
        await self.agent.apply(made)


class DoorSocket:
    """Stands for the way through the tunnel, up to the door of a resident."""

    def __init__(self, path: Path, server: asyncio.Server):
        self.path = path
        self._server = server

    async def close(self) -> None:
        self._server.close()


@pytest.fixture
def sockets() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="windlass-test-") as name:
        yield Path(name)


@pytest.fixture
async def cluster(
    tmp_path: Path, sockets: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[CountedCluster]:
    monkeypatch.setattr("windlass.tuning.seats.queueing.PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr("windlass.tuning.seats.holding.LOOK_SECONDS", 0.1)
    model = tmp_path / "store" / VERSION
    make.network().save_pretrained(model)
    with file_store(tmp_path / "store") as store:
        async with hosting_cluster(tmp_path, store, monkeypatch) as agent:

            async def pass_on(name: str, *near: Any) -> None:
                found = agent.doors.find(name)
                with contextlib.suppress(OSError):
                    if found is not None:
                        host, port, server = found
                        far = await asyncio.open_connection(
                            host, port, ssl=agent.doors.tls, server_hostname=server
                        )
                        await _join((near[0], near[1]), far)
                        far[1].transport.abort()
                near[1].transport.abort()

            class Sockets:
                @staticmethod
                async def open(lanes: Any, folder: Any, cluster_id: str, pod_id: str) -> DoorSocket:
                    path = sockets / pod_id[-8:]
                    path.unlink(missing_ok=True)

                    async def carry(reader: Any, writer: Any) -> None:
                        await pass_on(pod_id, reader, writer)

                    return DoorSocket(path, await asyncio.start_unix_server(carry, path))

            monkeypatch.setattr(seating, "TunnelSocket", Sockets)
            made = CountedCluster(agent, model)
            yield made
            made.task.cancel()


@pytest.fixture
async def server(
    database_url: str, cluster: CountedCluster, tmp_path: Path
) -> AsyncIterator[Server]:
    database = Database(database_url)
    made = await started(database, database_url, cluster, tmp_path, "1")
    yield made
    await made.leases.close()
    await until(lambda: not trainers())
    await made.die()
    await database.close()


async def alone(model: Path, folder: Path) -> list[list[Outcome]]:
    """Outcomes of a run that has a device for itself."""
    for name in ("here", "sockets"):
        (folder / name).mkdir(mode=0o700)
    command = TrainerCommand(BASE, model, 32, folder / "here", folder / "sockets", is_full=True)
    made = RemoteTrainer(described(BASE, model, max_rank=32), command, idle_seconds=600.0)
    await made.open(RUNS[0])
    found = [await step(made, RUNS[0]) for _ in range(ROUNDS + 1)]
    await made.stop()
    return found


async def test_two_trainers_of_one_pod_take_turns_to_the_bit_and_come_back_on_the_next(
    server: Server, cluster: CountedCluster, database_url: str, tmp_path: Path
) -> None:
    expected = await alone(cluster.model, tmp_path)
    both = [(leased(server, run, cluster.model), run) for run in RUNS]
    database = Database(database_url)
    try:
        for trainer, run in both:
            await opened(trainer, run)
        pids = {one.pid for one in trainers()}
        assert len(pids) == 2
        found = [[await step(*one) for one in both] for _ in range(ROUNDS)]
        assert [list(one) for one in zip(*found, strict=True)] == [expected[:ROUNDS]] * 2
        assert {one.pid for one in trainers()} == pids
        assert len(await rows(database, leases)) == 1
        # Each has left the device to the other, and come back.
        assert min(one.switches for one in await rows(database, seats)) >= ROUNDS - 1
        [lease] = cluster.running("lease")
        assert [role_of(one) for one in cluster.ever] == ["lease", "trainer", "trainer"]
        # One that is killed comes back, and the other is where it was.
        [victim] = [one for one in trainers() if cluster.ever[1].id in " ".join(one.cmdline())]
        victim.kill()
        (first, second), hosted = both, cluster.agent.leases[lease.id]
        with pytest.raises((TrainerLost, RunNotOpen)):
            await step(*first)
        assert await step(*second) == expected[ROUNDS]
        await opened(*first)
        assert await step(*first) == expected[0]
        assert len(pids & {one.pid for one in trainers()}) == 1
        assert len(cluster.running("lease")) == 1
        cluster.agent.has_room.clear()
        del cluster.agent.leases[lease.id]
        await cluster.agent.end(hosted, signal.SIGKILL)
        cluster.agent.looked.set()
        await until(lambda: not hosted.left() and lease.id not in cluster.known)
        cluster.agent.has_room.set()
        for trainer, run in both:
            with pytest.raises((TrainerLost, RunNotOpen)):
                await step(trainer, run)
            await opened(trainer, run)
            assert await step(trainer, run) == expected[0]
        assert [one.id != lease.id for one in cluster.running("lease")] == [True]
    finally:
        for trainer, _ in both:
            await trainer.stop()
    await server.leases.close()
    await until(lambda: not trainers())
    assert await nothing_is_left(database)
    await database.close()
