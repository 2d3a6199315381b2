"""Keeps the leases that this server uses: asks for them, opens their devices, and ends them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core import telemetry
from windlass.core.db.leases import tolerated
from windlass.tuning.leases.terms import LeaseTerms
from windlass.tuning.pods.keeping import RENEW_SECONDS, KeptPod, PodKeeper
from windlass.tuning.pods.places import TrainingPlace
from windlass.tuning.pods.store import PodStore
from windlass.tuning.pods.wished import lease_row
from windlass.tuning.seats.ledger import SeatLedger
from windlass.tuning.seats.queueing import SeatLines
from windlass.tuning_api.trainers.records import PodResources

TURN_AWAITED = "It has its place on the devices, and waits for its turn."
_LOOK_SECONDS = 5.0

log = telemetry.logger("leases")


@dataclass(eq=False)
class SharedLease:
    """Devices that one pod holds for a project, as this server uses them."""

    pod: KeptPod
    terms: LeaseTerms
    ledger: SeatLedger
    lines: SeatLines
    # Its row in the ledger, once the pod holds them.
    row: dict[str, object]
    # When somebody of this server sat there or waited to.
    used_at: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    # Why its pod cannot run, once that is certain.
    failure: str = ""

    @property
    def id(self) -> str:
        """The id of the pod, and the host of its seats in the ledger."""
        return self.pod.id

    def use(self) -> None:
        """Notes that somebody wants it now."""
        self.used_at = self.pod.asked_at = asyncio.get_running_loop().time()


# Makes a ledger and the lines of a lease, by its id and its cluster's.
LedgerOf = Callable[[str, str], tuple[SeatLedger, SeatLines]]


class LeaseKeeper:
    """Leases of this server; any server ends those of one that has died."""

    def __init__(self, store: PodStore, keeper: PodKeeper, ledger_of: LedgerOf):
        self._store = store
        self._keeper = keeper
        self._ledger_of = ledger_of
        # By project and cluster.
        self._leases: dict[tuple[str, str], SharedLease] = {}
        self._asking = asyncio.Lock()
        self._following: set[asyncio.Task[None]] = set()

    async def of(self, place: TrainingPlace, terms: LeaseTerms) -> SharedLease:
        """The lease of a project in a cluster, which is asked for where there is none."""
        assigned = place.assignment
        key = assigned.project_id, place.cluster.id
        async with self._asking:
            known = self._leases.get(key)
            if known is None or known.pod.over.is_set():
                known = self._leases[key] = await self._asked(place, terms)
                following = asyncio.create_task(self._follow(key, known), name=known.id)
                self._following.add(following)
                following.add_done_callback(self._following.discard)
        known.use()
        return known

    async def run(self) -> None:
        """Keeps them until cancelled."""
        while True:
            async with tolerated("tuning.cluster_leases"):
                await self.keep()
            await asyncio.sleep(RENEW_SECONDS)

    async def keep(self) -> None:
        """Renews leases and their seats, takes back those of dead servers, and ends what rests."""
        found = {one.id: one for one in self._leases.values() if not one.pod.over.is_set()}
        if not found:
            return
        last = await self._store.renew_leases(tuple(found))
        for lease in found.values():
            if lease.id not in last:
                lease.pod.over.set()
                continue
            await lease.lines.keep()
            await self._take_back(lease)
            if self._rests(lease):
                await self._end_empty(lease)

    async def close(self) -> None:
        """Ends the leases on which nobody sits any more."""
        for task in tuple(self._following):
            task.cancel()
        for lease in tuple(self._leases.values()):
            await lease.lines.close()
            async with tolerated("tuning.cluster_leases"):
                await self._end_empty(lease)

    async def end(self, lease: SharedLease) -> None:
        """Ends a lease, and whatever sits there."""
        await self._keeper.end(lease.pod)
        lease.lines.tell()

    async def reason(self, project_id: str, operation_id: str) -> str | None:
        """The reason why what an operation needs does not serve; None where it needs no pod."""
        seat = await self._store.awaited_seat(project_id, operation_id)
        if seat is None:
            return await self._keeper.reason(project_id, operation_id)
        if seat.lease_id:
            said = await self._keeper.reason(project_id, operation_id)
            return TURN_AWAITED if said is None else said
        holder = self._keeper.said(seat.host)
        return str(seat.reason) if holder.phase == pb.PHASE_RUNNING else holder.message

    def room_is_wanted(self) -> bool:
        """Returns True if somebody waits for room on devices that this server sits on."""
        return any(one.lines.room_is_wanted() for one in self._leases.values())

    async def _asked(self, place: TrainingPlace, terms: LeaseTerms) -> SharedLease:
        given, assigned = terms.section, place.assignment
        resources = PodResources(given.gpus, given.accelerator, given.host_bytes)
        row = await self._store.lease(lease_row(place, resources))
        ledger, lines = self._ledger_of(row.id, row.cluster_id)
        pod = await self._keeper.begin(row, "")
        devices = terms.row(assigned.project_id, assigned.local_queue)
        return SharedLease(pod, terms, ledger, lines, devices)

    async def _follow(self, key: tuple[str, str], lease: SharedLease) -> None:
        """Opens the devices once their pod holds them, and ends what is lost with it."""
        async with tolerated("tuning.cluster_leases"):
            while not (lease.pod.over.is_set() or lease.pod.is_taken):
                status = await self._keeper.status(lease.pod, _LOOK_SECONDS)
                if status.phase == pb.PHASE_FAILED:
                    lease.failure = status.message
                    await self.end(lease)
                elif status.phase == pb.PHASE_RUNNING and not lease.pod.over.is_set():
                    await self._store.open(lease.id, lease.row)
                    lease.pod.is_taken = True
                    lease.lines.tell()
        await lease.pod.over.wait()
        log.warning("lease_over", lease=lease.id, reason=lease.failure)
        if self._leases.get(key) is lease:
            del self._leases[key]
        async with tolerated("tuning.cluster_leases"):
            await self.end(lease)
        await lease.lines.close()

    async def _take_back(self, lease: SharedLease) -> None:
        """Gives seats back whose servers have died, once nothing sits there."""
        token, rows = await lease.ledger.take_over([])
        for row in rows:
            if self._keeper.is_there(row.process):
                log.info("resident_ends", seat_id=row.id, pod=row.process)
                continue
            log.warning("seat_taken_back", seat_id=row.id, workload=row.workload)
            await lease.ledger.release(row.id, token)
            lease.lines.tell()

    def _rests(self, lease: SharedLease) -> bool:
        """Returns True for one that nobody of this server has used for its time of rest."""
        if not lease.lines.is_empty:
            lease.use()
            return False
        rested = asyncio.get_running_loop().time() - lease.used_at
        is_wanted = lease.pod.is_taken and self._keeper.is_wanted(lease.pod.cluster_id)
        return is_wanted or rested >= lease.terms.section.rest_seconds

    async def _end_empty(self, lease: SharedLease) -> None:
        """Ends a lease unless somebody of another server uses it."""
        await self._keeper.ended(await self._store.end_empty(lease.id))
