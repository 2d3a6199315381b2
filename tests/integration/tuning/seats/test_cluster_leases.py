"""Leases of clusters: one Kueue-managed pod for a project, and seats in the ledger for its workers.

The cluster is a fake that runs at once what it is told, but for what a test withholds;
`tests/cluster/tuning` has the real one.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import sqlalchemy as sa
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.models.v1 import models_pb2
from windlass.core.config.tuning import SeatsSection
from windlass.core.db import Database
from windlass.core.db.wake import Wake
from windlass.core.rpc.following import BEAT_SECONDS
from windlass.tuning.leases.assembly import ledgers
from windlass.tuning.leases.keeping import LeaseKeeper
from windlass.tuning.leases.seating import LeasedProcess, LeasedSeat, LeasedSeating, LeasedWork
from windlass.tuning.leases.terms import KEEPER_BYTES, LeaseTerms
from windlass.tuning.pods.keeping import PodKeeper
from windlass.tuning.pods.places import TrainingPlace
from windlass.tuning.pods.store import PodStore
from windlass.tuning.pods.tables import pods
from windlass.tuning.pods.workloads import PodWorkloads
from windlass.tuning.seats.tables import leases, seats
from windlass.tuning_api.trainers.elsewhere import PodWish, Role
from windlass.tuning_api.trainers.records import NO_RESOURCES, PodResources, TrainableModel
from windlass.tuning_api.trainers.seats import SeatAwaited, SeatedWorkload, SeatRefused

GIB = 2**30
MODEL = TrainableModel("toy", 64, 8, 128, parameters=1000)
SHARED = {
    "device_bytes": 8 * GIB, "host_bytes": 8 * GIB, "program_bytes": GIB, "max_residents": 2,
}  # fmt: skip
EAST = pb.Cluster(id="c", name="east")
QUEUED = "Waits for quota: insufficient unused quota for memory."


class FakeCluster:
    """Stands for the clusters service, the models service and a cluster behind them."""

    def __init__(self) -> None:
        self.known: dict[str, pb.Workload] = {}
        self.ever: list[pb.Workload] = []
        # Phases in place of those that come by themselves, by role.
        self.withheld: dict[str, tuple[Any, str, str]] = {}
        self.ends_slowly = False
        self.watches: list[asyncio.Queue[pb.StatusDelta]] = []
        self._statuses: dict[str, pb.WorkloadStatus] = {}

    async def PutWorkload(self, request: pb.PutWorkloadRequest) -> None:
        made = request.workload
        if made.desired == pb.DESIRED_STATE_DELETED:
            if made.id in self.known:
                del self.known[made.id]
                self.say(made.id, pb.PHASE_STOPPING)
                if not self.ends_slowly:
                    self.say(made.id, pb.PHASE_STOPPED)
            return
        if made.id not in self.known:
            self.ever.append(made)
        self.known[made.id] = made
        phase = self.withheld.get(role_of(made), (pb.PHASE_RUNNING, "", ""))
        self.say(made.id, *phase)

    def say(self, workload_id: str, phase: Any, reason: str = "", message: str = "") -> None:
        status = pb.WorkloadStatus(
            workload_id=workload_id, phase=phase, reason=reason, message=message
        )
        self._statuses[workload_id] = status
        for watch in self.watches:
            watch.put_nowait(pb.StatusDelta(statuses=[status]))

    def WatchStatus(self, request: Any, **options: Any) -> "Watching":
        watch: asyncio.Queue[pb.StatusDelta] = asyncio.Queue()
        watch.put_nowait(pb.StatusDelta(snapshot=True, statuses=self._statuses.values()))
        self.watches.append(watch)
        return Watching(watch)

    async def ResolveModel(self, request: Any) -> models_pb2.ResolvedModel:
        return models_pb2.ResolvedModel()

    def running(self, role: str) -> list[pb.Workload]:
        return [one for one in self.known.values() if role_of(one) == role]


@dataclass
class Watching:
    queue: "asyncio.Queue[pb.StatusDelta]"

    def __aiter__(self) -> "Watching":
        return self

    async def __anext__(self) -> pb.StatusDelta:
        with suppress(TimeoutError):
            async with asyncio.timeout(BEAT_SECONDS):
                return await self.queue.get()
        return pb.StatusDelta()

    def cancel(self) -> None:
        """Ends nothing."""


def role_of(made: pb.Workload) -> str:
    return "lease" if made.HasField("lease") else made.engine.trainer.role


@dataclass
class Resident:
    """Stands for the link to a pod, of which only its turns matter here."""

    process: LeasedProcess
    pid: int = 0

    async def park(self) -> int:
        return 0

    async def restore(self) -> None:
        """Brings nothing back."""

    async def end(self) -> None:
        await self.process.end()


@dataclass
class Server:
    """A server of the tuning service, as far as leases go."""

    keeper: PodKeeper
    leases: LeaseKeeper
    work: LeasedWork
    tasks: list["asyncio.Task[None]"] = field(default_factory=list)

    def seating(
        self, owner: str, role: Role = "trainer", project: str = "p", **changes: Any
    ) -> LeasedSeating:
        given = SeatsSection.model_validate(
            {"turns": "fifo", "clusters": {"east": SHARED | changes}}
        )
        terms = LeaseTerms.of(given, EAST, takes_turns=True)
        assert terms is not None
        assigned = pb.Assignment(
            project_id=project, organization_id="o", namespace=f"team-{project}", local_queue="main"
        )
        wish = PodWish(role, MODEL, owner, "east")
        return LeasedSeating(wish, TrainingPlace(EAST, assigned), terms, self.work)

    async def seated(self, owner: str, **changes: Any) -> tuple[LeasedSeat, LeasedProcess]:
        """A trainer that has taken its seat, and whose pod has started in its turn."""
        seating = self.seating(owner, **changes)
        seat = await taken(seating, owner)
        async with seat.turn("p"):
            process = await seating.launch(seat)
            await seat.attach(Resident(process))
            return seat, process

    async def die(self) -> None:
        """Stops without a word."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def taken(seating: LeasedSeating, owner: str) -> LeasedSeat:
    """The seat that somebody gets who asks again and again."""

    async def asked() -> LeasedSeat | None:
        with suppress(SeatAwaited):
            return await seating.take(SeatedWorkload("toy", owner, 1000), "p")
        return None

    return await until(asked)


async def why(seating: LeasedSeating, owner: str) -> str:
    """What somebody is told who waits."""
    with pytest.raises(SeatAwaited) as waits:
        await seating.take(SeatedWorkload("toy", owner, 1000), "p")
    return str(waits.value)


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    made = Database(database_url)
    yield made
    await made.close()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    monkeypatch.setattr("windlass.tuning.seats.queueing.PATIENCE_SECONDS", 1.0)
    monkeypatch.setattr("windlass.tuning.seats.queueing._LINE_SECONDS", 0.05)
    monkeypatch.setattr("windlass.tuning.seats.holding.LOOK_SECONDS", 0.1)
    return FakeCluster()


@pytest.fixture
async def servers(
    database: Database, database_url: str, cluster: FakeCluster, tmp_path: Path
) -> AsyncIterator[list[Server]]:
    """Two of them; each keeps its leases when a test says so."""
    made = [await started(database, database_url, cluster, tmp_path, str(one)) for one in (1, 2)]
    yield made
    for one in made:
        await one.leases.close()
        await one.die()


async def started(
    database: Database, url: str, cluster: FakeCluster, sockets: Path, name: str
) -> Server:
    there: Any = cluster
    nothing: Any = None
    store = PodStore(database, name)
    workloads = PodWorkloads(there, nothing, presign_seconds=60)
    keeper = PodKeeper(store, workloads, there, url_seconds=60.0)
    settings = SeatsSection.model_validate({"turns": "fifo", "clusters": {"east": SHARED}})
    kept = LeaseKeeper(store, keeper, ledgers(database, Wake(url), settings, keeper))
    work = LeasedWork(kept, store, workloads, keeper, nothing, sockets)
    server = Server(keeper, kept, work, [asyncio.create_task(keeper.run())])
    await until(lambda: len(cluster.watches) >= int(name))
    return server


async def rows(database: Database, table: sa.Table) -> list[Any]:
    async with database.autocommit() as connection:
        return list(await connection.execute(table.select()))


async def nothing_is_left(database: Database) -> bool:
    return not [one for table in (pods, leases, seats) for one in await rows(database, table)]


async def test_a_project_has_one_lease_whose_workers_have_no_queue_and_the_third_waits(
    servers: list[Server], cluster: FakeCluster, database: Database
) -> None:
    here, there = servers
    one, first = await here.seated("run-a")
    await there.seated("run-b")
    [lease] = cluster.running("lease")
    assert (lease.lease.gpus, lease.lease.memory_bytes) == (1, 8 * GIB)
    assert (lease.placement.queue, lease.project_id) == ("main", "p")
    workers = cluster.running("trainer")
    assert [one.engine.trainer.lease_id for one in workers] == [lease.id] * 2
    assert [one.engine.gpus for one in workers] == [1] * 2
    [device] = await rows(database, leases)
    assert (device.host, device.device, device.queue) == (lease.id, "east", "main")
    sitting = await rows(database, seats)
    assert {one.process for one in sitting} == {one.id for one in workers}
    # Its memory is what the ledger counts, less its keeper's.
    [asked] = {one.engine.memory_bytes for one in workers}
    assert [one.host_bytes for one in sitting] == [asked + KEEPER_BYTES] * 2
    third = there.seating("run-c")
    await until(partial(why, third, "run-c"), holds=lambda said: "just asked" not in said)
    assert await why(third, "run-c") == "east has 2 residents of at most 2."
    await until(lambda: one.is_wanted)
    await first.end()
    await one.give_back()
    assert (await taken(third, "run-c")).id
    assert len(cluster.running("lease")) == 1


async def test_two_servers_ask_for_one_lease_at_once(
    servers: list[Server], cluster: FakeCluster
) -> None:
    asked = [(server, f"run-{number}") for number, server in enumerate(servers)]
    await asyncio.gather(*(taken(server.seating(owner), owner) for server, owner in asked))
    assert len([one for one in cluster.ever if role_of(one) == "lease"]) == 1


async def test_projects_have_leases_of_their_own_and_sit_on_no_others(
    servers: list[Server], cluster: FakeCluster, database: Database
) -> None:
    here, _ = servers
    ours = await taken(here.seating("run-a", max_residents=1), "run-a")
    theirs = here.seating("run-b", project="q", max_residents=1)
    assert (await taken(theirs, "run-b")).id != ours.id
    found = {one.id: one.project_id for one in cluster.running("lease")}
    assert sorted(found.values()) == ["p", "q"]
    assert {found[one.host]: one.owner for one in await rows(database, seats)} == {
        "p": "run-a", "q": "run-b",
    }  # fmt: skip
    # A loss of one is none of the other's.
    [mine] = [one for one, project in found.items() if project == "p"]
    cluster.say(mine, pb.PHASE_PENDING, "Queued", QUEUED)
    await until(lambda: [one.project_id for one in cluster.running("lease")] == ["q"])
    assert [one.owner for one in await rows(database, seats)] == ["run-b"]


async def test_who_waits_for_the_lease_hears_its_queue_and_then_sits(
    servers: list[Server], cluster: FakeCluster
) -> None:
    here, _ = servers
    cluster.withheld["lease"] = (pb.PHASE_PENDING, "Queued", QUEUED)
    seating = here.seating("run-a")
    said = await until(partial(why, seating, "run-a"), holds=lambda said: "starts" not in said)
    assert said == QUEUED
    [lease] = cluster.running("lease")
    assert not cluster.running("trainer")
    cluster.say(lease.id, pb.PHASE_RUNNING)
    assert (await taken(seating, "run-a")).id


async def test_a_lost_lease_takes_all_that_sits_there_and_the_next_asks_for_another(
    servers: list[Server], cluster: FakeCluster, database: Database
) -> None:
    here, there = servers
    held = [await here.seated("run-a"), await there.seated("run-b")]
    [lease] = cluster.running("lease")
    for server in servers:
        await server.leases.keep()
    cluster.say(lease.id, pb.PHASE_PENDING, "Queued", QUEUED)
    for _, process in held:
        await asyncio.wait_for(process.wait(), 30)
        await process.end()
    for seat, _ in held:
        await seat.give_back()
    await until(lambda: not cluster.known)
    await until(partial(nothing_is_left, database))
    await here.seated("run-a")
    assert [one.id != lease.id for one in cluster.running("lease")] == [True]


async def test_a_lease_that_rests_goes_and_one_that_is_used_elsewhere_stays(
    servers: list[Server], cluster: FakeCluster, database: Database
) -> None:
    here, there = servers
    (mine, process), (_, others) = [
        await server.seated(owner, rest_seconds=0.001)
        for server, owner in ((here, "run-a"), (there, "run-b"))
    ]
    await process.end()
    await mine.give_back()
    await here.leases.keep()
    assert len(cluster.running("lease")) == 1, "another server sits there"
    await others.end()
    [seat] = await rows(database, seats)
    assert seat.owner == "run-b"
    await until(partial(gives_back_and_ends, there, database))
    assert not cluster.known


async def gives_back_and_ends(server: Server, database: Database) -> bool:
    for lease in tuple(server.leases._leases.values()):
        for seat in lease.lines._held:
            await seat.give_back()
    await server.leases.keep()
    return await nothing_is_left(database)


async def test_a_seat_is_anothers_once_its_pod_has_left_the_device(
    servers: list[Server], cluster: FakeCluster, database: Database
) -> None:
    here, _ = servers
    _, process = await here.seated("run-a")
    [worker] = cluster.running("trainer")
    cluster.ends_slowly = True
    ending = asyncio.create_task(process.end())
    await until(lambda: not cluster.running("trainer"))
    done, _ = await asyncio.wait({ending}, timeout=0.3)
    assert not done, "the pod has not gone"
    cluster.say(worker.id, pb.PHASE_STOPPED)
    await asyncio.wait_for(ending, 30)


async def test_what_a_dead_server_had_is_ended_by_another(
    servers: list[Server], cluster: FakeCluster, database: Database
) -> None:
    here, there = servers
    await here.seated("run-a")
    await here.die()
    async with database.begin() as connection:
        for table in (pods, seats):
            past = sa.func.now() - sa.text("interval '1 minute'")
            await connection.execute(table.update().values(lease_until=past))
    await there.work.store.end_orphans()
    await until(partial(nothing_is_left, database))
    assert not cluster.known


async def test_seats_of_a_dead_server_are_free_on_a_lease_that_others_use(
    servers: list[Server], cluster: FakeCluster, database: Database
) -> None:
    here, there = servers
    await here.seated("run-a")
    await there.seated("run-b")
    await here.die()
    past = sa.func.now() - sa.text("interval '1 minute'")
    async with database.begin() as connection:
        for table in (pods, seats):
            gone = table.c.owner == "run-a"
            await connection.execute(table.update().where(gone).values(lease_until=past))
    await there.leases.keep()
    assert len(await rows(database, seats)) == 2, "its pod is still there"
    await there.work.store.end_orphans()
    async with database.begin() as connection:
        gone = seats.c.owner == "run-a"
        await connection.execute(seats.update().where(gone).values(lease_until=past))
    await until(lambda: len(cluster.running("trainer")) == 1)
    await there.leases.keep()
    assert [one.owner for one in await rows(database, seats)] == ["run-b"]


async def test_a_lease_that_cannot_run_refuses_who_asked_in_its_words(
    servers: list[Server], cluster: FakeCluster, database: Database
) -> None:
    here, _ = servers
    cluster.withheld["lease"] = (pb.PHASE_FAILED, "NoAccelerator", "Devices are counted here.")
    with pytest.raises(SeatRefused, match="lease in east cannot run: Devices are counted"):
        await taken(here.seating("run-a"), "run-a")
    await until(partial(nothing_is_left, database))
    cluster.withheld = {"trainer": (pb.PHASE_FAILED, "NoImage", "There is no image.")}
    with pytest.raises(SeatRefused, match="trainer cannot run: There is no image"):
        await here.seated("run-a")


async def test_a_run_that_gives_up_leaves_the_line_and_the_pod_that_starts(
    servers: list[Server], cluster: FakeCluster, database: Database
) -> None:
    here, _ = servers
    cluster.withheld["trainer"] = (pb.PHASE_STARTING, "Starting", "")
    seating = here.seating("run-a")
    seat = await taken(seating, "run-a")
    launching = asyncio.create_task(seating.launch(seat))
    await until(lambda: cluster.running("trainer"))
    await seating.give_up(SeatedWorkload("toy", "run-a", 1000))
    with pytest.raises(OSError, match="ended"):
        await launching
    assert not cluster.running("trainer")
    await seat.give_back()
    assert not await rows(database, seats)


@pytest.mark.parametrize(
    ("resources", "processes", "said"),
    [
        (PodResources(gpus=2), 1, "for no other gpus or accelerator"),
        (PodResources(accelerator="H200"), 1, "for no other gpus or accelerator"),
        (PodResources(memory_bytes=9 * GIB), 1, "8 GiB of memory for residents"),
        (NO_RESOURCES, 2, "do not park"),
    ],
)
async def test_what_never_sits_there_is_refused_before_anything_is_written(
    servers: list[Server], database: Database, resources: PodResources, processes: int, said: str
) -> None:
    seating = servers[0].seating("run-a")
    wish = PodWish(
        "trainer", MODEL, "run-a", "east", processes=processes, resources=resources
    )  # fmt: skip
    asked = cast(Any, seating)
    refused = LeasedSeating(wish, asked._place, asked._terms, servers[0].work)
    with pytest.raises(SeatRefused, match=said):
        await taken(refused, "run-a")
    assert await nothing_is_left(database)
