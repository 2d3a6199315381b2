"""What a client hears while the pod of its run, or of its session's sampler, does not serve."""

import asyncio
from typing import Any, cast

import sqlalchemy as sa
from tests.integration.tuning.test_log import Client
from tests.support.services.front import Front
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.tuning.leases.keeping import TURN_AWAITED, LeaseKeeper
from windlass.tuning.pods.keeping import PodKeeper
from windlass.tuning.pods.store import PodStore
from windlass.tuning.seats.ledger import SeatLedger, SeatWish
from windlass.tuning.seats.lines import WaitingReasons
from windlass.tuning.storage.tables import runs
from windlass.tuning_api.seating.admission import Demand
from windlass.tuning_api.seating.turns import TurnPolicy

DEVICE = {
    "device": "east", "device_bytes": 9, "host_bytes": 9, "max_residents": 1, "devices": 1,
    "project_id": "", "queue": "",
}  # fmt: skip
WHY = "Waits for quota: insufficient unused quota for memory."


class Told:
    """Stands for the clusters service and its one stream: says how workloads are."""

    def __init__(self) -> None:
        self.deltas: asyncio.Queue[pb.StatusDelta] = asyncio.Queue()

    def WatchStatus(self, request: Any, **options: Any) -> "Told":
        return self

    def __aiter__(self) -> "Told":
        return self

    async def __anext__(self) -> pb.StatusDelta:
        return await self.deltas.get()

    def cancel(self) -> None:
        """Ends nothing."""

    def say(self, workload_id: str, phase: "pb.Phase.ValueType", message: str = "") -> None:
        status = pb.WorkloadStatus(workload_id=workload_id, phase=phase, message=message)
        self.deltas.put_nowait(pb.StatusDelta(statuses=[status]))


async def test_who_waits_for_a_pod_hears_why_and_nobody_else(front: Front) -> None:
    store, told = PodStore(front.app.database, "here"), Told()
    keeper = PodKeeper(store, cast(Any, None), cast(Any, told), url_seconds=60)
    reasons = WaitingReasons(front.app.database, keeper.reason, full_trainers=1)
    following = asyncio.create_task(keeper.follower.run())
    async with front.http() as http:
        client, other = Client(http), Client(http)
        for one in (client, other):
            await one.begin()
        # Nothing fills the gap.
        asked, elsewhere = [(await one.step(5))["request_id"] for one in (client, other)]
        project_id = await begun(front, store, client.run)

        async def said(operation_id: str = asked, project: str = project_id) -> str:
            return await reasons.of(project, operation_id)

        assert await said() == ""
        told.say("trainer_1", pb.PHASE_PENDING, WHY)
        assert await until(said) == WHY
        assert [await said(elsewhere), await said(project="another")] == ["", ""]
        told.say("trainer_1", pb.PHASE_RUNNING, "It serves.")
        await until(said, holds=lambda found: found == "")
    following.cancel()


async def test_who_waits_for_a_place_on_shared_devices_hears_the_numbers(front: Front) -> None:
    database, told = front.app.database, Told()
    store, nothing = PodStore(database, "here"), cast(Any, None)
    keeper = PodKeeper(store, nothing, cast(Any, told), url_seconds=60)
    leases = LeaseKeeper(store, keeper, nothing)
    reasons = WaitingReasons(database, leases.reason, full_trainers=1)
    following = asyncio.create_task(keeper.follower.run())
    async with front.http() as http:
        client = Client(http)
        await client.begin()
        asked = (await client.step(5))["request_id"]
        organization_id, project_id = await whose(front, client.run)

        async def said(project: str = project_id) -> str:
            return await reasons.of(project, asked)

        lease = await store.lease(
            {
                "id": "lease_1", "organization_id": organization_id, "project_id": project_id,
                "cluster_id": "cluster", "role": "lease", "base_model": "", "owner": "",
                "lease_id": "", "settings": {}, "placement": {}, "token_sha256": "",
            }
        )  # fmt: skip
        ledger = SeatLedger(database, lease.id, "me", takes_turns=True, policy=TurnPolicy.FIFO)
        there = await ledger.ask(SeatWish("toy", project_id, Demand(1, 1), owner="another"))
        own = await ledger.ask(SeatWish("toy", project_id, Demand(1, 1), owner=client.run))
        told.say(lease.id, pb.PHASE_PENDING, WHY)
        assert await until(said) == WHY
        told.say(lease.id, pb.PHASE_RUNNING)
        await store.open(lease.id, DEVICE)
        assert (await ledger.admit(*there))[0] is not None
        assert (await ledger.admit(*own))[0] is None
        assert await until(said, holds=lambda found: found != WHY) == (
            "east has 1 resident of at most 1."
        )
        assert await said(project="another") == ""
        await ledger.release(*there)
        assert (await ledger.admit(*own))[0] is not None
        assert await said() == TURN_AWAITED
    following.cancel()


async def begun(front: Front, store: PodStore, run_id: str) -> str:
    """Writes the pod of a run; returns its project."""
    organization_id, project_id = await whose(front, run_id)
    await store.begin(
        {
            "id": "trainer_1", "organization_id": organization_id, "project_id": project_id,
            "cluster_id": "cluster", "role": "trainer", "base_model": "toy", "owner": run_id,
            "settings": {}, "placement": {}, "token_sha256": "",
        }
    )  # fmt: skip
    return project_id


async def whose(front: Front, run_id: str) -> tuple[str, str]:
    """The organization and the project of a run."""
    query = sa.select(runs.c.organization_id, runs.c.project_id).where(runs.c.id == run_id)
    async with front.app.database.autocommit() as connection:
        organization_id, project_id = (await connection.execute(query)).one()
    return str(organization_id), str(project_id)
