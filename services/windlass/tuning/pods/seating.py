"""Seats that are pods: each is one object that Kueue admits in its project's queue."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import grpc

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.core.errors import from_rpc
from windlass.core.rpc.auth import new_secret
from windlass.tuning.pods.keeping import KeptPod, PodKeeper
from windlass.tuning.pods.places import TrainingClusters
from windlass.tuning.pods.store import PodStore
from windlass.tuning.pods.tunnel_socket import TunnelSocket
from windlass.tuning.pods.wished import process_row
from windlass.tuning.pods.workloads import PodWorkloads
from windlass.tuning_api.trainers.elsewhere import PodWish
from windlass.tuning_api.trainers.seats import (
    ResidentProcess,
    Seat,
    SeatAwaited,
    SeatedWorkload,
    SeatRefused,
)
from windlass.tunnel.lanes import Lanes

# That a call waits for its pod before it says why; whoever asks again keeps the place.
PATIENCE_SECONDS = 5.0
# A state in float32: weights, two moments, and gradients that are not applied yet.
STATE_BYTES, _SLACK_BYTES = 16, 2**30


class PodSeat:
    """Implements `Seat` by a pod that serves."""

    environment: Mapping[str, str] = {}

    def __init__(self, pod: KeptPod, keeper: PodKeeper):
        self.pod = pod
        self._keeper = keeper

    @property
    def is_wanted(self) -> bool:
        """True while another pod waits for quota there."""
        return self._keeper.is_wanted(self.pod.cluster_id)

    async def attach(self, process: ResidentProcess) -> None:
        """Notes nothing: the pod is the process."""

    @asynccontextmanager
    async def turn(self, project_id: str) -> AsyncIterator[None]:
        """Lets everybody in at once: its devices are the pod's alone."""
        yield

    async def give_back(self) -> None:
        """Has the pod deleted."""
        await self._keeper.end(self.pod)


class PodProcess:
    """Implements `LaunchedProcess` by a pod, and the socket that leads to it."""

    pid = 0

    def __init__(self, pod: KeptPod, socket: TunnelSocket, folder_bytes: int):
        self._pod = pod
        self._socket = socket
        self.folder_bytes = folder_bytes
        self.token = pod.token

    @property
    def socket(self) -> Path:
        """The path of the socket."""
        return self._socket.path

    @property
    def has_ended(self) -> bool:
        """True once the pod serves no more."""
        return self._pod.over.is_set()

    async def wait(self) -> int:
        """Returns 0 once the pod serves no more."""
        await self._pod.over.wait()
        return 0

    async def end(self) -> None:
        """Closes the way to it; its seat is given back next."""
        self._pod.over.set()
        await self._socket.close()


class PodSeating:
    """Implements `PodPlace`: asks for one pod, which is seat and process."""

    def __init__(
        self,
        wish: PodWish,
        clusters: TrainingClusters,
        store: PodStore,
        workloads: PodWorkloads,
        keeper: PodKeeper,
        lanes: Lanes,
        sockets: Path,
    ):
        self._wish = wish
        self._clusters = clusters
        self._store = store
        self._workloads = workloads
        self._keeper = keeper
        self._lanes = lanes
        self._sockets = sockets
        # The one that waits.
        self._pod: KeptPod | None = None
        # Who gives up while it is asked for ends it as well.
        self._asking = asyncio.Lock()

    async def take(self, workload: SeatedWorkload, project_id: str) -> PodSeat:
        """Waits for the pod for a while; its place in the queue is kept for whoever asks again."""
        async with self._asking:
            if self._pod is None or self._pod.over.is_set():
                self._pod = await self._asked(project_id)
            pod = self._pod
        pod.asked_at = asyncio.get_running_loop().time()
        status = await self._keeper.status(pod, PATIENCE_SECONDS)
        if pod.over.is_set():
            raise SeatAwaited("Its place in the queue was given up.")
        if status.phase == pb.PHASE_RUNNING:
            self._pod, pod.is_taken = None, True
            return PodSeat(pod, self._keeper)
        if status.phase == pb.PHASE_FAILED:
            await self.give_up(workload)
            raise SeatRefused(f"The {self._wish.role} cannot run: {status.message}")
        raise SeatAwaited(status.message or f"The pod of the {self._wish.role} starts.")

    async def launch(self, seat: Seat) -> PodProcess:
        """The process of the pod; raises OSError."""
        if not isinstance(seat, PodSeat):
            raise TypeError("the seat is none of a pod")
        socket = await TunnelSocket.open(
            self._lanes, self._sockets, seat.pod.cluster_id, seat.pod.id
        )
        return PodProcess(seat.pod, socket, folder_bytes(self._wish))

    async def give_up(self, workload: SeatedWorkload) -> None:
        """Has the pod deleted that waits."""
        async with self._asking:
            pod, self._pod = self._pod, None
        if pod is not None:
            await self._keeper.end(pod)

    async def _asked(self, project_id: str) -> KeptPod:
        project_id = self._wish.project(project_id)
        place = await self._clusters.place(self._wish.cluster, project_id)
        await require_model(self._workloads, project_id, self._wish.model.name)
        token = new_secret("trainer-")
        row = await self._store.begin(process_row(self._wish, place, token, self._wish.resources))
        return await self._keeper.begin(row, token)


def folder_bytes(wish: PodWish) -> int:
    """Most bytes of a folder that a process may send: a state, and a little."""
    return STATE_BYTES * wish.model.parameters + _SLACK_BYTES


async def require_model(workloads: PodWorkloads, project_id: str, name: str) -> None:
    """Raises SeatRefused for a base model that pods could not fetch."""
    try:
        found = await workloads.model(project_id, name)
    except grpc.aio.AioRpcError as error:
        said = from_rpc(error).message
        raise SeatRefused(f"The cluster would fetch the platform's model: {said}") from error
    if found.HasField("base"):
        raise SeatRefused(f"The platform's model {name} is an adapter.")
