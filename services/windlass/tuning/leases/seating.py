"""Seats on a lease: a place among those that share its devices, and a pod that joins its claim."""

import asyncio
import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core import telemetry
from windlass.core.rpc.auth import new_secret
from windlass.tuning.leases.keeping import LeaseKeeper, SharedLease
from windlass.tuning.leases.terms import LeaseTerms
from windlass.tuning.pods.keeping import KeptPod, PodKeeper
from windlass.tuning.pods.places import TrainingPlace
from windlass.tuning.pods.seating import PodProcess, folder_bytes, require_model
from windlass.tuning.pods.store import PodStore
from windlass.tuning.pods.tunnel_socket import TunnelSocket
from windlass.tuning.pods.wished import process_row
from windlass.tuning.pods.workloads import PodWorkloads
from windlass.tuning.seats.holding import LedgerSeat
from windlass.tuning.seats.ledger import SeatWish
from windlass.tuning_api.trainers.elsewhere import PodWish
from windlass.tuning_api.trainers.port import TrainerLost
from windlass.tuning_api.trainers.seats import (
    ResidentProcess,
    Seat,
    SeatAwaited,
    SeatedWorkload,
    SeatRefused,
)
from windlass.tunnel.lanes import Lanes

# Between looks at a pod that starts.
_LOOK_SECONDS = 5.0
# For a pod to go; a node that does not answer keeps its device for no longer than that.
GONE_SECONDS = 120.0

log = telemetry.logger("leases")


class LeasedSeat(LedgerSeat):
    """A seat on a lease: whoever sits there is a pod."""

    def __init__(self, *given: Any, keeper: PodKeeper, cluster_id: str):
        self._keeper = keeper
        self._cluster_id = cluster_id
        self.lease: SharedLease | None = None
        super().__init__(*given)

    @property
    def is_wanted(self) -> bool:
        """True while others wait for room here, or for quota in the cluster."""
        return super().is_wanted or self._keeper.is_wanted(self._cluster_id)

    async def name(self, pod_id: str) -> None:
        """Notes the pod that is to sit here; raises TrainerLost where the seat is lost."""
        if not await self._ledger.attach(self.id, self.token, pod_id):
            raise TrainerLost("its seat was taken over")

    async def attach(self, process: ResidentProcess) -> None:
        """Notes the process: its pod has its name in the row already."""
        self._process = process


class LeasedProcess(PodProcess):
    """A process on a lease, whose seat is another's once its pod has gone."""

    def __init__(self, pod: KeptPod, socket: TunnelSocket, most: int, keeper: PodKeeper):
        super().__init__(pod, socket, most)
        self._keeper = keeper

    async def end(self) -> None:
        """Has the pod deleted, and waits until it has left the devices."""
        await super().end()
        await ended(self._keeper, self._pod)


async def ended(keeper: PodKeeper, pod: KeptPod) -> None:
    """Has a pod deleted, and waits until nothing of it is left."""
    await keeper.end(pod)
    if not await keeper.gone(pod.id, GONE_SECONDS):
        log.error("resident_stays", pod=pod.id)


@dataclass(frozen=True)
class LeasedWork:
    """Parts that seats on leases are made with."""

    leases: LeaseKeeper
    store: PodStore
    workloads: PodWorkloads
    keeper: PodKeeper
    lanes: Lanes
    sockets: Path


class LeasedSeating:
    """Implements `PodPlace` by a seat in the ledger of a project's lease."""

    def __init__(self, wish: PodWish, place: TrainingPlace, terms: LeaseTerms, work: LeasedWork):
        self._wish = wish
        self._place = place
        self._terms = terms
        self._work = work
        self._demand = terms.demand(wish)
        self._lease: SharedLease | None = None
        # The one that starts.
        self._pod: KeptPod | None = None
        # Who gives up while it is asked for ends it as well.
        self._asking = asyncio.Lock()

    async def take(self, workload: SeatedWorkload, project_id: str) -> LeasedSeat:
        """Waits for room on the lease for a while; whoever asks again keeps its place."""
        project_id = self._wish.project(project_id)
        if said := self._terms.refusal(self._wish):
            raise SeatRefused(said)
        lease = self._lease
        if lease is None or lease.pod.over.is_set():
            await require_model(self._work.workloads, project_id, self._wish.model.name)
            lease = self._lease = await self._work.leases.of(self._place, self._terms)
        lease.use()
        wish = SeatWish(
            self._wish.model.name, project_id, self._demand, self._wish.role, self._wish.owner
        )
        try:
            seat = await lease.lines.take(workload, wish)
        except SeatAwaited as error:
            raise self._awaited(lease, error) from error
        if not isinstance(seat, LeasedSeat):
            raise TypeError("the seat is none of a lease")
        seat.lease = lease
        return seat

    async def launch(self, seat: Seat) -> LeasedProcess:
        """Has a pod join the claim, in its turn; raises OSError, SeatRefused, TrainerLost."""
        if not isinstance(seat, LeasedSeat) or seat.lease is None:
            raise TypeError("the seat is none of a lease")
        work, lease = self._work, seat.lease
        token = new_secret("trainer-")
        resources = self._terms.resources(self._demand)
        row = process_row(self._wish, self._place, token, resources, lease.id)
        await seat.name(row["id"])
        async with self._asking:
            pod = self._pod = await work.keeper.begin(await work.store.begin(row), token)
        try:
            await self._started(pod, lease)
            pod.is_taken = True
            socket = await TunnelSocket.open(work.lanes, work.sockets, pod.cluster_id, pod.id)
        except BaseException:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(ended(work.keeper, pod))
            raise
        finally:
            self._pod = None
        return LeasedProcess(pod, socket, folder_bytes(self._wish), work.keeper)

    async def give_up(self, workload: SeatedWorkload) -> None:
        """Leaves the line, and has the pod deleted that starts."""
        async with self._asking:
            pod = self._pod
        if pod is not None:
            await self._work.keeper.end(pod)
        if self._lease is not None:
            await self._lease.lines.give_up(workload)

    async def _started(self, pod: KeptPod, lease: SharedLease) -> None:
        """Waits until a pod serves; raises OSError, SeatRefused."""
        while True:
            lease.use()
            pod.asked_at = asyncio.get_running_loop().time()
            status = await self._work.keeper.status(pod, _LOOK_SECONDS)
            if pod.over.is_set() or lease.pod.over.is_set():
                raise OSError("its lease, or its pod, has ended")
            if status.phase == pb.PHASE_RUNNING:
                return
            if status.phase == pb.PHASE_FAILED:
                raise SeatRefused(f"The {self._wish.role} cannot run: {status.message}")

    def _awaited(self, lease: SharedLease, error: SeatAwaited) -> TrainerLost:
        """The answer to who waits: of its line, or of the pod whose devices it is for."""
        if lease.failure:
            return SeatRefused(f"The lease in {self._terms.cluster} cannot run: {lease.failure}")
        if lease.pod.is_taken:
            return error
        said = self._work.keeper.said(lease.id).message
        return SeatAwaited(said or f"The pod that holds devices in {self._terms.cluster} starts.")
