"""Trainers on one lease take turns by their own parking, without a restart and to the bit.

They are the real processes, by the flags of their pods, on sockets of this machine in the place of
the tunnel; the cluster that starts them is a fake.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.contract.tuning.full_parameters.test_full_runs import ADAM, DATA, RUN
from tests.contract.tuning.test_lora_trainer import BASE, losses
from tests.integration.tuning.seats.test_cluster_leases import (
    EAST,
    SHARED,
    FakeCluster,
    Server,
    nothing_is_left,
    role_of,
    rows,
    started,
)
from tests.support.factories import tuning_engines as make
from tests.support.trainers import trainers
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core.config.tuning import SeatsSection
from windlass.core.db import Database
from windlass.tuning.leases import seating
from windlass.tuning.leases.terms import LeaseTerms
from windlass.tuning.pods.places import TrainingPlace
from windlass.tuning.seats.tables import leases, seats
from windlass.tuning_api.trainers.described import described
from windlass.tuning_api.trainers.elsewhere import PodWish
from windlass.tuning_api.trainers.port import RunNotOpen, Trainer, TrainerLost
from windlass.tuning_api.trainers.records import Outcome, Run
from windlass.tuning_api.trainers.remote.process import TrainerCommand
from windlass.tuning_api.trainers.remote.trainer import RemoteTrainer
from windlass.tuning_api.trainers.seats import SeatAwaited, SeatedWorkload
from windlass_agent.engines.in_pods.trainer import TrainerKind
from windlass_agent.engines.port import EngineSpec

RUNS = [replace(RUN, id=f"{name}:1", project_id="p") for name in ("a", "b")]
ROUNDS = 3


class RunningCluster(FakeCluster):
    """Starts the process of each pod, and ends it with that."""

    def __init__(self, model: Path, home: Path):
        super().__init__()
        self.model, self.home = model, home
        self.processes: dict[str, asyncio.subprocess.Process] = {}

    async def PutWorkload(self, request: pb.PutWorkloadRequest) -> None:
        made = request.workload
        if made.desired == pb.DESIRED_STATE_DELETED:
            if (process := self.processes.pop(made.id, None)) is not None:
                process.kill()
                await process.wait()
        elif role_of(made) != "lease" and made.id not in self.processes:
            self.processes[made.id] = await self._start(made)
        await super().PutWorkload(request)

    async def _start(self, made: pb.Workload) -> asyncio.subprocess.Process:
        folder = self.home / made.id
        folder.mkdir()
        spec = EngineSpec(
            model_dir=self.model, served_name=BASE, endpoint="http://127.0.0.1:8000",
            scratch=folder,
        )  # fmt: skip
        words = TrainerKind(Path(sys.executable), made.engine.trainer).command(spec)
        words = [one.replace("127.0.0.1:8000", f"unix:{folder / 's'}") for one in words]
        return await asyncio.create_subprocess_exec(*words)


class LocalSocket:
    """Stands for the way through the tunnel."""

    def __init__(self, path: Path):
        self.path = path

    async def close(self) -> None:
        """Closes nothing."""


@pytest.fixture
def pods() -> Iterator[Path]:
    """The folder of their sockets, whose paths may have 107 characters: `tmp_path` is too long."""
    with tempfile.TemporaryDirectory(prefix="windlass-test-") as name:
        yield Path(name)


@pytest.fixture
def cluster(tmp_path: Path, pods: Path, monkeypatch: pytest.MonkeyPatch) -> RunningCluster:
    make.network().save_pretrained(tmp_path / "model")
    made = RunningCluster(tmp_path / "model", pods)

    class Sockets:
        @staticmethod
        async def open(lanes: Any, sockets: Any, cluster_id: str, pod_id: str) -> LocalSocket:
            return LocalSocket(made.home / pod_id / "s")

    monkeypatch.setattr(seating, "TunnelSocket", Sockets)
    return made


@pytest.fixture
async def server(
    database_url: str, cluster: RunningCluster, tmp_path: Path
) -> AsyncIterator[Server]:
    database = Database(database_url)
    made = await started(database, database_url, cluster, tmp_path, "1")
    yield made
    await made.leases.close()
    await made.die()
    await database.close()
    assert trainers() == []


def leased(server: Server, run: Run, model: Path) -> RemoteTrainer:
    """The trainer of a run, on the lease of its project."""
    found = described(BASE, model, max_rank=32)
    settings = SeatsSection.model_validate({"turns": "fifo", "clusters": {"east": SHARED}})
    terms = LeaseTerms.of(settings, EAST, takes_turns=True)
    assert terms is not None
    assigned = pb.Assignment(project_id="p", namespace="team", local_queue="main")
    wish = PodWish("trainer", found, run.id, "east", max_rank=32)
    place = seating.LeasedSeating(wish, TrainingPlace(EAST, assigned), terms, server.work)
    workload = SeatedWorkload(BASE, run.id, 1000)
    return RemoteTrainer(found, place, idle_seconds=600.0, seating=place, workload=workload)


async def opened(trainer: Trainer, run: Run) -> None:
    async def asked() -> bool:
        try:
            await trainer.open(run)
        except SeatAwaited:
            return False
        return True

    await until(asked, 120)


async def step(trainer: Trainer, run: Run) -> list[Outcome]:
    return list(await trainer.execute(run.id, [losses(*DATA), ADAM]))


async def test_two_trainers_take_turns_on_one_lease_to_the_bit(
    server: Server, cluster: RunningCluster, database_url: str, tmp_path: Path
) -> None:
    for name in ("here", "sockets"):
        (tmp_path / name).mkdir(mode=0o700)
    command = TrainerCommand(
        BASE, cluster.model, 32, tmp_path / "here", tmp_path / "sockets", is_full=True
    )
    alone = RemoteTrainer(
        described(BASE, cluster.model, max_rank=32), command, idle_seconds=600.0
    )  # fmt: skip
    await alone.open(RUNS[0])
    expected = [await step(alone, RUNS[0]) for _ in range(ROUNDS)]
    await alone.stop()
    both = [(leased(server, run, cluster.model), run) for run in RUNS]
    database = Database(database_url)
    try:
        for trainer, run in both:
            await opened(trainer, run)
        pids = [one.pid for one in cluster.processes.values()]
        found = [[await step(*one) for one in both] for _ in range(ROUNDS)]
        assert [list(one) for one in zip(*found, strict=True)] == [expected, expected]
        assert [one.pid for one in cluster.processes.values()] == pids
        assert len(await rows(database, leases)) == 1
        # Each has left the device to the other, and come back.
        assert min(one.switches for one in await rows(database, seats)) >= ROUNDS - 1
        [lease] = cluster.running("lease")
        cluster.say(lease.id, pb.PHASE_PENDING, "Queued", "It is preempted.")
        await until(lambda: not cluster.processes)
        for trainer, run in both:
            with pytest.raises((TrainerLost, RunNotOpen)):
                await step(trainer, run)
            await opened(trainer, run)
            assert await step(trainer, run) == expected[0]
    finally:
        for trainer, _ in both:
            await trainer.stop()
    await server.leases.close()
    assert await nothing_is_left(database)
    await database.close()
